//! Graphs of executions: submitting, growing, cancelling and reading them.

use axum::http::Method;
use ff_api::{
    CancelFlowAnswer, CancelFlowRequest, ExtendFlowRequest, FlowNodeRequest, ForkFlowRequest,
    Parent, ParentsAnswer, ReplayRequest, Scope, Span, SubmitFlowRequest, WaitChildrenRequest,
    bytes,
};
use ff_core::backend::CancelFlowWait;
use ff_core::contracts::{
    CancelFlowResult, ExtendFlowArgs, FlowGraph, FlowGraphArgs, FlowNode, FlowPage, FlowSnapshot,
    FlowStatus, ForkFlowArgs, ListFlowsArgs, ParentResultsArgs, ReplayFlowArgs, ReplayFlowResult,
    SubmitFlowArgs, SubmitFlowResult, WaitChildrenResult,
};
use ff_core::engine_backend::FlowOperations;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::call::{Answer, Call};
use crate::poll;
use crate::refusal::{Answered, Refusal};
use crate::route::{LONGEST_WAIT, MIB, Nothing, Route};
use crate::wire::{self, Submitter};

pub fn routes() -> Vec<Route> {
    let mut routes = write_routes();
    routes.extend(read_routes());
    routes
}

fn write_routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/flows"),
            ("submit_flow", "Accepts a whole graph, or refuses it with every reason."),
            Scope::Submit,
            submit,
        )
        .body(16 * MIB)
        .remembered_by_engine()
        .success(201),
        Route::new(
            (Method::POST, "/v1/flows/{flow_id}/cancel"),
            ("cancel_flow", "Cancels a flow and the members that the policy names."),
            Scope::Operate,
            cancel,
        )
        .waits(),
        Route::new(
            (Method::POST, "/v1/leases/extend-flow"),
            ("extend_flow", "A running member adds nodes and edges to its own flow."),
            Scope::Work,
            extend,
        )
        .body(16 * MIB),
        Route::new(
            (Method::POST, "/v1/leases/wait-children"),
            ("wait_children", "Puts the execution down until the nodes that it added have ended."),
            Scope::Work,
            wait_children,
        ),
        Route::new(
            (Method::POST, "/v1/executions/{execution_id}/replay-flow"),
            ("replay_flow_from", "Runs a finished node and all that depends on it again."),
            Scope::Operate,
            replay,
        ),
        Route::new(
            (Method::POST, "/v1/executions/{execution_id}/fork-flow"),
            ("fork_flow", "Runs a node and all that depends on it in a flow of their own."),
            Scope::Operate,
            fork,
        )
        .body(2 * MIB)
        .success(201),
    ]
}

fn read_routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::GET, "/v1/flows"),
            ("list_flows", "Lists flows, newest first."),
            Scope::Read,
            list,
        ),
        Route::new(
            (Method::GET, "/v1/flows/{flow_id}"),
            ("describe_flow", "Where a flow stands; waits for its end if asked to."),
            Scope::Read,
            describe,
        )
        .waits(),
        Route::new(
            (Method::GET, "/v1/flows/{flow_id}/graph"),
            ("flow_graph", "The flow's nodes with what they wait for, and the edges into them."),
            Scope::Read,
            graph,
        ),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/parents"),
            ("parent_results", "Parents of a member and what they ended with, page by page."),
            Scope::Read,
            parents,
        ),
    ]
}

async fn submit(call: Call<Nothing, SubmitFlowRequest>) -> Answered<Answer<SubmitFlowResult>> {
    let body = call.body;
    if let (Some(header), Some(given)) = (&call.idempotency_key, &body.idempotency_key)
        && header != given
    {
        return Err(Refusal::invalid("Idempotency-Key and idempotency_key differ"));
    }
    let submitter = Submitter::new(&call.door, &call.headers)?;
    if body.flow_id.is_some() {
        wire::check_may_choose(call.door.principal(), "flow_id")?;
    }
    // A flow under an id of the caller's own is accepted once without a key.
    let header = call.idempotency_key.filter(|_| body.flow_id.is_none());
    let args = SubmitFlowArgs {
        flow_id: body.flow_id,
        namespace: call.door.namespace()?.clone(),
        flow_kind: body.flow_kind,
        idempotency_key: body.idempotency_key.or(header),
        tags: body.tags,
        nodes: nodes(&submitter, body.nodes)?,
        edges: body.edges,
    };
    let result = call.door.backend().submit_flow(args).await?;
    Ok(match result {
        SubmitFlowResult::Created { .. } => Answer::created(result),
        SubmitFlowResult::Duplicate { .. } => Answer::json(result).replayed(),
    })
}

/// The nodes of a request. A refusal says which of them it is about.
fn nodes(submitter: &Submitter<'_>, nodes: Vec<FlowNodeRequest>) -> Answered<Vec<FlowNode>> {
    let node = |(at, node): (usize, FlowNodeRequest)| {
        let FlowNodeRequest { name, work, policy, merge_results } = node;
        let work = submitter.submission(work, None).map_err(|refusal| Refusal {
            detail: format!("node {at}: {}", refusal.detail),
            ..refusal
        })?;
        Ok(FlowNode { name, work, policy, merge_results })
    };
    nodes.into_iter().enumerate().map(node).collect()
}

