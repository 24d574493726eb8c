//! Checks what callers submit, before it reaches the queue, and turns it into rows.

mod bulk;
mod flow;
mod limit;
mod schedule;
pub(crate) mod size;
mod step;
mod stream;
pub(crate) mod suspension;
mod worker;

pub(crate) use flow::{edge_row, node_id};
pub use flow::{prepare_extend_flow, prepare_submit_flow};
pub(crate) use limit::{
    check_amounts, check_budget, check_quota, check_report, namespace as limit_namespace,
};
pub(crate) use step::{check_step_name, check_step_result};
pub(crate) use stream::prepare_append;
pub(crate) use worker::{prepare_register, worker_key, worker_namespace};

pub use bulk::{prepare_bulk, prepare_filter};
pub use schedule::{check_timing, prepare_put_schedule, schedule_key};

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::capability;
use crate::contracts::{CreateExecutionArgs, Idempotency, IdempotencyScope, Submission};
use crate::engine_error::{EngineError, ValidationKind};
use crate::limits::{self, Limits};
use crate::operations::execution::unique_key;
use crate::operations::execution::{CreateExecution, PreparedSubmission, Refusal, Submit};
use crate::policy::{Backoff, DEFAULT_IDEMPOTENCY_TTL_MS, ExecutionPolicy};
use crate::rows::{Blob, ExecutionRow};
use crate::state::LifecyclePhase;
use crate::types::{ExecutionKey, LaneId, Namespace};

/// Submissions as an operation; an item that breaks a rule keeps its place as a refusal.
pub fn prepare_submit(
    items: Vec<Submission>,
    limits: &Limits,
    scope: Option<&Namespace>,
    partition: impl Fn(&LaneId) -> u16,
) -> Result<Submit, EngineError> {
    check_count("submissions", items.len(), limits::SUBMIT_BATCH)?;
    size::check_submissions(&items, limits)?;
    let mut common = Common::default();
    let prepare = |item: Submission| {
        let partition = partition(&item.lane_id);
        prepare_one(item, limits, scope, partition, &mut common).map_err(|error| match error {
            EngineError::Validation { kind, detail } => Refusal { kind, detail },
            other => Refusal { kind: ValidationKind::InvalidInput, detail: other.to_string() },
        })
    };
    Ok(Submit { items: items.into_iter().map(prepare).collect() })
}

/// What submissions that come together mostly have in common, and where their identities go on.
#[derive(Default)]
struct Common {
    namespace: Arc<str>,
    lane: Arc<str>,
    kind: Arc<str>,
    creator: Arc<str>,
    capability_class: Arc<str>,
    tags: Arc<str>,
    raw_fields: Arc<str>,
    last: Option<Uuid>,
}

impl Common {
    /// A new identity. Only the first one is drawn, which takes longer than all the rest; those
    /// that follow it count its last 32 bits up, which are random otherwise.
    fn fresh_id(&mut self) -> Uuid {
        let next = self.last.filter(|last| last.as_u128() as u32 != u32::MAX);
        let next = next.map_or_else(Uuid::now_v7, |last| Uuid::from_u128(last.as_u128() + 1));
        *self.last.insert(next)
    }
}

/// The same text as the last time, if it is the same.
fn shared(last: &mut Arc<str>, text: &str) -> Arc<str> {
    if **last != *text {
        *last = text.into();
    }
    last.clone()
}

/// A submission as the row it will become. `partition` is where an engine-made identity lives.
pub fn prepare_submission(
    item: Submission,
    limits: &Limits,
    scope: Option<&Namespace>,
    partition: u16,
) -> Result<PreparedSubmission, EngineError> {
    prepare_one(item, limits, scope, partition, &mut Common::default())
}

