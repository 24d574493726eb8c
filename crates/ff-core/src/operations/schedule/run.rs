//! One run: the execution that a schedule submits.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::identity;
use crate::capability;
use crate::contracts::{OverlapPolicy, SubmitOutcome};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::execution::{Accepted, PreparedSubmission, accept, needs_of};
use crate::rows::{Blob, ExecutionRow, ScheduleRow, TimerKey, TimerKind, TimerRow};
use crate::store::{Change, Needs, World, Write};
use crate::types::{ExecutionId, ExecutionKey, TimestampMs};

/// How many runs a schedule keeps in mind.
const KEPT_RUNS: usize = 64;

/// Why a run is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run<'r> {
    Due(TimestampMs),
    Triggered { request: &'r str, at: TimestampMs },
}

impl Run<'_> {
    pub fn due(&self) -> TimestampMs {
        match self {
            Self::Due(due) | Self::Triggered { at: due, .. } => *due,
        }
    }

    /// Always the same for the same schedule, generation and due time.
    pub fn key(&self, row: &ScheduleRow) -> ExecutionKey {
        let schedule = row.key.id.to_string();
        let (created, generation) = (row.created_at.0.to_string(), row.generation.to_string());
        let id = match self {
            Self::Due(due) => {
                let due = due.0.to_string();
                identity(&["run", &schedule, &created, &generation, &due])
            }
            Self::Triggered { request, .. } => identity(&["trigger", &schedule, &created, request]),
        };
        ExecutionKey { partition: row.partition, id }
    }
}

pub(super) fn needs_of_run(needs: &mut Needs, row: &ScheduleRow, run: &Run<'_>) {
    if let Ok(item) = submission(row, run) {
        needs_of(needs, &item);
    }
}

/// Submits a run, or finds that it is there already.
pub(super) fn start(
    world: &World,
    change: &mut Change,
    accepted: &mut Accepted,
    row: &mut ScheduleRow,
    run: &Run<'_>,
) -> Result<ExecutionId, EngineError> {
    let item = submission(row, run)?;
    let deadline = item.deadline.map(|deadline| world.now.after(deadline));
    let id = match accept(world, change, accepted, &item, None, deadline) {
        SubmitOutcome::Created { execution_id, .. } => {
            row.started += 1;
            row.last_execution = Some(execution_id.as_str().into());
            execution_id
        }
        SubmitOutcome::Duplicate { execution_id } => execution_id,
        SubmitOutcome::Refused(error) => return Err(error),
    };
    Ok(id)
}

/// Keeps a run in mind until it has finished.
pub(super) fn remember(row: &mut ScheduleRow, run: &ExecutionId) {
    let running = &mut row.runs.0.running;
    if row.definition.0.overlap != OverlapPolicy::Allow && !running.contains(run) {
        running.push(run.clone());
        let excess = running.len().saturating_sub(KEPT_RUNS);
        running.drain(..excess);
    }
}

fn submission(row: &ScheduleRow, run: &Run<'_>) -> Result<PreparedSubmission, EngineError> {
    let template = &row.definition.0.template;
    let policy = template.policy.as_ref();
    let required = policy.map(|policy| &policy.routing_requirements.required_capabilities);
    let class = required.map(capability::class).transpose()?.unwrap_or_default();
    let mut tags = template.tags.clone();
    tags.insert("schedule.name".to_owned(), row.name.to_string());
    tags.insert("schedule.due_at".to_owned(), rfc3339(run.due()));
    let deadline = policy.and_then(|policy| policy.timeout_policy.execution_deadline_ms);
    let execution = ExecutionRow {
        policy: policy.map(|policy| json!(policy).to_string().into()),
        capability_class: class.into(),
        tags: json!(tags).to_string().into(),
        payload: Blob::Here(row.payload.clone()),
        payload_encoding: template.payload_encoding.as_deref().map(Into::into),
        priority: template.priority.clamp(limits::PRIORITY_MIN, limits::PRIORITY_MAX),
        namespace: row.namespace.clone(),
        lane: template.lane_id.as_str().into(),
        kind: template.execution_kind.as_str().into(),
        creator: format!("{CREATOR}{}", row.key.id).into(),
        raw_fields: "{}".into(),
        ..ExecutionRow::blank(run.key(row))
    };
    Ok(PreparedSubmission {
        row: execution,
        fresh_id: false,
        fingerprint: [0; 32],
        key_ttl: None,
        delay: None,
        deadline: deadline.map(Duration::from_millis),
    })
}

fn rfc3339(at: TimestampMs) -> String {
    let instant = jiff::Timestamp::from_millisecond(at.0);
    instant.map_or_else(|_| at.0.to_string(), |instant| instant.to_string())
}

/// What the creator of a run begins with; the schedule's id follows.
const CREATOR: &str = "schedule/";

/// The end of a run may be what its schedule waits for: it is looked at again. Whoever else calls
/// itself a schedule only causes a look that finds nothing.
pub(crate) fn wake(change: &mut Change, row: &ExecutionRow, now: TimestampMs) {
    let schedule = row.creator.strip_prefix(CREATOR).and_then(|id| Uuid::try_parse(id).ok());
    if let Some(subject) = schedule {
        let key = TimerKey { due_at: now, kind: TimerKind::Schedule, subject };
        change.timers.push(Write::Update(TimerRow { key, members: Vec::new() }));
    }
}
