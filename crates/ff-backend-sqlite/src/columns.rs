//! Columns to rows, the same way for the writer's driver and the readers'.

use std::sync::Arc;

use ff_core::contracts::EventType;
use ff_core::engine_error::StoreError;
use ff_core::rows::spelling::Spelling;
use ff_core::rows::{
    AttemptKey, AttemptRow, Blob, EventRow, ExecutionRow, FlowKey, FlowRow, LaneRow,
};
use ff_core::types::{ExecutionKey, TimestampMs};
use uuid::Uuid;

/// Everything but the payload, which most reads can do without.
pub(crate) const EXECUTION: &str = "execution_id, home_partition, flow_id, namespace, lane_id, \
    execution_kind, payload_encoding, creator_identity, idempotency_key, policy, \
    required_capabilities, created_at_ms, priority, tags, attempt_index, lifecycle_phase, \
    ownership_state, eligibility_state, public_state, attempt_state, blocking_reason, \
    not_before_ms, deadline_at_ms, started_at_ms, terminal_at_ms, result, result_apart, \
    failure_reason, failure_category, cancellation_reason, cancelled_by, retry_count, \
    reclaim_count, holds_key, lease_epoch, version, raw_fields";

/// Where the columns of `payload, payload_apart` stand when they follow `EXECUTION`.
const PAYLOAD_AT: usize = 37;

pub(crate) const ATTEMPT: &str = "attempt_index, attempt_type, lease_epoch, worker_id, \
    worker_instance_id, lease_expires_at_ms, started_at_ms, terminal_at_ms, outcome, \
    failure_reason, failure_category, retry_at_ms, progress_pct, progress_message";

pub(crate) const FLOW: &str = "flow_id, namespace, graph_revision, public_flow_state, \
    created_at_ms, terminal_at_ms, raw_fields";

pub(crate) const LANE: &str = "lane_id, lane_state, paused_reason, paused_by, paused_at_ms";

pub(crate) const EVENT: &str = "seq, at_ms, event_type, namespace, lane_id, execution_kind, \
    execution_id, home_partition, flow_id, from_state, to_state, version, attempt_index, \
    lease_epoch, lease_ended, by_whom, details";

/// A list of columns with a table's name before each.
pub(crate) fn of_table(table: &str, columns: &str) -> String {
    let columns: Vec<String> =
        columns.split(", ").map(|column| format!("{table}.{}", column.trim())).collect();
    columns.join(", ")
}

/// One result row of either driver.
pub(crate) trait Cells {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreError>;
    fn text(&self, at: usize) -> Result<Option<&str>, StoreError>;
    fn blob(&self, at: usize) -> Result<Option<&[u8]>, StoreError>;
}

impl Cells for rusqlite::Row<'_> {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreError> {
        let value = self.get_ref(at).map_err(|error| wrong(at, &error))?;
        value.as_i64_or_null().map_err(|error| wrong(at, &error))
    }

    fn text(&self, at: usize) -> Result<Option<&str>, StoreError> {
        let value = self.get_ref(at).map_err(|error| wrong(at, &error))?;
        value.as_str_or_null().map_err(|error| wrong(at, &error))
    }

    fn blob(&self, at: usize) -> Result<Option<&[u8]>, StoreError> {
        let value = self.get_ref(at).map_err(|error| wrong(at, &error))?;
        value.as_blob_or_null().map_err(|error| wrong(at, &error))
    }
}

impl Cells for sqlx::sqlite::SqliteRow {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreError> {
        sqlx::Row::try_get(self, at).map_err(|error| wrong(at, &error))
    }

    fn text(&self, at: usize) -> Result<Option<&str>, StoreError> {
        sqlx::Row::try_get(self, at).map_err(|error| wrong(at, &error))
    }

    fn blob(&self, at: usize) -> Result<Option<&[u8]>, StoreError> {
        sqlx::Row::try_get(self, at).map_err(|error| wrong(at, &error))
    }
}

fn wrong(at: usize, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("column {at} cannot be read: {error}"))
}

/// Neighbouring rows mostly say the same in the same column, so the last text of each is kept and
/// shared instead of copied.
#[derive(Default)]
pub(crate) struct Words(Vec<Option<Arc<str>>>);

