//! Bulk operations: one action on every execution that a filter names.

use axum::http::Method;
use ff_api::{BulkAnswer, BulkFilter, BulkSnapshot, PreviewBulkRequest, Scope, StartBulkRequest};
use ff_core::contracts::{self, BulkFailurePage, BulkPreview, ListBulkArgs, StartBulkArgs};
use ff_core::engine_backend::BulkOperations;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{Nothing, Route};
use crate::wire;

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/bulk/preview"),
            ("preview_bulk", "How many executions a filter names, and the oldest of them."),
            Scope::Read,
            preview,
        ),
        Route::new(
            (Method::POST, "/v1/bulk"),
            (
                "start_bulk",
                "Cancels, replays, reprioritises or retags what a filter names, once for each \
                 `Idempotency-Key`.",
            ),
            Scope::Operate,
            start,
        )
        .remembered_by_engine()
        .success(201),
        Route::new(
            (Method::GET, "/v1/bulk"),
            ("list_bulk", "Bulk operations, newest first."),
            Scope::Read,
            list,
        ),
        Route::new(
            (Method::GET, "/v1/bulk/{bulk_id}"),
            ("describe_bulk", "How far a bulk operation has come."),
            Scope::Read,
            describe,
        ),
        Route::new(
            (Method::GET, "/v1/bulk/{bulk_id}/failures"),
            ("list_bulk_failures", "The executions that refused, in order; the first thousand."),
            Scope::Read,
            failures,
        ),
        Route::new(
            (Method::POST, "/v1/bulk/{bulk_id}/cancel"),
            ("cancel_bulk", "Stops a bulk operation where it is; what it has done stays."),
            Scope::Operate,
            cancel,
        ),
    ]
}

/// The engine adds the caller's namespace.
fn filter(given: BulkFilter) -> Answered<contracts::BulkFilter> {
    Ok(contracts::BulkFilter {
        namespace: None,
        lane_id: given.lane_id,
        states: given.states,
        execution_kind: given.execution_kind,
        flow_id: given.flow_id,
        tag: given.tag.as_deref().map(wire::tag).transpose()?,
        created_from: given.created_from,
        created_before: given.created_before,
    })
}

fn shown(bulk: contracts::BulkSnapshot) -> BulkSnapshot {
    let filter = bulk.filter;
    BulkSnapshot {
        bulk_id: bulk.bulk_id,
        namespace: filter.namespace,
        filter: BulkFilter {
            lane_id: filter.lane_id,
            states: filter.states,
            execution_kind: filter.execution_kind,
            flow_id: filter.flow_id,
            tag: filter.tag.map(|(key, value)| format!("{key}:{value}")),
            created_from: filter.created_from,
            created_before: filter.created_before,
        },
        action: bulk.action,
        state: bulk.state,
        by: bulk.by,
        created_at: bulk.created_at,
        finished_at: bulk.finished_at,
        matched: bulk.matched,
        done: bulk.done,
        changed: bulk.changed,
        skipped: bulk.skipped,
        failed: bulk.failed,
    }
}

async fn preview(call: Call<Nothing, PreviewBulkRequest>) -> Answered<Answer<BulkPreview>> {
    let filter = filter(call.body.filter)?;
    Ok(Answer::json(call.door.backend().preview_bulk(filter).await?))
}

async fn start(call: Call<Nothing, StartBulkRequest>) -> Answered<Answer<BulkSnapshot>> {
    let StartBulkRequest { filter: given, action } = call.body;
    let by = call.door.principal().name.clone();
    let request_id = call.idempotency_key;
    let args = StartBulkArgs { filter: filter(given)?, action, by, request_id };
    let started = call.door.backend().start_bulk(args).await?;
    Ok(Answer::created(shown(started)))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list(call: Call<PageQuery, Nothing>) -> Answered<Answer<BulkAnswer>> {
    let limit = wire::limit(call.query.limit, 100)?;
    let args = ListBulkArgs { cursor: call.query.cursor, limit };
    let page = call.door.backend().list_bulk(args).await?;
    let operations = page.operations.into_iter().map(shown).collect();
    let (next_cursor, unreadable) = (page.next_cursor, page.unreadable);
    Ok(Answer::json(BulkAnswer { operations, next_cursor, unreadable }))
}

async fn describe(call: Call<Nothing, Nothing>) -> Answered<Answer<BulkSnapshot>> {
    let found = call.door.backend().describe_bulk(call.uuid("bulk_id")?).await?;
    found.map(shown).map(Answer::json).ok_or_else(|| Refusal::not_found("bulk operation"))
}

async fn failures(call: Call<PageQuery, Nothing>) -> Answered<Answer<BulkFailurePage>> {
    let (id, limit) = (call.uuid("bulk_id")?, wire::limit(call.query.limit, 100)?);
    let page = call.door.backend().list_bulk_failures(id, call.query.cursor, limit).await?;
    Ok(Answer::json(page))
}

async fn cancel(call: Call<Nothing, Nothing>) -> Answered<Answer<BulkSnapshot>> {
    let stopped = call.door.backend().cancel_bulk(call.uuid("bulk_id")?).await?;
    Ok(Answer::json(shown(stopped)))
}
