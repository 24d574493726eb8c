//! Rows to bound values, and the statements that they are bound to.

use std::sync::Arc;

use ff_core::rows::spelling::Spelling;
use ff_core::rows::{AttemptRow, EventRow, ExecutionRow, FlowRow};
use ff_core::types::TimestampMs;
use uuid::Uuid;

use crate::bound::{Cell, Insert};
use crate::columns::{ATTEMPT, NEW_EVENT};
use crate::load::Place;

impl<'r> Cell<'r> {
    pub fn time(at: Option<TimestampMs>) -> Self {
        at.map_or(Self::Null, |at| Self::Int(at.0))
    }

    pub fn text(text: Option<&'r Arc<str>>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text))
    }

    pub fn word<T: Spelling>(word: Option<T>) -> Self {
        word.map_or(Self::Null, |word| Self::Text(word.word()))
    }

    pub fn id(id: Option<&'r Uuid>) -> Self {
        id.map_or(Self::Null, |id| Self::Bytes(id.as_bytes()))
    }
}

/// The columns of a new execution; the others begin as their defaults.
const NEW_EXECUTION: &str = "execution_id, home_partition, flow_id, namespace, lane_id, \
    execution_kind, payload, payload_apart, payload_encoding, creator_identity, idempotency_key, \
    policy, required_capabilities, created_at_ms, priority, tags, attempt_index, \
    lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state, \
    blocking_reason, not_before_ms, deadline_at_ms, holds_key, version, last_event, raw_fields";

/// What every transition moves. Work that was accepted together is claimed together, so the rows
/// of a claim mostly stand one after the other, their last events equally far apart, and one
/// statement moves them.
pub(crate) const MOVE_EXECUTIONS: &str = "UPDATE OR FAIL ff_exec_core SET lifecycle_phase = ?3, \
    ownership_state = ?4, eligibility_state = ?5, public_state = ?6, attempt_state = ?7, \
    blocking_reason = ?8, started_at_ms = ?9, terminal_at_ms = ?10, result = ?11, \
    result_apart = ?12, lease_epoch = ?13, version = ?14, last_event = ?15 + (rowid - ?1) * ?16 \
    WHERE rowid BETWEEN ?1 AND ?2";

/// What only some of them change.
pub(crate) const REWRITE_EXECUTION: &str = "UPDATE ff_exec_core SET priority = ?2, tags = ?3, \
    attempt_index = ?4, not_before_ms = ?5, deadline_at_ms = ?6, failure_reason = ?7, \
    failure_category = ?8, cancellation_reason = ?9, cancelled_by = ?10, retry_count = ?11, \
    reclaim_count = ?12, holds_key = ?13, raw_fields = ?14 \
    WHERE rowid = ?1";

/// Everything but what an attempt is called by.
pub(crate) const REWRITE_ATTEMPT: &str = "UPDATE ff_attempt SET attempt_type = ?3, \
    lease_epoch = ?4, worker_id = ?5, worker_instance_id = ?6, lease_expires_at_ms = ?7, \
    started_at_ms = ?8, terminal_at_ms = ?9, outcome = ?10, failure_reason = ?11, \
    failure_category = ?12, retry_at_ms = ?13, progress_pct = ?14, progress_message = ?15, \
    lease_nonce = ?16 WHERE partition_key = 0 AND execution_id = ?1 AND attempt_index = ?2";

/// Everything of a flow that may change.
pub(crate) const UPDATE_FLOW: &str = "UPDATE OR FAIL ff_flow_core SET graph_revision = ?2, \
    public_flow_state = ?3, terminal_at_ms = ?4, node_count = ?5, edge_count = ?6, \
    completed_count = ?7, failed_count = ?8, cancelled_count = ?9, expired_count = ?10, \
    skipped_count = ?11, spared_count = ?12, raw_fields = ?13 \
    WHERE partition_key = 0 AND flow_id = ?1";

/// Texts that are put together once.
pub(crate) struct Statements {
    pub execution: Insert,
    pub event: Insert,
    pub attempt: Insert,
}

impl Default for Statements {
    fn default() -> Self {
        Self {
            execution: Insert::new(
                "ff_exec_core",
                NEW_EXECUTION,
                &["execution_id", "flow_id", "payload", "idempotency_key", "last_event"],
            ),
            event: Insert::new(
                "ff_event",
                &format!("{NEW_EVENT}, previous"),
                &["seq", "execution_id", "previous"],
            ),
            attempt: Insert::new(
                "ff_attempt",
                &format!("execution_id, {ATTEMPT}"),
                &["execution_id", "lease_nonce"],
            ),
        }
    }
}

/// In the order of `NEW_EVENT` and the place of the execution's event before.
pub(crate) fn event_cells(row: &EventRow, seq: i64, previous: i64) -> [Cell<'_>; 18] {
    [
        Cell::Int(seq),
        Cell::Int(row.at.0),
        Cell::Text(row.event_type.as_str()),
        Cell::Text(&row.namespace),
        Cell::text(row.lane.as_ref()),
        Cell::text(row.kind.as_ref()),
        Cell::id(row.execution.as_ref().map(|key| &key.id)),
        row.execution.map_or(Cell::Null, |key| Cell::Int(i64::from(key.partition))),
        Cell::id(row.flow_id.as_ref()),
        Cell::word(row.from),
        Cell::word(row.to),
        Cell::Int(row.version as i64),
        Cell::Int(i64::from(row.attempt_index)),
        Cell::Int(row.lease_epoch as i64),
        Cell::Int(i64::from(row.lease_ended)),
        Cell::text(row.by.as_ref()),
        Cell::text(row.details.as_ref()),
        Cell::Int(previous),
    ]
}

