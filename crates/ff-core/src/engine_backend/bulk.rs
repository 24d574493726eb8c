//! Bulk operations: one action on every execution that a filter names.

use async_trait::async_trait;
use uuid::Uuid;

use super::{EngineBackend, scan};
use crate::contracts::{
    BulkFailurePage, BulkFilter, BulkPage, BulkPreview, BulkSnapshot, ListBulkArgs, StartBulkArgs,
};
use crate::engine::{check_count, prepare_bulk, prepare_filter};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::bulk::{CancelBulk, StartBulk, list_query};
use crate::operations::schedule::identity;
use crate::rows::{AnyRow, BulkFailureRow, BulkKey, BulkRow, Record, Value, values};
use crate::store::{ListQuery, Query, Scan};
use crate::types::Namespace;
use crate::views;

/// How many executions a preview shows.
const SAMPLE: usize = 10;

#[async_trait]
pub trait BulkOperations: EngineBackend {
    /// What a bulk operation with this filter would meet. Nothing is changed.
    async fn preview_bulk(&self, filter: BulkFilter) -> Result<BulkPreview, EngineError> {
        let filter = list_query(&prepare_filter(filter, self.scope())?);
        let matched = self.engine().query(Query::Count(filter.clone())).await?.count;
        let sample = ListQuery { limit: SAMPLE, ..filter };
        let rows = self.engine().query(Query::Executions(sample)).await?;
        let page = views::page(&rows.executions, false, &rows.damage);
        Ok(BulkPreview { matched, sample: page.executions })
    }

    /// Starts a bulk operation. It reaches the executions that are there now, and goes on by
    /// itself, also after a crash. A request that is made again is told of the first one.
    async fn start_bulk(&self, args: StartBulkArgs) -> Result<BulkSnapshot, EngineError> {
        let mut definition = prepare_bulk(args, self.scope())?;
        let id = match definition.request_id.take() {
            Some(request) => requested(definition.filter.namespace.as_ref(), &request),
            None => Uuid::now_v7(),
        };
        let count = Query::Count(list_query(&definition.filter));
        let matched = self.engine().query(count).await?.count;
        let caller = self.stamp().map(|stamp| stamp.as_ref().clone());
        let start = StartBulk { id, definition, caller, matched };
        self.engine().run_as(self.caller(), start).await.map(|row| views::bulk(&row))
    }

    /// Stops a bulk operation where it is. What it has done stays.
    async fn cancel_bulk(&self, id: Uuid) -> Result<BulkSnapshot, EngineError> {
        let cancel = CancelBulk { key: BulkKey { id } };
        self.engine().run_as(self.caller(), cancel).await.map(|row| views::bulk(&row))
    }

    /// How far a bulk operation has come.
    async fn describe_bulk(&self, id: Uuid) -> Result<Option<BulkSnapshot>, EngineError> {
        let keys = vec![BulkRow::erase_key(&BulkKey { id })];
        let rows = self.engine().query(Query::Records { keys, scans: vec![] }).await?;
        let found = rows.records::<BulkRow>().map_err(|e| self.engine().store_error(e))?;
        let own = found.iter().find(|row| in_scope(self.scope(), row));
        Ok(own.map(views::bulk))
    }

    /// Bulk operations, newest first.
    async fn list_bulk(&self, args: ListBulkArgs) -> Result<BulkPage, EngineError> {
        let limit = if args.limit == 0 { 100 } else { args.limit };
        check_count("bulk operations", limit, limits::PAGE)?;
        let mut after = args.cursor.as_deref().map(views::parse_bulk_cursor).transpose()?;
        let (mut page, mut unreadable) = (Vec::new(), Vec::new());
        // Those of other namespaces are passed over.
        loop {
            let behind = after.map(|(rank, id)| values![rank, id]).unwrap_or_default();
            let scan = Scan::of::<BulkRow>(vec![]).by(&BulkRow::NEWEST);
            let scan = scan.after(behind).limit(limit + 1);
            let scope = self.scope();
            let read = scan::find_visible(self.engine(), scan, |row| is_of(scope, row)).await?;
            unreadable.extend(read.unreadable);
            let found: Vec<BulkRow> = read.records;
            let cut = found.len() > limit;
            after = found.last().map(|row| (row.rank, row.key.id));
            page.extend(found.into_iter().filter(|row| in_scope(self.scope(), row)));
            if page.len() > limit || !cut {
                break;
            }
        }
        let more = page.len() > limit;
        page.truncate(limit);
        Ok(views::bulk_page(&page, page.last().filter(|_| more), unreadable))
    }

    /// The executions that refused a bulk operation, in the order in which it came to them. Only
    /// the first thousand are kept.
    async fn list_bulk_failures(
        &self,
        id: Uuid,
        cursor: Option<String>,
        limit: usize,
    ) -> Result<BulkFailurePage, EngineError> {
        check_count("failures", limit, limits::PAGE)?;
        let Some(bulk) = self.describe_bulk(id).await? else {
            return Err(EngineError::NotFound { entity: "bulk operation" });
        };
        let after = cursor.as_deref().map(views::parse_failure_cursor).transpose()?;
        let after = after.map(|number| values![number]).unwrap_or_default();
        let scan = Scan::of::<BulkFailureRow>(values![id]).after(after).limit(limit + 1);
        let mut found = scan::find::<BulkFailureRow>(self.engine(), scan).await?;
        let more = found.records.len() > limit;
        found.records.truncate(limit);
        Ok(views::bulk_failures(&found.records, more, bulk.failed, found.unreadable))
    }
}

impl<B: EngineBackend + ?Sized> BulkOperations for B {}

fn in_scope(scope: Option<&Namespace>, row: &BulkRow) -> bool {
    scope.is_none_or(|own| row.namespace.as_deref() == Some(own.as_str()))
}

/// Whether a row that may be damaged elsewhere belongs to the scope.
fn is_of(scope: Option<&Namespace>, row: &AnyRow) -> bool {
    let namespace = row.values.get(BulkRow::SPEC.place("namespace"));
    scope.is_none_or(|own| matches!(namespace, Some(Value::Text(text)) if **text == *own.as_str()))
}

/// The identity of what a request starts: always the same in the same namespace, or in all.
fn requested(namespace: Option<&Namespace>, request: &str) -> Uuid {
    match namespace {
        Some(namespace) => identity(&["bulk", "one", namespace.as_str(), request]),
        None => identity(&["bulk", "all", request]),
    }
}
