//! Between the shapes of HTTP and those of the engine.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use ff_api::{ClaimedExecution, JSON, Scope, Signal, SubmitOutcome, SubmitRequest, bytes};
use ff_core::backend::Handle;
use ff_core::contracts::{self, Idempotency, IdempotencyScope, Submission};
use ff_core::limits;
use ff_core::state::PublicState;
use ff_core::types::Namespace;

use crate::gate::{Authorized, Principal};
use crate::refusal::{Answered, Refusal};

/// What all submissions of one request have in common.
pub struct Submitter<'r> {
    namespace: Namespace,
    principal: &'r Principal,
    trace: Vec<(&'static str, String)>,
}

/// Tags under which the trace context travels to each attempt.
const TRACE_PARENT: &str = "trace.parent";
const TRACE_STATE: &str = "trace.state";

impl<'r> Submitter<'r> {
    pub fn new(door: &'r Authorized, headers: &HeaderMap) -> Answered<Self> {
        let principal = &**door.principal();
        Ok(Self { namespace: door.namespace()?.clone(), principal, trace: trace(headers) })
    }

    /// For nodes that join a flow: the engine puts them into the flow's own namespace.
    pub fn joining(door: &'r Authorized, headers: &HeaderMap) -> Self {
        let namespace = door.namespace().ok().cloned().unwrap_or_default();
        Self { namespace, principal: door.principal(), trace: trace(headers) }
    }

    /// A submission in the caller's namespace. A key in the body goes before the given one.
    pub fn submission(&self, item: SubmitRequest, key: Option<String>) -> Answered<Submission> {
        let invalid = |detail: &str| Refusal::invalid(detail);
        if item.execution_id.is_some() {
            check_may_choose(self.principal, "execution_id")?;
        }
        let payload = item.bytes().map_err(|error| invalid(&error.to_string()))?;
        let given = item.payload.as_ref().map(|_| JSON.to_owned());
        let key = item.idempotency_key.or(key);
        if key.is_none() && (item.idempotency_ttl.is_some() || item.unique_until_finished) {
            return Err(invalid("a lifetime is given for an idempotency key that is not"));
        }
        let scope = match (item.idempotency_ttl, item.unique_until_finished) {
            (Some(_), true) => {
                return Err(invalid(
                    "idempotency_ttl and unique_until_finished exclude each other",
                ));
            }
            (Some(ttl), false) => IdempotencyScope::Ttl(ttl.0),
            (None, true) => IdempotencyScope::UntilFinished,
            (None, false) => IdempotencyScope::Default,
        };
        Ok(Submission {
            execution_id: item.execution_id,
            namespace: self.namespace.clone(),
            lane_id: item.lane_id,
            execution_kind: item.execution_kind,
            input_payload: payload.unwrap_or_default(),
            payload_encoding: item.payload_encoding.or(given),
            priority: item.priority,
            creator_identity: creator(self.principal, item.creator_identity)?,
            idempotency: key.map(|key| Idempotency { key, scope }),
            tags: self.with_trace(item.tags),
            policy: item.policy,
            delay: item.delay.map(|delay| delay.0),
            deadline: item.deadline.map(|deadline| deadline.0),
        })
    }

    /// The caller's own tags go first; the trace is kept if there is room.
    fn with_trace(&self, mut tags: BTreeMap<String, String>) -> BTreeMap<String, String> {
        for (key, value) in &self.trace {
            if tags.len() < limits::TAGS {
                tags.entry((*key).to_owned()).or_insert_with(|| value.clone());
            }
        }
        tags
    }
}

/// Ids are one set for all namespaces. A caller that sees one of them could learn from the answer
/// to a chosen id whether another namespace uses it, so it is told the same whatever it chooses.
pub fn check_may_choose(principal: &Principal, what: &str) -> Answered<()> {
    if principal.is_everywhere() {
        return Ok(());
    }
    let detail = format!(
        "to choose {what}, the token must be good in all namespaces; use an idempotency key"
    );
    Err(Refusal::new("forbidden", detail))
}

/// Whose work it is: the token's own, unless an admin says otherwise.
pub fn creator(principal: &Principal, given: Option<String>) -> Answered<String> {
    match given {
        Some(given) if given == principal.name || principal.has(Scope::Admin) => Ok(given),
        Some(_) => {
            let detail = "to set creator_identity, the token needs the scope `admin`";
            Err(Refusal::new("forbidden", detail))
        }
        None => Ok(principal.name.clone()),
    }
}

