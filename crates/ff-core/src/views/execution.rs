//! Executions, lanes and counts as users see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::contracts::{
    AttemptSnapshot, ExecutionPage, ExecutionSnapshot, ExecutionSummary, LaneCounts, LaneSnapshot,
    LeaseSnapshot, ProgressSnapshot,
};
use crate::engine_error::{EngineError, ValidationKind};
use crate::rows::{AttemptRow, ExecutionRow, LaneRow};
use crate::state::LifecyclePhase;
use crate::store::{CountRow, Damage};
use crate::types::{FlowId, LaneId, Namespace, TimestampMs};

pub fn snapshot(row: &ExecutionRow, attempts: &[AttemptRow], damage: &Damage) -> ExecutionSnapshot {
    let current = attempts.iter().find(|attempt| attempt.key.index == row.attempt_index);
    let running = current.filter(|_| row.phase == LifecyclePhase::Active);
    ExecutionSnapshot {
        execution_id: row.key.execution_id(),
        namespace: Namespace::new(&*row.namespace),
        lane_id: LaneId::new(&*row.lane),
        execution_kind: row.kind.to_string(),
        flow_id: row.flow_id.map(FlowId),
        public_state: row.public_state,
        priority: row.priority,
        tags: row.tags(),
        required_capabilities: tokens(&row.capability_class),
        creator_identity: row.creator.to_string(),
        idempotency_key: text(row.idempotency_key.as_ref()),
        resubmitted_from: row.resubmitted_from(),
        payload_encoding: text(row.payload_encoding.as_ref()),
        created_at: row.created_at,
        started_at: row.started_at,
        finished_at: row.terminal_at,
        not_before: row.not_before,
        deadline_at: row.deadline_at,
        retry_count: row.retry_count,
        reclaim_count: row.reclaim_count,
        replay_count: row.replay_count(),
        step_count: row.step_count().count,
        failure_reason: text(row.failure_reason.as_ref()),
        failure_category: text(row.failure_category.as_ref()),
        cancellation_reason: text(row.cancellation_reason.as_ref()),
        cancelled_by: text(row.cancelled_by.as_ref()),
        lease: running.and_then(lease),
        progress: current.and_then(progress),
        attempts: attempts.iter().map(attempt).collect(),
        version: row.version,
        unreadable: damage.executions.get(&row.key).cloned(),
    }
}

pub fn page(rows: &[ExecutionRow], more: bool, damage: &Damage) -> ExecutionPage {
    let next_cursor = rows.last().filter(|_| more).map(list_cursor);
    let executions = rows.iter().map(|row| summary(row, damage)).collect();
    ExecutionPage { executions, next_cursor }
}

/// The keyset position behind a row.
pub fn list_cursor(row: &ExecutionRow) -> String {
    place_cursor(row.created_at, row.key.id)
}

/// A place in a list that is ordered by creation.
pub(super) fn place_cursor(created_at: TimestampMs, id: Uuid) -> String {
    format!("ffl1.{}.{}", created_at.0, id.simple())
}

pub fn parse_list_cursor(text: &str) -> Result<(TimestampMs, Uuid), EngineError> {
    let parse = || {
        let (at, id) = text.strip_prefix("ffl1.")?.split_once('.')?;
        Some((TimestampMs(at.parse().ok()?), Uuid::try_parse(id).ok()?))
    };
    parse().ok_or_else(unreadable_cursor)
}

pub(super) fn unreadable_cursor() -> EngineError {
    EngineError::validation(ValidationKind::InvalidCursor, "the page cursor cannot be read")
}

pub fn lane(row: &LaneRow, damage: &Damage) -> LaneSnapshot {
    LaneSnapshot {
        lane_id: LaneId::new(&*row.lane),
        state: row.state,
        paused_reason: text(row.paused_reason.as_ref()),
        paused_by: text(row.paused_by.as_ref()),
        paused_at: row.paused_at,
        unreadable: damage.lanes.get(&row.lane).cloned(),
    }
}

pub fn counts(rows: Vec<CountRow>) -> Vec<LaneCounts> {
    let mut lanes: BTreeMap<(Arc<str>, Arc<str>), LaneCounts> = BTreeMap::new();
    for row in rows {
        let lane =
            lanes.entry((row.namespace.clone(), row.lane.clone())).or_insert_with(|| LaneCounts {
                namespace: Namespace::new(&*row.namespace),
                lane_id: LaneId::new(&*row.lane),
                counts: BTreeMap::new(),
            });
        *lane.counts.entry(row.state).or_default() += row.count;
    }
    lanes.into_values().collect()
}

fn summary(row: &ExecutionRow, damage: &Damage) -> ExecutionSummary {
    ExecutionSummary {
        execution_id: row.key.execution_id(),
        namespace: Namespace::new(&*row.namespace),
        lane_id: LaneId::new(&*row.lane),
        execution_kind: row.kind.to_string(),
        flow_id: row.flow_id.map(FlowId),
        public_state: row.public_state,
        priority: row.priority,
        created_at: row.created_at,
        finished_at: row.terminal_at,
        attempt_index: row.attempt_index,
        unreadable: damage.executions.get(&row.key).cloned(),
    }
}

fn attempt(row: &AttemptRow) -> AttemptSnapshot {
    AttemptSnapshot {
        attempt_index: row.key.index,
        attempt_type: row.attempt_type,
        lease_epoch: row.lease_epoch,
        worker_id: text(row.worker_id.as_ref()),
        worker_instance_id: text(row.worker_instance_id.as_ref()),
        started_at: row.started_at,
        ended_at: row.ended_at,
        outcome: row.outcome,
        failure_reason: text(row.failure_reason.as_ref()),
        failure_category: text(row.failure_category.as_ref()),
    }
}

fn lease(row: &AttemptRow) -> Option<LeaseSnapshot> {
    Some(LeaseSnapshot {
        worker_id: text(row.worker_id.as_ref()).unwrap_or_default(),
        worker_instance_id: row.holder()?.to_owned(),
        lease_epoch: row.lease_epoch,
        attempt_index: row.key.index,
        expires_at: row.lease_expires_at?,
    })
}

fn progress(row: &AttemptRow) -> Option<ProgressSnapshot> {
    let percent = row.progress_percent;
    let message = text(row.progress_message.as_ref());
    (percent.is_some() || message.is_some()).then_some(ProgressSnapshot { percent, message })
}

fn text(value: Option<&Arc<str>>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn tokens(class: &str) -> Vec<String> {
    class.split(',').filter(|token| !token.is_empty()).map(str::to_owned).collect()
}
