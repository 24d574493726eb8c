//! The columns that most transactions write, in groups that mostly agree over the rows of a batch.

use ff_core::rows::spelling::Spelling;
use ff_core::rows::{AttemptRow, Blob, EventRow, ExecutionRow, TimerRow};
use ff_core::types::TimestampMs;

use crate::binding::{Columns, Group, Json, Viewer};
use crate::columns::narrow;

/// Columns of new executions that nobody shares.
pub(crate) struct NewEach;
/// What executions of one lane that were submitted together have in common.
pub(crate) struct NewShared;
/// What submissions may leave out, and mostly do.
pub(crate) struct NewOptions;
/// What finds a row. It always comes in arrays, because a plan that knew a part of it for all rows
/// would begin with every row that has this part.
pub(crate) struct Key;
/// What every transition of an execution moves.
pub(crate) struct Moved;
/// What depends on when the execution was claimed and by which transaction.
pub(crate) struct MovedOwn;
/// What only some transitions change.
pub(crate) struct Detail;
/// Of that, what is JSON.
pub(crate) struct Documents;
pub(crate) struct Attempt;
/// What depends on whose attempt it is and since when.
pub(crate) struct AttemptOwn;
pub(crate) struct Timer;
pub(crate) struct EventEach;
/// What happened.
pub(crate) struct EventShared;
/// Where it happened.
pub(crate) struct EventHome;

/// A row and, if it was not read, the transaction that must have left it.
pub(crate) struct Unsure<'r, R> {
    pub row: &'r R,
    pub writer: Option<&'r str>,
}

impl<R> Clone for Unsure<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Unsure<'_, R> {}

/// An event and its place in the log: counted from the end of its shard.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'r> {
    pub event: &'r EventRow,
    pub seq: i64,
    pub shard: u16,
    pub partition: u16,
}

type Execution<'r> = Unsure<'r, ExecutionRow>;
type Tried<'r> = Unsure<'r, AttemptRow>;

impl<'r> Group<'r, &'r ExecutionRow> for NewEach {
    const COLUMNS: Columns = &[("execution_id", "uuid"), ("payload", "bytea")];

    fn show(viewer: &mut impl Viewer<'r, &'r ExecutionRow>) {
        viewer.cell(|row| row.key.id);
        viewer.cell(|row| bytes(&row.payload));
    }
}

impl<'r> Group<'r, &'r ExecutionRow> for NewShared {
    const COLUMNS: Columns = &[
        ("partition_key", "int2"),
        ("namespace", "text"),
        ("lane_id", "text"),
        ("execution_kind", "text"),
        ("created_at_ms", "int8"),
        ("lifecycle_phase", "text"),
        ("eligibility_state", "text"),
        ("public_state", "text"),
        ("blocking_reason", "text"),
        ("version", "int8"),
        ("announced", "bool"),
    ];

    fn show(viewer: &mut impl Viewer<'r, &'r ExecutionRow>) {
        viewer.cell(|row| narrow(row.key.partition));
        viewer.cell(|row| &*row.namespace);
        viewer.cell(|row| &*row.lane);
        viewer.cell(|row| &*row.kind);
        viewer.cell(|row| row.created_at.0);
        viewer.cell(|row| row.phase.word());
        viewer.cell(|row| row.eligibility.word());
        viewer.cell(|row| row.public_state.word());
        viewer.cell(|row| row.blocking.word());
        viewer.cell(|row| row.version as i64);
        // Only what another transaction than the engine's own brings is left to be announced.
        viewer.cell(|row| row.version > 0);
    }
}

impl<'r> Group<'r, &'r ExecutionRow> for NewOptions {
    const COLUMNS: Columns = &[
        ("flow_id", "uuid"),
        ("payload_encoding", "text"),
        ("creator_identity", "text"),
        ("idempotency_key", "text"),
        ("policy", "text"),
        ("required_capabilities", "text"),
        ("priority", "int4"),
        ("tags", "jsonb"),
        ("not_before_ms", "int8"),
        ("deadline_at_ms", "int8"),
        ("holds_key", "bool"),
        ("raw_fields", "jsonb"),
    ];

    fn show(viewer: &mut impl Viewer<'r, &'r ExecutionRow>) {
        viewer.cell(|row| row.flow_id);
        viewer.cell(|row| row.payload_encoding.as_deref());
        viewer.cell(|row| &*row.creator);
        viewer.cell(|row| row.idempotency_key.as_deref());
        viewer.cell(|row| row.policy.as_deref());
        viewer.cell(|row| &*row.capability_class);
        viewer.cell(|row| row.priority);
        viewer.cell(|row| Json(&row.tags));
        viewer.cell(|row| ms(row.not_before));
        viewer.cell(|row| ms(row.deadline_at));
        viewer.cell(|row| row.holds_key);
        viewer.cell(|row| Json(&row.raw_fields));
    }
}

