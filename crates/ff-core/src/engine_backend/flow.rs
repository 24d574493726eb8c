//! Flows: graphs of executions, as callers hold them.

use std::time::Duration;

use super::{EngineBackend, flow_key, graph, parents, visible};
use crate::backend::{CancelFlowPolicy, CancelFlowWait, Handle};
use crate::contracts::{
    CancelFlowHeader, ExtendFlowArgs, FlowGraph, FlowGraphArgs, FlowPage, FlowSnapshot,
    ForkFlowArgs, ListFlowsArgs, ListOrder, ParentPage, ParentResultsArgs, ReplayFlowArgs,
    ReplayFlowResult, SubmitFlowArgs, SubmitFlowResult, WaitChildrenResult,
};
use crate::engine::{Engine, check_bytes, check_count, check_text};
use crate::engine::{prepare_extend_flow, prepare_submit_flow};
use crate::engine_error::{EngineError, StateKind};
use crate::limits;
use crate::operations::flow::{
    CancelledHeader, ReplayFlow, Rest, WaitChildren, backlog_members, members_going_on,
};
use crate::rows::{BacklogMemberRow, CascadeRow, EdgeKind, ExecutionRow, FlowKey, FlowRow, Record};
use crate::state::LifecyclePhase;
use crate::store::{Damage, FlowListQuery, ListQuery, Query, Scan};
use crate::types::{FlowId, Namespace};
use crate::views;
use async_trait::async_trait;

/// How long whoever waits for a cancellation trusts the bell, at first and in the end.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_secs(1);

#[async_trait]
pub trait FlowOperations: EngineBackend {
    /// Accepts a whole graph in one transaction, or refuses it with every reason.
    async fn submit_flow(&self, args: SubmitFlowArgs) -> Result<SubmitFlowResult, EngineError> {
        let engine = self.engine();
        let partition = |id: &FlowId| engine.store().flow_partition(id);
        let limits = &engine.config().limits;
        let operation = prepare_submit_flow(args, limits, self.scope(), partition)?;
        engine.run_as(self.caller(), operation).await
    }

    /// A running member adds nodes and edges to its own flow.
    async fn extend_flow(
        &self,
        handle: &Handle,
        args: ExtendFlowArgs,
    ) -> Result<SubmitFlowResult, EngineError> {
        let engine = self.engine();
        let rows = engine.query(Query::Execution(handle.key())).await?;
        let row = visible(self.scope(), &rows);
        let row = row.ok_or(EngineError::NotFound { entity: "execution" })?;
        let id = row.flow_id.ok_or(EngineError::State(StateKind::NotInFlow))?;
        let flow = flow_key(engine, &FlowId(id));
        let namespace = Namespace::new(&*row.namespace);
        let limits = &engine.config().limits;
        let operation = prepare_extend_flow(handle, args, flow, &namespace, limits)?;
        engine.run_as(self.caller(), operation).await
    }

    /// The holder puts its execution down until the nodes that it has added have ended.
    async fn wait_children(&self, handle: &Handle) -> Result<WaitChildrenResult, EngineError> {
        self.engine().run_as(self.caller(), WaitChildren { handle: handle.clone() }).await
    }

    /// Runs a finished node and everything that depends on it again, in place.
    async fn replay_flow_from(
        &self,
        args: ReplayFlowArgs,
    ) -> Result<ReplayFlowResult, EngineError> {
        let execution = args.execution_id.key();
        let operation = ReplayFlow { execution, max_nodes: limits::FLOW_REPLAY_NODES };
        self.engine().run_as(self.caller(), operation).await
    }

    /// Runs a node and everything that depends on it in a flow of their own; the old one stays.
    async fn fork_flow(&self, args: ForkFlowArgs) -> Result<SubmitFlowResult, EngineError> {
        let engine = self.engine();
        let bytes = args.input_payload.as_ref().map_or(0, Vec::len);
        check_bytes("payload", bytes, &engine.config().limits)?;
        check_text("creator identity", &args.creator_identity, 0, limits::NAME_BYTES)?;
        let operation = super::fork::prepare(engine, self.scope(), args).await?;
        engine.run_as(self.caller(), operation).await
    }

    /// Everything about a flow except its graph.
    async fn describe_flow(&self, id: &FlowId) -> Result<Option<FlowSnapshot>, EngineError> {
        let rows = self.engine().query(Query::Flow(flow_key(self.engine(), id))).await?;
        let flow = rows.flows.first().filter(|flow| in_scope(self.scope(), flow));
        Ok(flow.map(|flow| views::flow(flow, &rows.counts, &rows.damage)))
    }

    async fn list_flows(&self, args: ListFlowsArgs) -> Result<FlowPage, EngineError> {
        let limit = if args.limit == 0 { 100 } else { args.limit };
        check_count("flows", limit, limits::PAGE)?;
        if let (Some(scope), Some(wanted)) = (self.scope(), &args.namespace)
            && scope != wanted
        {
            return Err(EngineError::invalid("the filter names a foreign namespace"));
        }
        let namespace = self.scope().cloned().or(args.namespace);
        let query = FlowListQuery {
            namespace: namespace.map(|namespace| namespace.0.into()),
            states: views::stored_states(&args.statuses),
            after: args.cursor.as_deref().map(views::parse_list_cursor).transpose()?,
            // One more than asked for tells whether there is more.
            limit: limit + 1,
        };
        let mut rows = self.engine().query(Query::Flows(query)).await?;
        let more = rows.flows.len() > limit;
        rows.flows.truncate(limit);
        Ok(views::flow_page(&rows.flows, more, &rows.damage))
    }