fn prepare_one(
    item: Submission,
    limits: &Limits,
    scope: Option<&Namespace>,
    partition: u16,
    common: &mut Common,
) -> Result<PreparedSubmission, EngineError> {
    check_scope(&item.namespace, scope)?;
    item.namespace.check()?;
    item.lane_id.check()?;
    check_text("execution kind", &item.execution_kind, 1, limits::KIND_BYTES)?;
    check_text("creator identity", &item.creator_identity, 0, limits::NAME_BYTES)?;
    check_text(
        "payload encoding",
        item.payload_encoding.as_deref().unwrap_or_default(),
        0,
        limits::NAME_BYTES,
    )?;
    check_bytes("payload", item.input_payload.len(), limits)?;
    check_tags(&item.tags)?;
    check_duration("delay", item.delay)?;
    check_duration("deadline", item.deadline)?;
    let policy = item.policy.as_ref().map(check_policy).transpose()?;
    let fingerprint = match &item.idempotency {
        Some(_) => fingerprint(
            item.lane_id.as_str(),
            &item.execution_kind,
            item.payload_encoding.as_deref(),
            &item.input_payload,
        ),
        None => [0; 32],
    };
    let key_ttl = key_ttl(item.idempotency.as_ref(), item.policy.as_ref())?;
    let deadline = item.deadline.or_else(|| {
        let policy = item.policy.as_ref()?;
        policy.timeout_policy.execution_deadline_ms.map(Duration::from_millis)
    });
    let capability_class = match &item.policy {
        Some(policy) => capability::class(&policy.routing_requirements.required_capabilities)?,
        None => String::new(),
    };
    let fresh_id = item.execution_id.is_none();
    let key = match &item.execution_id {
        Some(id) => ExecutionKey::from(id),
        None => ExecutionKey { partition, id: common.fresh_id() },
    };
    let holds_key = item.idempotency.is_some() && key_ttl.is_none();
    let raw_fields = if holds_key {
        unique_key::raw_fields(&fingerprint).into()
    } else {
        shared(&mut common.raw_fields, "{}")
    };
    let row = ExecutionRow {
        idempotency_key: item.idempotency.map(|own| own.key.into()),
        policy,
        capability_class: shared(&mut common.capability_class, &capability_class),
        tags: shared(&mut common.tags, &tags_json(&item.tags)),
        payload: Blob::Here(item.input_payload.into()),
        payload_encoding: item.payload_encoding.map(Into::into),
        priority: item.priority.clamp(limits::PRIORITY_MIN, limits::PRIORITY_MAX),
        holds_key,
        namespace: shared(&mut common.namespace, &item.namespace.0),
        lane: shared(&mut common.lane, &item.lane_id.0),
        kind: shared(&mut common.kind, &item.execution_kind),
        creator: shared(&mut common.creator, &item.creator_identity),
        raw_fields,
        ..ExecutionRow::blank(key)
    };
    Ok(PreparedSubmission { row, fresh_id, fingerprint, key_ttl, delay: item.delay, deadline })
}

/// The contract's way to submit: the same checks, instants for times, phase `submitted`.
pub fn prepare_create(
    args: CreateExecutionArgs,
    limits: &Limits,
    scope: Option<&Namespace>,
) -> Result<CreateExecution, EngineError> {
    let scope_of_key = IdempotencyScope::Default;
    let submission = Submission {
        execution_id: Some(args.execution_id),
        namespace: args.namespace,
        lane_id: args.lane_id,
        execution_kind: args.execution_kind,
        input_payload: args.input_payload,
        payload_encoding: args.payload_encoding,
        priority: args.priority,
        creator_identity: args.creator_identity,
        idempotency: args.idempotency_key.map(|key| Idempotency { key, scope: scope_of_key }),
        tags: args.tags.into_iter().collect(),
        policy: args.policy,
        delay: None,
        deadline: None,
    };
    let mut item = prepare_submission(submission, limits, scope, 0)?;
    item.row.phase = LifecyclePhase::Submitted;
    Ok(CreateExecution {
        item,
        delay_until: args.delay_until,
        deadline_at: args.execution_deadline_at,
    })
}