impl<'r> Group<'r, Execution<'r>> for Key {
    const COLUMNS: Columns = &[("partition_key", "int2"), ("execution_id", "uuid")];

    fn show(viewer: &mut impl Viewer<'r, Execution<'r>>) {
        viewer.cell(|unsure| narrow(unsure.row.key.partition));
        viewer.cell(|unsure| unsure.row.key.id);
    }
}

impl<'r> Group<'r, Execution<'r>> for Moved {
    const COLUMNS: Columns = &[
        ("lifecycle_phase", "text"),
        ("ownership_state", "text"),
        ("eligibility_state", "text"),
        ("public_state", "text"),
        ("attempt_state", "text"),
        ("blocking_reason", "text"),
        ("terminal_at_ms", "int8"),
        ("lease_epoch", "int8"),
        ("version", "int8"),
    ];

    fn show(viewer: &mut impl Viewer<'r, Execution<'r>>) {
        viewer.cell(|unsure| unsure.row.phase.word());
        viewer.cell(|unsure| unsure.row.ownership.word());
        viewer.cell(|unsure| unsure.row.eligibility.word());
        viewer.cell(|unsure| unsure.row.public_state.word());
        viewer.cell(|unsure| unsure.row.attempt_state.word());
        viewer.cell(|unsure| unsure.row.blocking.word());
        viewer.cell(|unsure| ms(unsure.row.terminal_at));
        viewer.cell(|unsure| unsure.row.lease_epoch as i64);
        viewer.cell(|unsure| unsure.row.version as i64);
    }
}

impl<'r> Group<'r, Execution<'r>> for MovedOwn {
    const COLUMNS: Columns = &[("started_at_ms", "int8"), ("result", "bytea"), ("writer", "text")];

    fn show(viewer: &mut impl Viewer<'r, Execution<'r>>) {
        viewer.cell(|unsure| ms(unsure.row.started_at));
        viewer.cell(|unsure| bytes(&unsure.row.result));
        viewer.cell(|unsure| unsure.writer);
    }
}

impl<'r> Group<'r, Execution<'r>> for Detail {
    const COLUMNS: Columns = &[
        ("priority", "int4"),
        ("attempt_index", "int4"),
        ("not_before_ms", "int8"),
        ("deadline_at_ms", "int8"),
        ("failure_reason", "text"),
        ("failure_category", "text"),
        ("cancellation_reason", "text"),
        ("cancelled_by", "text"),
        ("retry_count", "int4"),
        ("reclaim_count", "int4"),
        ("holds_key", "bool"),
    ];

    fn show(viewer: &mut impl Viewer<'r, Execution<'r>>) {
        viewer.cell(|unsure| unsure.row.priority);
        viewer.cell(|unsure| unsure.row.attempt_index as i32);
        viewer.cell(|unsure| ms(unsure.row.not_before));
        viewer.cell(|unsure| ms(unsure.row.deadline_at));
        viewer.cell(|unsure| unsure.row.failure_reason.as_deref());
        viewer.cell(|unsure| unsure.row.failure_category.as_deref());
        viewer.cell(|unsure| unsure.row.cancellation_reason.as_deref());
        viewer.cell(|unsure| unsure.row.cancelled_by.as_deref());
        viewer.cell(|unsure| unsure.row.retry_count as i32);
        viewer.cell(|unsure| unsure.row.reclaim_count as i32);
        viewer.cell(|unsure| unsure.row.holds_key);
    }
}

impl<'r> Group<'r, Execution<'r>> for Documents {
    const COLUMNS: Columns = &[("tags", "jsonb"), ("raw_fields", "jsonb")];

    fn show(viewer: &mut impl Viewer<'r, Execution<'r>>) {
        viewer.cell(|unsure| Json(&unsure.row.tags));
        viewer.cell(|unsure| Json(&unsure.row.raw_fields));
    }
}

impl<'r> Group<'r, Tried<'r>> for Key {
    const COLUMNS: Columns =
        &[("partition_key", "int2"), ("execution_id", "uuid"), ("attempt_index", "int4")];

    fn show(viewer: &mut impl Viewer<'r, Tried<'r>>) {
        viewer.cell(|unsure| narrow(unsure.row.key.execution.partition));
        viewer.cell(|unsure| unsure.row.key.execution.id);
        viewer.cell(|unsure| unsure.row.key.index as i32);
    }
}