async fn cancel(call: Call<Nothing, CancelFlowRequest>) -> Answered<Answer<CancelFlowAnswer>> {
    let wait = call.body.wait.map(|wait| wait.0.min(LONGEST_WAIT));
    let wait = wait.map_or(CancelFlowWait::NoWait, CancelFlowWait::WaitTimeout);
    let cancelled =
        call.door.backend().cancel_flow(&call.flow_id()?, call.body.policy, wait).await?;
    let (CancelFlowResult::Cancelled { cancellation_policy, member_execution_ids }
    | CancelFlowResult::CancellationScheduled {
        cancellation_policy, member_execution_ids, ..
    }) = cancelled;
    Ok(Answer::json(CancelFlowAnswer { cancellation_policy, member_execution_ids }))
}

async fn extend(call: Call<Nothing, ExtendFlowRequest>) -> Answered<Answer<SubmitFlowResult>> {
    let handle = wire::handle(&call.body.handle)?;
    let submitter = Submitter::joining(&call.door, &call.headers);
    let nodes = nodes(&submitter, call.body.nodes)?;
    let args = ExtendFlowArgs { nodes, edges: call.body.edges };
    Ok(Answer::json(call.door.backend().extend_flow(&handle, args).await?))
}

async fn wait_children(
    call: Call<Nothing, WaitChildrenRequest>,
) -> Answered<Answer<WaitChildrenResult>> {
    let handle = wire::handle(&call.body.handle)?;
    Ok(Answer::json(call.door.backend().wait_children(&handle).await?))
}

async fn replay(call: Call<Nothing, ReplayRequest>) -> Answered<Answer<ReplayFlowResult>> {
    let args = ReplayFlowArgs { execution_id: call.execution_id()? };
    Ok(Answer::json(call.door.backend().replay_flow_from(args).await?))
}

async fn fork(call: Call<Nothing, ForkFlowRequest>) -> Answered<Answer<SubmitFlowResult>> {
    let input_payload = call.body.bytes().map_err(|error| Refusal::invalid(error.to_string()))?;
    let args = ForkFlowArgs {
        execution_id: call.execution_id()?,
        flow_id: None,
        input_payload,
        steps_up_to: call.body.steps_up_to.clone(),
        creator_identity: call.door.principal().name.clone(),
    };
    Ok(Answer::created(call.door.backend().fork_flow(args).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct FlowsQuery {
    /// One or more of `open`, `completed`, `failed` and `cancelled`, separated by commas.
    statuses: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list(call: Call<FlowsQuery, Nothing>) -> Answered<Answer<FlowPage>> {
    let status = |word: &str| FlowStatus::ALL.into_iter().find(|status| status.as_str() == word);
    let args = ListFlowsArgs {
        namespace: None,
        statuses: wire::words(call.query.statuses.as_deref(), "status", status)?,
        cursor: call.query.cursor.clone(),
        limit: wire::limit(call.query.limit, 100)?,
    };
    Ok(Answer::json(call.door.backend().list_flows(args).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct FlowQuery {
    /// How long to wait for the end, at most 60 seconds.
    #[param(value_type = Option<String>)]
    wait: Option<Span>,
}

async fn describe(call: Call<FlowQuery, Nothing>) -> Answered<Answer<FlowSnapshot>> {
    let (id, backend) = (call.flow_id()?, call.door.backend());
    let wait = call.query.wait.unwrap_or_default().0.min(LONGEST_WAIT);
    let deadline = Instant::now() + wait;
    let mut bell = backend.engine().store().listen().events();
    loop {
        bell.borrow_and_update();
        let snapshot = backend.describe_flow(&id).await?;
        let snapshot = snapshot.ok_or_else(|| Refusal::not_found("flow"))?;
        if snapshot.status.is_finished() || !poll::again(&call.state, &mut bell, deadline).await {
            return Ok(Answer::json(snapshot));
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct GraphQuery {
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// How many nodes, 1 to 1,000; 1,000 if it is absent. A page has at most ten times as many
    /// edges, and its cursor goes on with the others.
    limit: Option<usize>,
}

async fn graph(call: Call<GraphQuery, Nothing>) -> Answered<Answer<FlowGraph>> {
    let args = FlowGraphArgs {
        flow_id: call.flow_id()?,
        cursor: call.query.cursor.clone(),
        limit: wire::limit(call.query.limit, 1_000)?,
    };
    Ok(Answer::json(call.door.backend().flow_graph(args).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ParentsQuery {
    /// `next_after` of the page before.
    after: Option<Uuid>,
    /// How many parents, 1 to 1,000; 100 if it is absent. Large results make pages shorter.
    limit: Option<usize>,
}

async fn parents(call: Call<ParentsQuery, Nothing>) -> Answered<Answer<ParentsAnswer>> {
    let args = ParentResultsArgs {
        execution_id: call.execution_id()?,
        after: call.query.after,
        limit: wire::limit(call.query.limit, 100)?,
    };
    let page = call.door.backend().parent_results(args).await?;
    let parents = page.parents.into_iter().map(|parent| {
        let (result, result_base64) = parent.result.map(|b| bytes::write(&b)).unwrap_or_default();
        Parent {
            execution_id: parent.execution_id,
            name: parent.name,
            public_state: parent.public_state,
            result,
            result_base64,
        }
    });
    let (parents, next_after) = (parents.collect(), page.next_after);
    Ok(Answer::json(ParentsAnswer { parents, next_after }))
}
