//! The columns of each table, in the order in which rows are read from them.

use ff_core::engine_error::StoreError;
use ff_core::store::cells::{Cells, wrong};
use sqlx::Row;
use sqlx::postgres::{PgRow, PgValueFormat};

/// Everything but the payload, which most reads can do without. No bytes are stored apart: Postgres
/// does that by itself.
pub(crate) const EXECUTION: &str = "execution_id, partition_key, flow_id, namespace, lane_id, \
    execution_kind, payload_encoding, creator_identity, idempotency_key, policy, \
    required_capabilities, created_at_ms, priority, tags::text, attempt_index, lifecycle_phase, \
    ownership_state, eligibility_state, public_state, attempt_state, blocking_reason, \
    not_before_ms, deadline_at_ms, started_at_ms, terminal_at_ms, result, false, \
    failure_reason, failure_category, cancellation_reason, cancelled_by, retry_count, \
    reclaim_count, holds_key, lease_epoch, version, raw_fields::text";

/// Follows `EXECUTION` where the payload is wanted.
pub(crate) const PAYLOAD: &str = "payload, false";

pub(crate) const ATTEMPT: &str = "attempt_index, attempt_type, lease_epoch, worker_id, \
    worker_instance_id, lease_expires_at_ms, started_at_ms, terminal_at_ms, outcome, \
    failure_reason, failure_category, retry_at_ms, progress_pct, progress_message, lease_nonce";

pub(crate) const FLOW: &str = "flow_id, partition_key, namespace, flow_kind, graph_revision, \
    public_flow_state, created_at_ms, terminal_at_ms, node_count, edge_count, completed_count, \
    failed_count, cancelled_count, expired_count, skipped_count, spared_count, raw_fields::text";

pub(crate) const LANE: &str =
    "lane_id, lane_state, paused_reason, paused_by, paused_at_ms, limited";

pub(crate) const EVENT: &str = "seq, at_ms, event_type, namespace, lane_id, execution_kind, \
    execution_id, partition_key, shard, flow_id, from_state, to_state, version, attempt_index, \
    lease_epoch, lease_ended, by_whom, details::text";

/// A list of columns with a table's name before each.
pub(crate) fn of_table(table: &str, columns: &str) -> String {
    let columns = columns.split(", ").map(|column| match column.trim() {
        "false" => "false".to_owned(),
        column => format!("{table}.{column}"),
    });
    columns.collect::<Vec<_>>().join(", ")
}

/// Values are read by their width, whatever the column's type is called.
impl Cells for Column<'_> {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreError> {
        let Some(bytes) = self.bytes(at)? else { return Ok(None) };
        let number = match *bytes {
            [a] => i64::from(a),
            // Only partitions and shards are this narrow, and both count from 0 to 65,535.
            [a, b] => i64::from(u16::from_be_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
            _ => return Err(wrong(at, &"it is no number")),
        };
        Ok(Some(number))
    }

    fn text(&self, at: usize) -> Result<Option<&str>, StoreError> {
        let Some(bytes) = self.bytes(at)? else { return Ok(None) };
        std::str::from_utf8(bytes).map(Some).map_err(|error| wrong(at, &error))
    }

    fn blob(&self, at: usize) -> Result<Option<&[u8]>, StoreError> {
        self.bytes(at)
    }
}

/// A row whose values came in binary form.
pub(crate) struct Column<'r>(pub &'r PgRow);

impl Column<'_> {
    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, StoreError> {
        let value = self.0.try_get_raw(at).map_err(|error| wrong(at, &error))?;
        if sqlx::ValueRef::is_null(&value) {
            return Ok(None);
        }
        if value.format() != PgValueFormat::Binary {
            return Err(wrong(at, &"it did not come in binary form"));
        }
        value.as_bytes().map(Some).map_err(|error| wrong(at, &error))
    }
}

/// As the narrow column has it; the bits are the same.
pub(crate) fn narrow(partition: u16) -> i16 {
    partition as i16
}