    /// A page of a flow's nodes, each with what it waits for and the edges into it. All pages
    /// together are the whole graph.
    async fn flow_graph(&self, args: FlowGraphArgs) -> Result<FlowGraph, EngineError> {
        let engine = self.engine();
        let limit = if args.limit == 0 { limits::PAGE } else { args.limit };
        check_count("nodes", limit, limits::PAGE)?;
        if self.describe_flow(&args.flow_id).await?.is_none() {
            return Err(EngineError::NotFound { entity: "flow" });
        }
        let flow = flow_key(engine, &args.flow_id);
        graph::page(engine, flow, args.cursor.as_deref(), limit).await
    }

    /// A page of the parents of a member and what they ended with.
    async fn parent_results(&self, args: ParentResultsArgs) -> Result<ParentPage, EngineError> {
        let engine = self.engine();
        let limit = if args.limit == 0 { 100 } else { args.limit };
        check_count("parents", limit, limits::PAGE)?;
        let rows = engine.query(Query::Execution(args.execution_id.key())).await?;
        let row = visible(self.scope(), &rows);
        let row = row.ok_or(EngineError::NotFound { entity: "execution" })?;
        let Some(id) = row.flow_id else { return Ok(parents::none()) };
        let flow = flow_key(engine, &FlowId(id));
        parents::page(engine, (flow, row.key.id), EdgeKind::Depends, args.after, limit).await
    }
}

impl<B: EngineBackend + ?Sized> FlowOperations for B {}

fn in_scope(scope: Option<&Namespace>, flow: &FlowRow) -> bool {
    scope.is_none_or(|scope| scope.as_str() == &*flow.namespace)
}

/// Waits until the cancellation has reached every member that it is to reach.
pub(super) async fn wait_for_members(
    engine: &Engine,
    flow: FlowKey,
    policy: CancelFlowPolicy,
    wait: CancelFlowWait,
) -> Result<(), EngineError> {
    let patience = match wait {
        CancelFlowWait::NoWait => return Ok(()),
        CancelFlowWait::WaitTimeout(patience) => patience,
        CancelFlowWait::WaitIndefinite => limits::HORIZON,
    };
    let quiet = async {
        let mut bell = engine.store().listen().events();
        // What is left to do may end without an event, so it also looks without one, ever rarer.
        let mut patience = FIRST_LOOK;
        loop {
            bell.borrow_and_update();
            if is_quiet(engine, flow, policy).await? {
                return Ok(());
            }
            let _ = tokio::time::timeout(patience, bell.changed()).await;
            patience = LAST_LOOK.min(patience * 2);
        }
    };
    match tokio::time::timeout(patience, quiet).await {
        Ok(outcome) => outcome,
        Err(_) => Err(EngineError::Timeout { op: "cancel_flow", elapsed: patience }),
    }
}

async fn is_quiet(
    engine: &Engine,
    flow: FlowKey,
    policy: CancelFlowPolicy,
) -> Result<bool, EngineError> {
    let keys = vec![CascadeRow::erase_key(&members_going_on(flow))];
    let going_on = engine.query(Query::Records { keys, scans: Vec::<Scan>::new() }).await?;
    if !going_on.records.is_empty() {
        return Ok(false);
    }
    let query = Query::UnfinishedMembers { flow, limit: limits::PAGE };
    let members = engine.query(query).await?.executions;
    Ok(match policy {
        CancelFlowPolicy::CancelAll => members.is_empty(),
        CancelFlowPolicy::CancelPending | CancelFlowPolicy::FlowOnly => {
            !members.iter().any(|row| row.phase == LifecyclePhase::Active)
        }
    })
}

/// The members of a flow that somebody wants, read page by page.
pub(super) async fn members(
    engine: &Engine,
    flow: FlowKey,
    wanted: impl Fn(&ExecutionRow) -> bool,
) -> Result<(Vec<ExecutionRow>, Damage), EngineError> {
    let (mut found, mut damage) = (Vec::new(), Damage::default());
    let mut after = None;
    loop {
        let list = ListQuery {
            flow_id: Some(flow.id),
            order: ListOrder::OldestFirst,
            after,
            limit: limits::PAGE,
            ..ListQuery::default()
        };
        let rows = engine.query(Query::Executions(list)).await?;
        damage.executions.extend(rows.damage.executions);
        let page = rows.executions;
        let last = page.len() < limits::PAGE;
        after = page.last().map(|row| (row.created_at, row.key.id));
        found.extend(page.into_iter().filter(&wanted));
        if last {
            return Ok((found, damage));
        }
    }
}

/// Names the members that a header's cancellation did not look at itself, because they are many.
pub(super) async fn name_the_rest(
    engine: &Engine,
    flow: FlowKey,
    cancelled: CancelledHeader,
) -> Result<CancelFlowHeader, EngineError> {
    let CancelledHeader { mut header, rest } = cancelled;
    let Some(rest) = rest else { return Ok(header) };
    let (members, _) = members(engine, flow, |row| rest.names(row)).await?;
    // After the members: whoever is reached meanwhile is found in one place or the other.
    let backlog = match rest {
        Rest::Unreached => {
            let query = Query::Records { keys: Vec::new(), scans: vec![backlog_members(flow)] };
            let rows = engine.query(query).await?;
            rows.records::<BacklogMemberRow>().map_err(|error| engine.store_error(error))?
        }
        Rest::Cancelled | Rest::Everybody => Vec::new(),
    };
    let (CancelFlowHeader::Cancelled { member_execution_ids: ids, .. }
    | CancelFlowHeader::AlreadyTerminal { member_execution_ids: ids, .. }) = &mut header;
    ids.extend(members.iter().map(|row| row.key.execution_id().as_str().to_owned()));
    ids.extend(backlog.iter().map(|row| (*row.key.execution_id).to_owned()));
    ids.sort_unstable();
    ids.dedup();
    Ok(header)
}
