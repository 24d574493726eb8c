//! Checks what callers say about bulk operations, before it reaches the queue.

use super::{check_count, check_tag_key, check_text};
use crate::contracts::{BulkAction, BulkFilter, StartBulkArgs};
use crate::engine_error::EngineError;
use crate::limits;
use crate::types::Namespace;

/// The definition with the caller's own namespace in its filter.
pub fn prepare_bulk(
    args: StartBulkArgs,
    scope: Option<&Namespace>,
) -> Result<StartBulkArgs, EngineError> {
    check_text("by", &args.by, 0, limits::NAME_BYTES)?;
    if let Some(request) = &args.request_id {
        check_text("request id", request, 1, limits::NAME_BYTES)?;
    }
    match &args.action {
        BulkAction::Cancel { reason } => check_text("reason", reason, 0, limits::REASON_BYTES)?,
        BulkAction::SetTags { tags } => check_tags(tags)?,
        BulkAction::Replay | BulkAction::ChangePriority { .. } => {}
    }
    let filter = prepare_filter(args.filter, scope)?;
    Ok(StartBulkArgs { filter, ..args })
}

pub fn prepare_filter(
    filter: BulkFilter,
    scope: Option<&Namespace>,
) -> Result<BulkFilter, EngineError> {
    if let (Some(scope), Some(wanted)) = (scope, &filter.namespace)
        && scope != wanted
    {
        return Err(EngineError::invalid("the filter names a foreign namespace"));
    }
    if let Some(namespace) = &filter.namespace {
        namespace.check()?;
    }
    if let Some(lane) = &filter.lane_id {
        lane.check()?;
    }
    check_text(
        "execution kind",
        filter.execution_kind.as_deref().unwrap_or("any"),
        1,
        limits::KIND_BYTES,
    )?;
    if let Some((key, value)) = &filter.tag {
        check_tag_key(key)?;
        check_text("tag value", value, 0, limits::TAG_VALUE_BYTES)?;
    }
    let namespace = scope.cloned().or(filter.namespace);
    Ok(BulkFilter { namespace, ..filter })
}

fn check_tags(
    tags: &std::collections::BTreeMap<String, Option<String>>,
) -> Result<(), EngineError> {
    check_count("tags", tags.len(), limits::TAGS)?;
    tags.iter().try_for_each(|(key, value)| {
        check_tag_key(key)?;
        check_text("tag value", value.as_deref().unwrap_or_default(), 0, limits::TAG_VALUE_BYTES)
    })
}