impl<'r> Group<'r, Tried<'r>> for Attempt {
    const COLUMNS: Columns = &[
        ("attempt_type", "text"),
        ("lease_epoch", "int8"),
        ("terminal_at_ms", "int8"),
        ("outcome", "text"),
        ("failure_reason", "text"),
        ("failure_category", "text"),
        ("retry_at_ms", "int8"),
        ("progress_pct", "int4"),
        ("progress_message", "text"),
    ];

    fn show(viewer: &mut impl Viewer<'r, Tried<'r>>) {
        viewer.cell(|unsure| unsure.row.attempt_type.word());
        viewer.cell(|unsure| unsure.row.lease_epoch as i64);
        viewer.cell(|unsure| ms(unsure.row.ended_at));
        viewer.cell(|unsure| unsure.row.outcome.map(Spelling::word));
        viewer.cell(|unsure| unsure.row.failure_reason.as_deref());
        viewer.cell(|unsure| unsure.row.failure_category.as_deref());
        viewer.cell(|unsure| ms(unsure.row.retry_at));
        viewer.cell(|unsure| unsure.row.progress_percent.map(i32::from));
        viewer.cell(|unsure| unsure.row.progress_message.as_deref());
    }
}

impl<'r> Group<'r, Tried<'r>> for AttemptOwn {
    const COLUMNS: Columns = &[
        ("worker_id", "text"),
        ("worker_instance_id", "text"),
        ("lease_expires_at_ms", "int8"),
        ("started_at_ms", "int8"),
        ("lease_nonce", "int8"),
        ("writer", "text"),
    ];

    fn show(viewer: &mut impl Viewer<'r, Tried<'r>>) {
        viewer.cell(|unsure| unsure.row.worker_id.as_deref());
        viewer.cell(|unsure| unsure.row.worker_instance_id.as_deref());
        viewer.cell(|unsure| ms(unsure.row.lease_expires_at));
        viewer.cell(|unsure| ms(unsure.row.started_at));
        viewer.cell(|unsure| unsure.row.lease_nonce as i64);
        viewer.cell(|unsure| unsure.writer);
    }
}

impl<'r> Group<'r, &'r TimerRow> for Timer {
    const COLUMNS: Columns =
        &[("due_at_ms", "int8"), ("kind", "text"), ("subject", "uuid"), ("members", "bytea")];

    fn show(viewer: &mut impl Viewer<'r, &'r TimerRow>) {
        viewer.cell(|row| row.key.due_at.0);
        viewer.cell(|row| row.key.kind.word());
        viewer.cell(|row| row.key.subject);
        viewer.cell(|row| row.encode_members());
    }
}

impl<'r> Group<'r, Placed<'r>> for EventEach {
    const COLUMNS: Columns = &[("seq", "int8"), ("execution_id", "uuid")];

    fn show(viewer: &mut impl Viewer<'r, Placed<'r>>) {
        viewer.cell(|placed| placed.seq);
        viewer.cell(|placed| placed.event.execution.map(|key| key.id));
    }
}

impl<'r> Group<'r, Placed<'r>> for EventShared {
    const COLUMNS: Columns = &[
        ("at_ms", "int8"),
        ("event_type", "text"),
        ("flow_id", "uuid"),
        ("from_state", "text"),
        ("to_state", "text"),
        ("version", "int8"),
        ("attempt_index", "int4"),
        ("lease_epoch", "int8"),
        ("lease_ended", "bool"),
        ("by_whom", "text"),
        ("details", "jsonb"),
    ];

    fn show(viewer: &mut impl Viewer<'r, Placed<'r>>) {
        viewer.cell(|placed| placed.event.at.0);
        viewer.cell(|placed| placed.event.event_type.as_str());
        viewer.cell(|placed| placed.event.flow_id);
        viewer.cell(|placed| placed.event.from.map(Spelling::word));
        viewer.cell(|placed| placed.event.to.map(Spelling::word));
        viewer.cell(|placed| placed.event.version as i64);
        viewer.cell(|placed| placed.event.attempt_index as i32);
        viewer.cell(|placed| placed.event.lease_epoch as i64);
        viewer.cell(|placed| placed.event.lease_ended);
        viewer.cell(|placed| placed.event.by.as_deref());
        viewer.cell(|placed| placed.event.details.as_deref().map(Json));
    }
}

impl<'r> Group<'r, Placed<'r>> for EventHome {
    const COLUMNS: Columns = &[
        ("shard", "int2"),
        ("partition_key", "int2"),
        ("namespace", "text"),
        ("lane_id", "text"),
        ("execution_kind", "text"),
    ];

    fn show(viewer: &mut impl Viewer<'r, Placed<'r>>) {
        viewer.cell(|placed| narrow(placed.shard));
        viewer.cell(|placed| narrow(placed.partition));
        viewer.cell(|placed| &*placed.event.namespace);
        viewer.cell(|placed| placed.event.lane.as_deref());
        viewer.cell(|placed| placed.event.kind.as_deref());
    }
}

pub(crate) fn bytes(blob: &Blob) -> Option<&[u8]> {
    match blob {
        Blob::Here(bytes) => Some(bytes),
        Blob::Absent | Blob::Apart => None,
    }
}

fn ms(at: Option<TimestampMs>) -> Option<i64> {
    at.map(|at| at.0)
}