/// The trace context of a request. What is malformed is ignored, as its specification says.
fn trace(headers: &HeaderMap) -> Vec<(&'static str, String)> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(parent) = text("traceparent").filter(|parent| is_trace_parent(parent)) else {
        return Vec::new();
    };
    let state = text("tracestate").filter(|state| state.len() <= 512 && !state.is_empty());
    let state = state.map(|state| (TRACE_STATE, state.to_owned()));
    [(TRACE_PARENT, parent.to_owned())].into_iter().chain(state).collect()
}

fn is_trace_parent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let some = |part: &str| part.bytes().any(|b| b != b'0');
    matches!(parts[..], [version, trace, span, flags]
        if version == "00" && hex(trace, 32) && hex(span, 16) && hex(flags, 2)
            && some(trace) && some(span))
}

pub fn submit_outcome(outcome: contracts::SubmitOutcome) -> SubmitOutcome {
    match outcome {
        contracts::SubmitOutcome::Created { execution_id, public_state } => {
            SubmitOutcome::Created { execution_id, public_state }
        }
        contracts::SubmitOutcome::Duplicate { execution_id } => {
            SubmitOutcome::Duplicate { execution_id }
        }
        contracts::SubmitOutcome::Refused(error) => {
            SubmitOutcome::Refused { problem: Refusal::from(error).problem(None) }
        }
    }
}

pub fn claimed(claimed: contracts::ClaimedExecution) -> ClaimedExecution {
    let (payload, payload_base64) = bytes::write(&claimed.payload);
    ClaimedExecution {
        handle: claimed.handle.encode(),
        execution_id: claimed.execution_id,
        namespace: claimed.namespace,
        lane_id: claimed.lane_id,
        execution_kind: claimed.execution_kind,
        payload,
        payload_base64,
        payload_encoding: claimed.payload_encoding,
        tags: claimed.tags,
        priority: claimed.priority,
        attempt_index: claimed.attempt_index,
        attempt_type: claimed.attempt_type,
        lease_epoch: claimed.lease_epoch.0,
        lease_expires_at: claimed.lease_expires_at,
        created_at: claimed.created_at,
        deadline_at: claimed.deadline_at,
        resume_signals: claimed.resume_signals.into_iter().map(signal).collect(),
        steps: claimed.steps,
    }
}

pub fn signal(signal: contracts::ResumeSignal) -> Signal {
    let (payload, payload_base64) = signal.payload.map(|b| bytes::write(&b)).unwrap_or_default();
    Signal {
        signal_id: signal.signal_id,
        waitpoint_id: signal.waitpoint_id,
        waitpoint_key: signal.waitpoint_key,
        signal_name: signal.signal_name,
        signal_category: signal.signal_category,
        source_type: signal.source_type,
        source_identity: signal.source_identity,
        payload,
        payload_base64,
        payload_encoding: signal.payload_encoding,
        correlation_id: signal.correlation_id,
        accepted_at: signal.accepted_at,
        number: None,
        effect: None,
    }
}

/// A handle that cannot be read is the caller's mistake, not a fault of the store.
pub fn handle(text: &str) -> Answered<Handle> {
    Handle::decode(text).map_err(|_| Refusal::invalid("the handle cannot be read"))
}

pub fn state(word: &str) -> Option<PublicState> {
    PublicState::ALL.into_iter().find(|state| state.as_str() == word)
}

/// A tag that is looked for.
pub fn tag(text: &str) -> Answered<(String, String)> {
    match text.split_once(':') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Refusal::invalid("a tag is looked for as key:value")),
    }
}

/// Words separated by commas.
pub fn words<T>(
    text: Option<&str>,
    what: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Answered<Vec<T>> {
    let words = text.unwrap_or_default().split(',').filter(|word| !word.is_empty());
    let parsed = words.map(|word| {
        let shown: String = word.chars().take(40).collect();
        parse(word).ok_or_else(|| Refusal::invalid(format!("there is no {what} {shown:?}")))
    });
    parsed.collect()
}

pub fn limit(given: Option<usize>, default: usize) -> Answered<usize> {
    let limit = given.unwrap_or(default);
    if limit == 0 || limit > limits::PAGE {
        return Err(Refusal::invalid(format!("limit is {limit}; 1 to {} go", limits::PAGE)));
    }
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_parents() {
        assert!(is_trace_parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert!(!is_trace_parent(bad), "{bad}");
        }
    }
}
