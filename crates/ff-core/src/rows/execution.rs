//! `ff_exec_core`: one unit of work, narrow, with its bytes apart once they are large.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Row, StepCount};
use crate::policy::ExecutionPolicy;
use crate::state::{
    AttemptState, BlockingReason, EligibilityState, LifecyclePhase, OwnershipState, PublicState,
};
use crate::types::{ExecutionId, ExecutionKey, TimestampMs};

/// One point of priority is worth this head start, so old work is never starved for ever and the
/// order of claims needs no clock: it is a number that is fixed when the row is written.
pub const AGEING_MS_PER_PRIORITY: i64 = 10 * 60 * 1000;

/// Bytes that belong to a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Blob {
    #[default]
    Absent,
    Here(Arc<[u8]>),
    /// Stored apart and not loaded with the row.
    Apart,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionRow {
    // Fixed at creation.
    pub key: ExecutionKey,
    pub flow_id: Option<Uuid>,
    pub namespace: Arc<str>,
    pub lane: Arc<str>,
    pub kind: Arc<str>,
    pub payload: Blob,
    pub payload_encoding: Option<Arc<str>>,
    pub creator: Arc<str>,
    pub idempotency_key: Option<Arc<str>>,
    pub policy: Option<Arc<str>>,
    /// The canonical form of the required capabilities; see `capability::class`.
    pub capability_class: Arc<str>,
    pub created_at: TimestampMs,

    // Moved by operations.
    pub priority: i32,
    pub tags: Arc<str>,
    pub attempt_index: u32,
    pub phase: LifecyclePhase,
    pub ownership: OwnershipState,
    pub eligibility: EligibilityState,
    pub public_state: PublicState,
    pub attempt_state: AttemptState,
    pub blocking: BlockingReason,
    pub not_before: Option<TimestampMs>,
    pub deadline_at: Option<TimestampMs>,
    pub started_at: Option<TimestampMs>,
    pub terminal_at: Option<TimestampMs>,
    pub result: Blob,
    pub failure_reason: Option<Arc<str>>,
    pub failure_category: Option<Arc<str>>,
    pub cancellation_reason: Option<Arc<str>>,
    pub cancelled_by: Option<Arc<str>>,
    pub retry_count: u32,
    pub reclaim_count: u32,
    /// The idempotency key is unique: held until the execution finishes, and taken again by a
    /// replay.
    pub holds_key: bool,
    /// The last lease epoch granted or burnt, over all attempts.
    pub lease_epoch: u64,
    /// Grows by one with every accepted transition.
    pub version: u64,
    /// A JSON object for the few facts that have no column.
    pub raw_fields: Arc<str>,

    /// Not stored: what has changed since the row was read, beyond what every transition moves.
    pub rewritten: Rewritten,
}

/// How much of a row a store must write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rewritten {
    /// Only what every transition moves.
    #[default]
    Nothing,
    /// Everything but what is JSON.
    Details,
    Everything,
}

impl ExecutionRow {
    /// A new execution without the texts that every one has.
    pub fn blank(key: ExecutionKey) -> Self {
        let empty: Arc<str> = Arc::default();
        Self {
            key,
            flow_id: None,
            namespace: empty.clone(),
            lane: empty.clone(),
            kind: empty.clone(),
            payload: Blob::Absent,
            payload_encoding: None,
            creator: empty.clone(),
            idempotency_key: None,
            policy: None,
            capability_class: empty.clone(),
            created_at: TimestampMs(0),
            priority: 0,
            tags: empty.clone(),
            attempt_index: 0,
            phase: LifecyclePhase::Runnable,
            ownership: OwnershipState::Unowned,
            eligibility: EligibilityState::EligibleNow,
            public_state: PublicState::Waiting,
            attempt_state: AttemptState::PendingFirstAttempt,
            blocking: BlockingReason::WaitingForWorker,
            not_before: None,
            deadline_at: None,
            started_at: None,
            terminal_at: None,
            result: Blob::Absent,
            failure_reason: None,
            failure_category: None,
            cancellation_reason: None,
            cancelled_by: None,
            retry_count: 0,
            reclaim_count: 0,
            holds_key: false,
            lease_epoch: 0,
            version: 0,
            raw_fields: empty,
            rewritten: Rewritten::Nothing,
        }
    }

    /// The order of claims: smaller first.
    pub fn rank(&self) -> i64 {
        self.created_at.0.saturating_sub(i64::from(self.priority) * AGEING_MS_PER_PRIORITY)
    }

    /// The predicate of the claim index.
    pub fn is_claimable(&self) -> bool {
        matches!(self.phase, LifecyclePhase::Submitted | LifecyclePhase::Runnable)
            && self.eligibility == EligibilityState::EligibleNow
    }

    pub fn is_finished(&self) -> bool {
        self.phase.is_finished()
    }

