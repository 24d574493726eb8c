//! Reads what is more than one execution, and what an execution has left behind.

use std::collections::BTreeMap;

use anyhow::Context as _;
use ff_core::contracts::{
    BulkAction, BulkSnapshot, BulkState, ExecutionSnapshot, FlowGraphArgs, ListBulkArgs,
    ListFlowsArgs, ReadStreamArgs, StreamCursor,
};
use ff_core::engine_backend::{
    BulkOperations, EngineBackend, FlowOperations, ScheduleOperations, StepOperations,
    StreamOperations,
};
use ff_core::types::{ExecutionId, FlowId};
use uuid::Uuid;

use super::{FinalFlow, FinalSchedule, FinalSweep, Spoken};
use crate::history::{self, Standing};
use crate::workload::durable::spoken;
use crate::workload::{limits, many};

const PAGE: usize = ff_core::limits::PAGE;

pub async fn flows(backend: &dyn EngineBackend) -> anyhow::Result<BTreeMap<Uuid, FinalFlow>> {
    let mut found = BTreeMap::new();
    let mut cursor = None;
    loop {
        let list = ListFlowsArgs { cursor, limit: PAGE, ..ListFlowsArgs::default() };
        let page = backend.list_flows(list).await?;
        for summary in page.flows {
            found.insert(summary.flow_id.0, flow(backend, summary.flow_id).await?);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// The graphs of the load are small enough for one page.
async fn flow(backend: &dyn EngineBackend, flow_id: FlowId) -> anyhow::Result<FinalFlow> {
    let seen = backend.describe_flow(&flow_id).await?;
    let seen = seen.context("a flow is listed but not there")?;
    let graph = backend.flow_graph(FlowGraphArgs { flow_id, cursor: None, limit: 0 }).await?;
    let groups = graph
        .nodes
        .into_iter()
        .filter_map(|node| Some((node.execution_id.as_str().to_owned(), node.group?)));
    Ok(FinalFlow { status: seen.status, counts: seen.counts, groups: groups.collect() })
}

/// Those that were declared.
pub async fn limits(backend: &dyn EngineBackend) -> BTreeMap<&'static str, Standing> {
    let standings = [
        ("budget", limits::budget(backend, limits::BUDGET).await),
        ("ledger", limits::budget(backend, limits::LEDGER).await),
        ("quota", limits::quota(backend).await),
    ];
    standings.into_iter().filter_map(|(name, standing)| Some((name, standing.ok()?))).collect()
}

pub async fn schedules(
    backend: &dyn EngineBackend,
) -> anyhow::Result<BTreeMap<String, FinalSchedule>> {
    let mut found = BTreeMap::new();
    for name in [many::STEADY, many::ALONE] {
        let Some(seen) = backend.describe_schedule(&many::schedule(name), 0).await? else {
            continue;
        };
        let last = FinalSchedule {
            created_at: seen.created_at.0,
            last_due: seen.last_due.map(|due| due.0),
            started: seen.started,
            overlapped: seen.overlapped,
            buffered: seen.buffered.is_some(),
        };
        found.insert(name.to_owned(), last);
    }
    Ok(found)
}

pub async fn sweeps(backend: &dyn EngineBackend) -> anyhow::Result<BTreeMap<String, FinalSweep>> {
    let mut found = BTreeMap::new();
    let mut cursor = None;
    loop {
        let page = backend.list_bulk(ListBulkArgs { cursor, limit: PAGE }).await?;
        found.extend(page.operations.into_iter().filter_map(sweep));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

fn sweep(seen: BulkSnapshot) -> Option<(String, FinalSweep)> {
    let (mark, cancels) = match seen.action {
        BulkAction::Cancel { reason } => (reason, true),
        BulkAction::SetTags { mut tags } => (tags.remove(many::TAG)??, false),
        _ => return None,
    };
    let last = FinalSweep {
        lane: seen.filter.lane_id?.as_str().to_owned(),
        cancels,
        created_from: seen.filter.created_from?.0,
        created_at: seen.created_at.0,
        finished: seen.state == BulkState::Finished,
        matched: seen.matched,
        done: seen.done,
        changed: seen.changed,
    };
    Some((mark, last))
}

/// What the tags of an execution say about the schedule that started it.
pub fn due(snapshot: &ExecutionSnapshot) -> Option<(String, i64)> {
    let name = snapshot.tags.get("schedule.name")?;
    let at: jiff::Timestamp = snapshot.tags.get("schedule.due_at")?.parse().ok()?;
    Some((name.clone(), at.as_millisecond()))
}

pub async fn steps(
    backend: &dyn EngineBackend,
    snapshot: &ExecutionSnapshot,
) -> anyhow::Result<Vec<(String, u64)>> {
    if snapshot.step_count == 0 {
        return Ok(Vec::new());
    }
    let steps = backend.list_steps(&snapshot.execution_id, 0, PAGE).await?;
    Ok(steps.into_iter().map(|step| (step.name, history::hash(&step.result))).collect())
}

/// What each attempt said.
pub async fn frames(
    backend: &dyn EngineBackend,
    id: &ExecutionId,
) -> anyhow::Result<BTreeMap<u32, Vec<Spoken>>> {
    let snapshot = backend.describe_execution(id).await?;
    let snapshot = snapshot.context("an execution is gone while it is looked at")?;
    let mut found = BTreeMap::new();
    for attempt in &snapshot.attempts {
        let mut args = ReadStreamArgs::new(id.clone());
        args.attempt_index = Some(attempt.attempt_index);
        let mut said = Vec::new();
        loop {
            let page = backend.read_stream(args.clone()).await?;
            for frame in &page.frames {
                // What nobody in the load says belongs to no call.
                let (append_id, at) = spoken(&frame.payload).unwrap_or_default();
                said.push(Spoken { sequence: frame.id.sequence, append_id, at });
                args.from = StreamCursor::After(frame.id);
            }
            if page.frames.is_empty() {
                break;
            }
        }
        if !said.is_empty() {
            found.insert(attempt.attempt_index, said);
        }
    }
    Ok(found)
}