fn check_scope(namespace: &Namespace, scope: Option<&Namespace>) -> Result<(), EngineError> {
    match scope {
        Some(scope) if scope != namespace => {
            Err(EngineError::invalid("the submission names a namespace that is not the caller's"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_text(
    what: &str,
    text: &str,
    min: usize,
    max: usize,
) -> Result<(), EngineError> {
    if text.len() < min {
        return Err(EngineError::invalid(format!("{what} is empty")));
    }
    if text.len() > max {
        let detail = format!("{what} is {} bytes long, the limit is {max}", text.len());
        return Err(EngineError::invalid(detail));
    }
    // Postgres cannot store it, and no backend may accept what another refuses.
    if text.contains('\0') {
        return Err(EngineError::invalid(format!("{what} contains a NUL character")));
    }
    Ok(())
}

pub(crate) fn check_count(what: &str, count: usize, max: usize) -> Result<(), EngineError> {
    if (1..=max).contains(&count) {
        return Ok(());
    }
    Err(EngineError::invalid(format!("{count} {what}; allowed are 1 to {max}")))
}

pub(crate) fn check_bytes(what: &str, len: usize, limits: &Limits) -> Result<(), EngineError> {
    if len <= limits.payload_bytes {
        return Ok(());
    }
    let detail = format!("{what} is {len} bytes long, the limit is {}", limits.payload_bytes);
    Err(EngineError::validation(ValidationKind::PayloadTooLarge, detail))
}

pub(crate) fn check_duration(what: &str, given: Option<Duration>) -> Result<(), EngineError> {
    match given {
        Some(given) if given > limits::HORIZON => {
            Err(EngineError::invalid(format!("{what} is longer than ten years")))
        }
        _ => Ok(()),
    }
}

fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), EngineError> {
    if tags.len() > limits::TAGS {
        let detail = format!("{} tags, the limit is {}", tags.len(), limits::TAGS);
        return Err(EngineError::invalid(detail));
    }
    tags.iter().try_for_each(|(key, value)| {
        check_tag_key(key)?;
        check_text("tag value", value, 0, limits::TAG_VALUE_BYTES)
    })
}

/// A lower-case namespace, a dot, and a name.
pub(crate) fn check_tag_key(key: &str) -> Result<(), EngineError> {
    let word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    let shape = key.split_once('.').is_some_and(|(namespace, name)| {
        namespace.starts_with(|c: char| c.is_ascii_lowercase())
            && namespace.bytes().all(word)
            && !name.is_empty()
            && !name.starts_with('.')
            && name.bytes().all(|c| word(c) || c == b'.')
    });
    if shape && key.len() <= limits::TAG_KEY_BYTES {
        return Ok(());
    }
    let shown: String = key.chars().take(limits::TAG_KEY_BYTES).collect();
    let detail = format!("tag key {shown:?} must look like `team.name`, in lower case");
    Err(EngineError::validation(ValidationKind::InvalidTagKey, detail))
}

fn check_policy(policy: &ExecutionPolicy) -> Result<Arc<str>, EngineError> {
    let refuse =
        |detail: String| Err(EngineError::validation(ValidationKind::InvalidPolicyJson, detail));
    if let Backoff::Exponential { multiplier, .. } = policy.retry_policy.backoff
        && !multiplier.is_finite()
    {
        return refuse("the back-off multiplier is not a finite number".into());
    }
    let (budgets, most) = (policy.budget_ids.len(), limits::BUDGETS_PER_EXECUTION);
    if budgets > most {
        return refuse(format!("the policy names {budgets} budgets, the limit is {most}"));
    }
    for budget in &policy.budget_ids {
        check_text("budget id", budget, 1, limits::NAME_BYTES)?;
    }
    check_amounts(&policy.budget_estimate)?;
    let json = serde_json::to_string(policy).map_err(|error| {
        EngineError::validation(ValidationKind::InvalidPolicyJson, error.to_string())
    })?;
    if json.len() > limits::POLICY_BYTES || json.contains("\\u0000") {
        return refuse(format!("the policy is larger than {} bytes", limits::POLICY_BYTES));
    }
    if policy.stream_policy.max_frames > limits::STREAM_FRAMES as u64 {
        let (given, limit) = (policy.stream_policy.max_frames, limits::STREAM_FRAMES);
        return refuse(format!(
            "the policy keeps {given} frames of a stream, the limit is {limit}"
        ));
    }
    let deadline = policy.timeout_policy.execution_deadline_ms.map(Duration::from_millis);
    check_duration("the policy's deadline", deadline)?;
    let timeout = policy.timeout_policy.attempt_timeout_ms.map(Duration::from_millis);
    check_duration("the policy's attempt timeout", timeout)?;
    Ok(json.into())
}

fn key_ttl(
    idempotency: Option<&Idempotency>,
    policy: Option<&ExecutionPolicy>,
) -> Result<Option<Duration>, EngineError> {
    let Some(own) = idempotency else {
        return Ok(None);
    };
    check_text("idempotency key", &own.key, 1, limits::IDEMPOTENCY_KEY_BYTES)?;
    let ttl = match own.scope {
        IdempotencyScope::UntilFinished => None,
        IdempotencyScope::Ttl(ttl) => Some(ttl),
        IdempotencyScope::Default => {
            let window = policy.and_then(|policy| policy.dedup_window_ms);
            Some(Duration::from_millis(window.unwrap_or(DEFAULT_IDEMPOTENCY_TTL_MS)))
        }
    };
    check_duration("the idempotency key's lifetime", ttl)?;
    Ok(ttl)
}

fn tags_json(tags: &BTreeMap<String, String>) -> Cow<'static, str> {
    if tags.is_empty() { "{}".into() } else { serde_json::json!(tags).to_string().into() }
}

/// What makes two submissions the same work.
pub(crate) fn fingerprint(
    lane: &str,
    kind: &str,
    encoding: Option<&str>,
    payload: &[u8],
) -> [u8; 32] {
    let mut hash = Sha256::new();
    let encoding = encoding.unwrap_or_default();
    for part in [lane.as_bytes(), kind.as_bytes(), encoding.as_bytes(), payload] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_of_a_batch_ascend() {
        let mut common = Common::default();
        let mut last = common.fresh_id();
        for _ in 0..1000 {
            let next = common.fresh_id();
            assert!(next > last && next.get_version_num() == 7);
            last = next;
        }
        // Where the random bits end, another identity is drawn.
        let full = Uuid::from_u128(last.as_u128() | u128::from(u32::MAX));
        common.last = Some(full);
        let drawn = common.fresh_id();
        assert_ne!(drawn.as_u128(), full.as_u128() + 1);
        assert_eq!(drawn.get_version_num(), 7);
    }

    #[test]
    fn tag_keys() {
        for good in ["a.b", "team.cost_center", "x1._y", "a.b.c"] {
            assert!(check_tag_key(good).is_ok(), "{good}");
        }
        for bad in ["", "a", ".b", "a.", "A.b", "a.B", "1a.b", "a..b", "a.b c", "a-b.c"] {
            assert!(check_tag_key(bad).is_err(), "{bad}");
        }
    }
}