    /// Its flow was cancelled without it, so that it is never handed out again.
    pub fn is_held(&self) -> bool {
        self.phase == LifecyclePhase::Runnable
            && self.blocking == BlockingReason::PausedByFlowCancel
    }

    /// Other members of its flow must end first.
    pub fn waits_for_members(&self) -> bool {
        matches!(self.phase, LifecyclePhase::Submitted | LifecyclePhase::Runnable)
            && self.eligibility == EligibilityState::BlockedByDependencies
    }

    /// The stored policy, and the defaults for what it leaves out or what cannot be read of it.
    pub fn policy(&self) -> ExecutionPolicy {
        self.policy.as_deref().map(|json| ExecutionPolicy::read(json).0).unwrap_or_default()
    }

    /// The parts of the stored policy that have no effect, because they cannot be read.
    pub fn unread_policy(&self) -> Vec<String> {
        self.policy.as_deref().map(|json| ExecutionPolicy::read(json).1).unwrap_or_default()
    }

    pub fn tags(&self) -> BTreeMap<String, String> {
        tags(&self.tags)
    }

    /// The name of a node in its flow, or nothing.
    pub fn node_name(&self) -> String {
        let raw = raw_object(&self.raw_fields);
        raw.get("node").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Whether a member wants its parents' results together with its input.
    pub fn merges_results(&self) -> bool {
        self.flow_id.is_some()
            && self.raw_fields.contains("\"merge_results\"")
            && raw_object(&self.raw_fields).get("merge_results") == Some(&Value::Bool(true))
    }

    /// The ended execution whose work this one does anew.
    pub fn resubmitted_from(&self) -> Option<ExecutionId> {
        if !self.raw_fields.contains("\"resubmitted_from\"") {
            return None;
        }
        let id = self.raw("resubmitted_from")?;
        ExecutionId::parse(id.as_str()?).ok()
    }

    pub fn replay_count(&self) -> u32 {
        let count = raw_object(&self.raw_fields).get("replay_count").and_then(Value::as_u64);
        u32::try_from(count.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Costs nothing where there are no steps.
    pub fn has_steps(&self) -> bool {
        self.raw_fields.contains("\"steps\"")
    }

    pub fn step_count(&self) -> StepCount {
        if !self.has_steps() {
            return StepCount::default();
        }
        let steps = raw_object(&self.raw_fields).remove("steps").unwrap_or_default();
        let number = |name: &str| steps.get(name).and_then(Value::as_u64).unwrap_or(0);
        let count = u32::try_from(number("count")).unwrap_or(u32::MAX);
        StepCount { count, bytes: number("bytes") }
    }

    pub fn set_step_count(&mut self, steps: StepCount) {
        self.set_raw("steps", json!({ "count": steps.count, "bytes": steps.bytes }));
    }

    /// What must be written of this row where another version of it is stored.
    pub fn rewriting(&self, other: &Self) -> Rewritten {
        if self.tags != other.tags || self.raw_fields != other.raw_fields {
            return Rewritten::Everything;
        }
        let differs = self.priority != other.priority
            || self.attempt_index != other.attempt_index
            || self.not_before != other.not_before
            || self.deadline_at != other.deadline_at
            || self.failure_reason != other.failure_reason
            || self.failure_category != other.failure_category
            || self.cancellation_reason != other.cancellation_reason
            || self.cancelled_by != other.cancelled_by
            || self.retry_count != other.retry_count
            || self.reclaim_count != other.reclaim_count
            || self.holds_key != other.holds_key;
        if differs { Rewritten::Details } else { Rewritten::Nothing }
    }

    pub fn raw(&self, name: &str) -> Option<Value> {
        raw_object(&self.raw_fields).remove(name)
    }

    pub fn clear_raw(&mut self, name: &str) {
        let mut object = raw_object(&self.raw_fields);
        if object.remove(name).is_some() {
            self.raw_fields = Value::Object(object).to_string().into();
        }
    }

    pub fn set_raw(&mut self, name: &str, value: Value) {
        self.raw_fields = with_raw(&self.raw_fields, [(name, value)]);
    }
}

impl Row for ExecutionRow {
    type Key = ExecutionKey;

    fn key(&self) -> ExecutionKey {
        self.key
    }
}

/// Reads a `tags` column; anything but an object of texts counts as empty.
pub(crate) fn tags(json: &str) -> BTreeMap<String, String> {
    if json == "{}" {
        return BTreeMap::new();
    }
    serde_json::from_str(json).unwrap_or_default()
}

/// Reads a `raw_fields` column; anything but an object counts as empty.
pub(crate) fn raw_object(json: &str) -> Map<String, Value> {
    match serde_json::from_str(json) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// A `raw_fields` column with some members replaced.
pub(crate) fn with_raw<'a>(
    json: &str,
    members: impl IntoIterator<Item = (&'a str, Value)>,
) -> Arc<str> {
    let mut object = raw_object(json);
    for (name, value) in members {
        object.insert(name.to_owned(), value);
    }
    Value::Object(object).to_string().into()
}
