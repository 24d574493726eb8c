//! What an execution was promised at submission: retries, timeouts, replays, routing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A snapshot taken when the execution is created. Absent parts mean the defaults below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionPolicy {
    #[serde(deserialize_with = "or_default")]
    pub retry_policy: RetryPolicy,
    #[serde(deserialize_with = "or_default")]
    pub timeout_policy: TimeoutPolicy,
    /// Replaces the count of the same name in `timeout_policy`; FlowFabric 0.11 to 0.15 wrote it
    /// here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_reclaim_count: Option<u32>,
    /// How often the execution may be replayed; no limit when absent.
    pub max_replay_count: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    pub routing_requirements: RoutingRequirements,
    /// How long an idempotency key holds. The default is [`DEFAULT_IDEMPOTENCY_TTL_MS`].
    pub dedup_window_ms: Option<u64>,
    /// Left out where it is the default, so that it costs nothing to those who stream nothing.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "StreamPolicy::is_default")]
    pub stream_policy: StreamPolicy,
    /// Budgets of the execution's namespace that it is charged to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub budget_ids: Vec<String>,
    /// What one attempt is expected to use, by dimension; absent parts are as the budget says.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub budget_estimate: BTreeMap<String, u64>,
}

impl ExecutionPolicy {
    /// How many workers may lose their lease on an execution before it fails.
    pub fn max_reclaims(&self) -> u32 {
        self.max_reclaim_count.unwrap_or(self.timeout_policy.max_reclaim_count)
    }

    /// Reads a stored policy as far as it is known here, and names the parts that are not. One
    /// field that a newer program or a person has written must not cost the rest of it.
    pub fn read(json: &str) -> (Self, Vec<String>) {
        if let Ok(policy) = serde_json::from_str(json) {
            return (policy, Vec::new());
        }
        let Ok(Value::Object(stored)) = serde_json::from_str(json) else {
            return (Self::default(), vec!["the whole of it".to_owned()]);
        };
        let (mut known, mut unread) = (Map::new(), Vec::new());
        for (name, value) in stored {
            if Self::knows(&name, &value) {
                known.insert(name, value);
                continue;
            }
            let Value::Object(parts) = value else {
                unread.push(name);
                continue;
            };
            let is_known = |part: &(String, Value)| {
                Self::knows(&name, &Value::Object(Map::from_iter([part.clone()])))
            };
            let (parts, rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_known);
            unread.extend(rest.into_iter().map(|(part, _)| format!("{name}.{part}")));
            if !parts.is_empty() {
                known.insert(name, Value::Object(Map::from_iter(parts)));
            }
        }
        (serde_json::from_value(Value::Object(known)).unwrap_or_default(), unread)
    }

    fn knows(name: &str, value: &Value) -> bool {
        let alone = Map::from_iter([(name.to_owned(), value.clone())]);
        serde_json::from_value::<Self>(Value::Object(alone)).is_ok()
    }
}

/// A part that is written as `null` is absent.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

pub const DEFAULT_IDEMPOTENCY_TTL_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts after the first.
    pub max_retries: u32,
    pub backoff: Backoff,
    /// If not empty, only failures of these categories are retried.
    pub retryable_categories: BTreeSet<String>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_retries: 3, backoff: Backoff::default(), retryable_categories: BTreeSet::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Backoff {
    Fixed {
        delay_ms: u64,
    },
    Exponential {
        initial_delay_ms: u64,
        max_delay_ms: u64,
        multiplier: f64,
        /// Draws the delay evenly from its upper half, so that failures do not return together.
        jitter: bool,
    },
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential {
            initial_delay_ms: 1_000,
            max_delay_ms: 60_000,
            multiplier: 2.0,
            jitter: true,
        }
    }
}