impl Words {
    fn keep(&mut self, at: usize, word: &str) -> Arc<str> {
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        match &self.0[at] {
            Some(known) if **known == *word => known.clone(),
            _ => self.0[at].insert(word.into()).clone(),
        }
    }
}

/// Reads columns from left to right.
pub(crate) struct Reader<'r, C> {
    cells: &'r C,
    words: &'r mut Words,
    at: usize,
    /// Keeps the columns of different tables apart among the words.
    table: usize,
}

impl<'r, C: Cells> Reader<'r, C> {
    pub fn new(cells: &'r C, words: &'r mut Words) -> Self {
        Self { cells, words, at: 0, table: 0 }
    }

    fn next(&mut self) -> usize {
        self.at += 1;
        self.at - 1
    }

    fn opt_int(&mut self) -> Result<Option<i64>, StoreError> {
        let at = self.next();
        self.cells.int(at)
    }

    fn number<N: TryFrom<i64> + Default>(&mut self) -> Result<N, StoreError> {
        let at = self.next();
        let value = self.cells.int(at)?.unwrap_or_default();
        N::try_from(value).map_err(|_| wrong(at, &format!("{value} is out of range")))
    }

    fn time(&mut self) -> Result<Option<TimestampMs>, StoreError> {
        Ok(self.opt_int()?.map(TimestampMs))
    }

    fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.opt_int()?.unwrap_or_default() != 0)
    }

    /// Text that is different in every row.
    fn own_text(&mut self) -> Result<Option<Arc<str>>, StoreError> {
        let at = self.next();
        Ok(self.cells.text(at)?.map(Arc::from))
    }

    /// Text that many rows share.
    fn shared_text(&mut self) -> Result<Option<Arc<str>>, StoreError> {
        let at = self.next();
        Ok(self.cells.text(at)?.map(|word| self.words.keep(self.table + at, word)))
    }

    fn word<T: Spelling>(&mut self) -> Result<Option<T>, StoreError> {
        let at = self.next();
        let Some(word) = self.cells.text(at)? else {
            return Ok(None);
        };
        T::read(word).map(Some).ok_or_else(|| wrong(at, &format!("unknown word {word:?}")))
    }

    fn must<T: Spelling>(&mut self) -> Result<T, StoreError> {
        let at = self.at;
        self.word()?.ok_or_else(|| wrong(at, &"a state is missing"))
    }

    fn opt_uuid(&mut self) -> Result<Option<Uuid>, StoreError> {
        let at = self.next();
        let bytes = self.cells.blob(at)?;
        bytes.map(|bytes| Uuid::from_slice(bytes).map_err(|error| wrong(at, &error))).transpose()
    }

    fn uuid(&mut self) -> Result<Uuid, StoreError> {
        let at = self.at;
        self.opt_uuid()?.ok_or_else(|| wrong(at, &"an id is missing"))
    }

    fn bytes(&mut self) -> Result<Option<Arc<[u8]>>, StoreError> {
        let at = self.next();
        Ok(self.cells.blob(at)?.map(Arc::from))
    }

    /// Two columns: the bytes, and whether they are stored apart.
    fn blob(&mut self) -> Result<Blob, StoreError> {
        let bytes = self.bytes()?;
        let apart = self.flag()?;
        Ok(match bytes {
            _ if apart => Blob::Apart,
            Some(bytes) => Blob::Here(bytes),
            None => Blob::Absent,
        })
    }

    pub fn execution(&mut self) -> Result<ExecutionRow, StoreError> {
        let id = self.uuid()?;
        let key = ExecutionKey { partition: self.number()?, id };
        Ok(ExecutionRow {
            key,
            flow_id: self.opt_uuid()?,
            namespace: self.shared_text()?.unwrap_or_default(),
            lane: self.shared_text()?.unwrap_or_default(),
            kind: self.shared_text()?.unwrap_or_default(),
            payload: Blob::Apart,
            payload_encoding: self.shared_text()?,
            creator: self.shared_text()?.unwrap_or_default(),
            idempotency_key: self.own_text()?,
            policy: self.shared_text()?,
            capability_class: self.shared_text()?.unwrap_or_default(),
            created_at: TimestampMs(self.number()?),
            priority: self.number()?,
            tags: self.shared_text()?.unwrap_or_default(),
            attempt_index: self.number()?,
            phase: self.must()?,
            ownership: self.must()?,
            eligibility: self.must()?,
            public_state: self.must()?,
            attempt_state: self.must()?,
            blocking: self.must()?,
            not_before: self.time()?,
            deadline_at: self.time()?,
            started_at: self.time()?,
            terminal_at: self.time()?,
            result: self.blob()?,
            failure_reason: self.own_text()?,
            failure_category: self.shared_text()?,
            cancellation_reason: self.own_text()?,
            cancelled_by: self.shared_text()?,
            retry_count: self.number()?,
            reclaim_count: self.number()?,
            holds_key: self.flag()?,
            lease_epoch: self.number()?,
            version: self.number()?,
            raw_fields: self.shared_text()?.unwrap_or_default(),
            rewritten: false,
        })
    }

    /// An execution whose columns are followed by those of its payload.
    pub fn execution_with_payload(&mut self) -> Result<ExecutionRow, StoreError> {
        let mut row = self.execution()?;
        debug_assert_eq!(self.at, PAYLOAD_AT, "the column list and its reader disagree");
        row.payload = self.blob()?;
        Ok(row)
    }

    pub fn attempt(&mut self, execution: ExecutionKey) -> Result<AttemptRow, StoreError> {
        self.table = 128;
        Ok(AttemptRow {
            key: AttemptKey { execution, index: self.number()? },
            attempt_type: self.must()?,
            lease_epoch: self.number()?,
            worker_id: self.shared_text()?,
            worker_instance_id: self.shared_text()?,
            lease_expires_at: self.time()?,
            started_at: self.time()?,
            ended_at: self.time()?,
            outcome: self.word()?,
            failure_reason: self.own_text()?,
            failure_category: self.shared_text()?,
            retry_at: self.time()?,
            progress_percent: self.opt_int()?.and_then(|percent| u8::try_from(percent).ok()),
            progress_message: self.own_text()?,
        })
    }

    /// The attempt that was joined to an execution, if there was one.
    pub fn joined_attempt(
        &mut self,
        execution: ExecutionKey,
    ) -> Result<Option<AttemptRow>, StoreError> {
        match self.cells.int(self.at)? {
            Some(_) => self.attempt(execution).map(Some),
            None => Ok(None),
        }
    }

    pub fn flow(&mut self) -> Result<FlowRow, StoreError> {
        Ok(FlowRow {
            key: FlowKey { partition: 0, id: self.uuid()? },
            namespace: self.shared_text()?.unwrap_or_default(),
            graph_revision: self.number()?,
            state: self.must()?,
            created_at: TimestampMs(self.number()?),
            terminal_at: self.time()?,
            raw_fields: self.own_text()?.unwrap_or_default(),
        })
    }

    pub fn lane(&mut self) -> Result<LaneRow, StoreError> {
        Ok(LaneRow {
            lane: self.shared_text()?.unwrap_or_default(),
            state: self.must()?,
            paused_reason: self.own_text()?,
            paused_by: self.own_text()?,
            paused_at: self.time()?,
        })
    }

    pub fn event(&mut self) -> Result<EventRow, StoreError> {
        self.table = 256;
        let seq = self.number()?;
        let at = TimestampMs(self.number()?);
        let place = self.next();
        let word = self.cells.text(place)?.unwrap_or_default();
        let event_type = EventType::parse(word)
            .ok_or_else(|| wrong(place, &format!("unknown event {word:?}")))?;
        let namespace = self.shared_text()?.unwrap_or_default();
        let lane = self.shared_text()?;
        let kind = self.shared_text()?;
        let id = self.opt_uuid()?;
        let partition = self.number()?;
        Ok(EventRow {
            shard: 0,
            seq,
            at,
            event_type,
            namespace,
            lane,
            kind,
            execution: id.map(|id| ExecutionKey { partition, id }),
            flow_id: self.opt_uuid()?,
            from: self.word()?,
            to: self.word()?,
            version: self.number()?,
            attempt_index: self.number()?,
            lease_epoch: self.number()?,
            lease_ended: self.flag()?,
            by: self.shared_text()?,
            details: self.own_text()?,
        })
    }
}