pub(crate) fn flow_cells(row: &FlowRow) -> [Cell<'_>; 13] {
    let number = |count: u64| Cell::Int(count as i64);
    let ended = row.ended;
    [
        Cell::Bytes(row.key.id.as_bytes()),
        Cell::Int(row.graph_revision),
        Cell::Text(row.state.word()),
        Cell::time(row.terminal_at),
        number(row.nodes),
        number(row.edges),
        number(ended.completed),
        number(ended.failed),
        number(ended.cancelled),
        number(ended.expired),
        number(ended.skipped),
        number(ended.spared),
        Cell::Text(&row.raw_fields),
    ]
}

/// In the order of `execution_id` and the columns of `ATTEMPT`.
pub(crate) fn attempt_cells(row: &AttemptRow) -> [Cell<'_>; 16] {
    [
        Cell::Bytes(row.key.execution.id.as_bytes()),
        Cell::Int(i64::from(row.key.index)),
        Cell::Text(row.attempt_type.word()),
        Cell::Int(row.lease_epoch as i64),
        Cell::text(row.worker_id.as_ref()),
        Cell::text(row.worker_instance_id.as_ref()),
        Cell::time(row.lease_expires_at),
        Cell::time(row.started_at),
        Cell::time(row.ended_at),
        Cell::word(row.outcome),
        Cell::text(row.failure_reason.as_ref()),
        Cell::text(row.failure_category.as_ref()),
        Cell::time(row.retry_at),
        row.progress_percent.map_or(Cell::Null, |percent| Cell::Int(i64::from(percent))),
        Cell::text(row.progress_message.as_ref()),
        Cell::Int(row.lease_nonce as i64),
    ]
}

/// A new execution, in the order of `NEW_EXECUTION`.
pub(crate) fn new_cells<'r>(
    row: &'r ExecutionRow,
    [payload, payload_apart]: [Cell<'r>; 2],
    last_event: i64,
) -> [Cell<'r>; 29] {
    [
        Cell::Bytes(row.key.id.as_bytes()),
        Cell::Int(i64::from(row.key.partition)),
        Cell::id(row.flow_id.as_ref()),
        Cell::Text(&row.namespace),
        Cell::Text(&row.lane),
        Cell::Text(&row.kind),
        payload,
        payload_apart,
        Cell::text(row.payload_encoding.as_ref()),
        Cell::Text(&row.creator),
        Cell::text(row.idempotency_key.as_ref()),
        Cell::text(row.policy.as_ref()),
        Cell::Text(&row.capability_class),
        Cell::Int(row.created_at.0),
        Cell::Int(i64::from(row.priority)),
        Cell::Text(&row.tags),
        Cell::Int(i64::from(row.attempt_index)),
        Cell::Text(row.phase.word()),
        Cell::Text(row.ownership.word()),
        Cell::Text(row.eligibility.word()),
        Cell::Text(row.public_state.word()),
        Cell::Text(row.attempt_state.word()),
        Cell::Text(row.blocking.word()),
        Cell::time(row.not_before),
        Cell::time(row.deadline_at),
        Cell::Int(i64::from(row.holds_key)),
        Cell::Int(row.version as i64),
        Cell::Int(last_event),
        Cell::Text(&row.raw_fields),
    ]
}

/// In the order of `MOVE_EXECUTIONS`: the first row and the last, what is said of them all, the
/// last event of the first, and how many events lie between one and the next.
pub(crate) type Moved<'r> = [Cell<'r>; 16];

pub(crate) fn moved_cells<'r>(
    row: &'r ExecutionRow,
    [result, result_apart]: [Cell<'r>; 2],
    place: Place,
) -> Moved<'r> {
    [
        Cell::Int(place.rowid),
        Cell::Int(place.rowid),
        Cell::Text(row.phase.word()),
        Cell::Text(row.ownership.word()),
        Cell::Text(row.eligibility.word()),
        Cell::Text(row.public_state.word()),
        Cell::Text(row.attempt_state.word()),
        Cell::Text(row.blocking.word()),
        Cell::time(row.started_at),
        Cell::time(row.terminal_at),
        result,
        result_apart,
        Cell::Int(row.lease_epoch as i64),
        Cell::Int(row.version as i64),
        Cell::Int(place.last_event),
        Cell::Int(0),
    ]
}

/// In the order of `REWRITE_EXECUTION`.
pub(crate) fn detail_cells(row: &ExecutionRow, place: Place) -> [Cell<'_>; 14] {
    [
        Cell::Int(place.rowid),
        Cell::Int(i64::from(row.priority)),
        Cell::Text(&row.tags),
        Cell::Int(i64::from(row.attempt_index)),
        Cell::time(row.not_before),
        Cell::time(row.deadline_at),
        Cell::text(row.failure_reason.as_ref()),
        Cell::text(row.failure_category.as_ref()),
        Cell::text(row.cancellation_reason.as_ref()),
        Cell::text(row.cancelled_by.as_ref()),
        Cell::Int(i64::from(row.retry_count)),
        Cell::Int(i64::from(row.reclaim_count)),
        Cell::Int(i64::from(row.holds_key)),
        Cell::Text(&row.raw_fields),
    ]
}