impl Backoff {
    /// The delay before retry number `retry` (0 is the first). `entropy` is any 64 random bits.
    pub fn delay_ms(&self, retry: u32, entropy: u64) -> u64 {
        match *self {
            Self::Fixed { delay_ms } => delay_ms,
            Self::Exponential { initial_delay_ms, max_delay_ms, multiplier, jitter } => {
                let grown = initial_delay_ms as f64 * multiplier.max(1.0).powf(f64::from(retry));
                let capped = if grown >= max_delay_ms as f64 { max_delay_ms } else { grown as u64 };
                if jitter { capped - capped / 2 + entropy % (capped / 2 + 1) } else { capped }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutPolicy {
    /// An attempt that runs longer counts as failed and is retried as the retry policy says.
    pub attempt_timeout_ms: Option<u64>,
    /// From creation; when it is over the execution expires, whatever it is doing.
    pub execution_deadline_ms: Option<u64>,
    /// How many workers may die with this execution in hand before it is given up.
    pub max_reclaim_count: u32,
}

impl Default for TimeoutPolicy {
    fn default() -> Self {
        Self { attempt_timeout_ms: None, execution_deadline_ms: None, max_reclaim_count: 100 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RoutingRequirements {
    pub required_capabilities: BTreeSet<String>,
}

/// How much of each attempt's stream is kept. The oldest frames are trimmed first, and a stream may
/// be an eighth over its limits before they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StreamPolicy {
    #[serde(alias = "retention_maxlen")]
    pub max_frames: u64,
    /// Of payloads.
    pub max_bytes: u64,
    /// How many frames that are not durable are kept in front of the oldest durable one.
    pub max_early_frames: u64,
}

impl Default for StreamPolicy {
    fn default() -> Self {
        Self { max_frames: 10_000, max_bytes: 64 * 1024 * 1024, max_early_frames: 1_024 }
    }
}

impl StreamPolicy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As FlowFabric 0.11 to 0.15 wrote them.
    #[test]
    fn fields_of_earlier_systems_keep_their_meaning() {
        let json = r#"{"retry_policy": null, "timeout_policy": null, "max_reclaim_count": 7,
                       "routing_requirements": null, "stream_policy": {"retention_maxlen": 50}}"#;
        let policy: ExecutionPolicy = serde_json::from_str(json).unwrap();
        assert_eq!((policy.max_reclaims(), policy.stream_policy.max_frames), (7, 50));
        assert_eq!(policy.retry_policy, RetryPolicy::default());
        let again = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<ExecutionPolicy>(&again).unwrap(), policy);
        assert_eq!(ExecutionPolicy::default().max_reclaims(), 100);
        let refused = serde_json::from_str::<ExecutionPolicy>(r#"{"fallback_policy": {}}"#);
        assert!(refused.unwrap_err().to_string().contains("unknown field `fallback_policy`"));
    }

    #[test]
    fn backoff_table() {
        let exponential = |jitter| Backoff::Exponential {
            initial_delay_ms: 100,
            max_delay_ms: 1_000,
            multiplier: 2.0,
            jitter,
        };
        let delays: Vec<_> = (0..6).map(|retry| exponential(false).delay_ms(retry, 7)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(exponential(false).delay_ms(u32::MAX, 0), 1_000);
        assert_eq!(Backoff::Fixed { delay_ms: 5 }.delay_ms(9, 0), 5);
        for entropy in 0..2_000 {
            assert!((200..=400).contains(&exponential(true).delay_ms(2, entropy)));
        }
    }

    #[test]
    fn what_is_known_of_a_policy_is_read() {
        let stored = r#"{"retry_policy": {"max_retries": 7, "colour": "red"},
            "timeout_policy": {"attempt_timeout_ms": "soon"}, "max_replay_count": 2, "newer": []}"#;
        let (policy, unread) = ExecutionPolicy::read(stored);
        assert_eq!(unread, ["newer", "retry_policy.colour", "timeout_policy.attempt_timeout_ms"]);
        let mut expected = ExecutionPolicy { max_replay_count: Some(2), ..Default::default() };
        expected.retry_policy.max_retries = 7;
        assert_eq!(policy, expected);
        assert_eq!(ExecutionPolicy::read("{}"), Default::default());
        let (policy, unread) = ExecutionPolicy::read("7");
        assert_eq!((policy, unread.len()), (ExecutionPolicy::default(), 1));
    }

    #[test]
    fn jitter_survives_tiny_and_huge_delays() {
        for delay in [0, 1, u64::MAX] {
            let backoff = Backoff::Exponential {
                initial_delay_ms: delay,
                max_delay_ms: delay,
                multiplier: 1.0,
                jitter: true,
            };
            assert!(backoff.delay_ms(3, u64::MAX) <= delay);
        }
    }
}
