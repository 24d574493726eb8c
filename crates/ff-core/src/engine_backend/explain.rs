//! Why an execution is not running: what is read to tell it.

use std::sync::Arc;

use super::{check_readable, flow_key, limit, parents, suspension, visible};
use crate::contracts::Explanation;
use crate::engine::Engine;
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::flow::children_of;
use crate::rows::{
    ChildrenRow, EdgeGroupKey, EdgeGroupRow, EdgeKind, ExecutionRow, FlowKey, FlowRow, Record,
    WorkerRow, values,
};
use crate::store::{Query, Scan};
use crate::types::{ExecutionId, FlowId, Namespace, TimestampMs};
use crate::views::{self, Dependencies, SHOWN_OPEN};

/// So many pages of parents are looked through for those that have not ended.
const PAGES: usize = 10;

pub(super) async fn explain(
    engine: &Engine,
    scope: Option<&Namespace>,
    id: &ExecutionId,
) -> Result<Explanation, EngineError> {
    let rows = engine.query(Query::Execution(id.key())).await?;
    let row = visible(scope, &rows);
    let row = row.ok_or(EngineError::NotFound { entity: "execution" })?;
    check_readable(&rows.damage)?;
    let (lane, flow) = (rows.lanes.first(), rows.flows.first());
    // Whatever else a member of an ended flow waits for, it is not handed out after that.
    if !flow.is_some_and(|flow| flow.state.is_finished()) {
        if let Some(wait) = views::waits_for_limit(row) {
            return limit::explain(engine, row, wait).await;
        }
        if let Some(waiting) = suspension::explain(engine, row, rows.now).await? {
            return Ok(waiting);
        }
        if row.waits_for_members() {
            let waits = dependencies(engine, row, flow).await?;
            return Ok(views::explain_dependencies(row, &waits));
        }
    }
    let workers = match row.is_claimable() {
        true => live_workers(engine, row, rows.now).await?,
        false => Vec::new(),
    };
    Ok(views::explain(row, &rows.attempts, lane, flow, &workers, rows.now))
}

async fn dependencies(
    engine: &Engine,
    row: &ExecutionRow,
    flow: Option<&FlowRow>,
) -> Result<Dependencies, EngineError> {
    let Some(id) = row.flow_id else { return Ok(Dependencies::default()) };
    let flow = flow.map_or_else(|| flow_key(engine, &FlowId(id)), |flow| flow.key);
    let group = EdgeGroupKey { flow, downstream: row.key.id };
    let keys = vec![EdgeGroupRow::erase_key(&group), ChildrenRow::erase_key(&children_of(row.key))];
    let rows = engine.query(Query::Records { keys, scans: Vec::new() }).await?;
    let mut groups = rows.records::<EdgeGroupRow>().map_err(|error| engine.store_error(error))?;
    let mut children = rows.records::<ChildrenRow>().map_err(|error| engine.store_error(error))?;
    children.retain(|children| children.waiting);
    let kind = if children.is_empty() { EdgeKind::Depends } else { EdgeKind::Awaits };
    let mut waits =
        Dependencies { group: groups.pop(), children: children.pop(), open: Vec::new() };
    look_for_open(engine, (flow, row), kind, &mut waits).await?;
    Ok(waits)
}

/// Finds the first of those that a member waits for which have not ended.
async fn look_for_open(
    engine: &Engine,
    (flow, row): (FlowKey, &ExecutionRow),
    kind: EdgeKind,
    waits: &mut Dependencies,
) -> Result<(), EngineError> {
    let mut after = None;
    for _ in 0..PAGES {
        let page = parents::page(engine, (flow, row.key.id), kind, after, limits::PAGE).await?;
        let open = page.parents.into_iter().filter(|parent| !parent.public_state.is_finished());
        waits.open.extend(open.take(SHOWN_OPEN - waits.open.len()));
        after = page.next_after;
        if after.is_none() || waits.open.len() == SHOWN_OPEN {
            break;
        }
    }
    Ok(())
}

/// Those who might claim the execution, if they offered what it requires.
async fn live_workers(
    engine: &Engine,
    row: &ExecutionRow,
    now: TimestampMs,
) -> Result<Vec<WorkerRow>, EngineError> {
    let of_all: Arc<str> = "".into();
    let scan = |namespace: &Arc<str>| Scan::of::<WorkerRow>(values![*namespace]).limit(usize::MAX);
    let scans = vec![scan(&row.namespace), scan(&of_all)];
    let rows = engine.query(Query::Records { keys: Vec::new(), scans }).await?;
    let mut workers = rows.records::<WorkerRow>().map_err(|error| engine.store_error(error))?;
    workers.retain(|worker| worker.is_alive(now) && worker.lanes.0.contains(&*row.lane));
    Ok(workers)
}
