//! The columns of each table, in the order in which rows are read from them.

use ff_core::engine_error::StoreError;
use ff_core::store::cells::{Cells, wrong};

/// Everything but the payload, which most reads can do without.
pub(crate) const EXECUTION: &str = "execution_id, home_partition, flow_id, namespace, lane_id, \
    execution_kind, payload_encoding, creator_identity, idempotency_key, policy, \
    required_capabilities, created_at_ms, priority, tags, attempt_index, lifecycle_phase, \
    ownership_state, eligibility_state, public_state, attempt_state, blocking_reason, \
    not_before_ms, deadline_at_ms, started_at_ms, terminal_at_ms, result, result_apart, \
    failure_reason, failure_category, cancellation_reason, cancelled_by, retry_count, \
    reclaim_count, holds_key, lease_epoch, version, raw_fields";

pub(crate) const ATTEMPT: &str = "attempt_index, attempt_type, lease_epoch, worker_id, \
    worker_instance_id, lease_expires_at_ms, started_at_ms, terminal_at_ms, outcome, \
    failure_reason, failure_category, retry_at_ms, progress_pct, progress_message, lease_nonce";

pub(crate) const FLOW: &str = "flow_id, partition_key, namespace, flow_kind, graph_revision, \
    public_flow_state, created_at_ms, terminal_at_ms, node_count, edge_count, completed_count, \
    failed_count, cancelled_count, expired_count, skipped_count, spared_count, raw_fields";

pub(crate) const LANE: &str =
    "lane_id, lane_state, paused_reason, paused_by, paused_at_ms, limited";

/// As they are read; there is one shard.
pub(crate) const EVENT: &str = "seq, at_ms, event_type, namespace, lane_id, execution_kind, \
    execution_id, home_partition, 0, flow_id, from_state, to_state, version, attempt_index, \
    lease_epoch, lease_ended, by_whom, details";

/// As they are written.
pub(crate) const NEW_EVENT: &str = "seq, at_ms, event_type, namespace, lane_id, execution_kind, \
    execution_id, home_partition, flow_id, from_state, to_state, version, attempt_index, \
    lease_epoch, lease_ended, by_whom, details";

/// A list of columns with a table's name before each.
pub(crate) fn of_table(table: &str, columns: &str) -> String {
    let columns: Vec<String> =
        columns.split(", ").map(|column| format!("{table}.{}", column.trim())).collect();
    columns.join(", ")
}

/// A row of the writer's driver.
pub(crate) struct Written<'r>(pub &'r rusqlite::Row<'r>);

impl Cells for Written<'_> {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreError> {
        let value = self.0.get_ref(at).map_err(|error| wrong(at, &error))?;
        value.as_i64_or_null().map_err(|error| wrong(at, &error))
    }

    fn text(&self, at: usize) -> Result<Option<&str>, StoreError> {
        let value = self.0.get_ref(at).map_err(|error| wrong(at, &error))?;
        value.as_str_or_null().map_err(|error| wrong(at, &error))
    }

    fn blob(&self, at: usize) -> Result<Option<&[u8]>, StoreError> {
        let value = self.0.get_ref(at).map_err(|error| wrong(at, &error))?;
        value.as_blob_or_null().map_err(|error| wrong(at, &error))
    }
}

/// A row of the readers' driver.
pub(crate) struct Read<'r>(pub &'r sqlx::sqlite::SqliteRow);

impl Cells for Read<'_> {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreError> {
        sqlx::Row::try_get(self.0, at).map_err(|error| wrong(at, &error))
    }

    fn text(&self, at: usize) -> Result<Option<&str>, StoreError> {
        sqlx::Row::try_get(self.0, at).map_err(|error| wrong(at, &error))
    }

    fn blob(&self, at: usize) -> Result<Option<&[u8]>, StoreError> {
        sqlx::Row::try_get(self.0, at).map_err(|error| wrong(at, &error))
    }
}
