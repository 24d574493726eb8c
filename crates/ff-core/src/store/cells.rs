//! Columns to rows, the same way for every store that speaks SQL.
//!
//! A store lists its columns in the order in which the reader takes them; a text that it has as
//! another type it casts in its query.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::CountRow;
use crate::contracts::EventType;
use crate::engine_error::StoreError;
use crate::rows::spelling::Spelling;
use crate::rows::{
    AnyRow, AttemptKey, AttemptRow, Blob, Endings, EventRow, ExecutionRow, FlowKey, FlowRow,
    FlowState, Kind, LaneRow, Rewritten, Spec, TimerKey, TimerKind, TimerRow, Value,
};
use crate::state::{
    AttemptState, AttemptType, BlockingReason, EligibilityState, LaneState, LifecyclePhase,
    OwnershipState, PublicState,
};
use crate::types::{ExecutionKey, TimestampMs};

/// One result row of any driver, by the places of its columns.
pub trait Cells {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreError>;
    fn text(&self, at: usize) -> Result<Option<&str>, StoreError>;
    fn blob(&self, at: usize) -> Result<Option<&[u8]>, StoreError>;
}

/// The error for a column that does not hold what it should.
pub fn wrong(at: usize, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("column {at} cannot be read: {error}"))
}

/// Neighbouring rows mostly say the same in the same column, so the last text of each is kept and
/// shared instead of copied.
#[derive(Default)]
pub struct Words(Vec<Option<Arc<str>>>);

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
pub struct Reader<'r, C> {
    cells: &'r C,
    words: &'r mut Words,
    at: usize,
    /// Keeps the columns of different tables apart among the words.
    table: usize,
    /// What could not be read, where a column that is damaged counts as empty.
    pub(super) damage: Option<Vec<String>>,
}

impl<'r, C: Cells> Reader<'r, C> {
    pub fn new(cells: &'r C, words: &'r mut Words) -> Self {
        Self { cells, words, at: 0, table: 0, damage: None }
    }

    /// Begins at another column than the first.
    pub fn from(cells: &'r C, words: &'r mut Words, at: usize) -> Self {
        Self { cells, words, at, table: 0, damage: None }
    }

    fn next(&mut self) -> usize {
        self.at += 1;
        self.at - 1
    }

    /// A value that was read, or the empty one in its place if damage is only noted.
    #[inline]
    fn noted<T>(&mut self, read: Result<T, StoreError>, empty: T) -> Result<T, StoreError> {
        match (read, &mut self.damage) {
            (Err(StoreError::Corrupt(why)), Some(damage)) => {
                damage.push(why);
                Ok(empty)
            }
            (read, _) => read,
        }
    }

    pub fn opt_int(&mut self) -> Result<Option<i64>, StoreError> {
        let at = self.next();
        let read = self.cells.int(at);
        self.noted(read, None)
    }

    pub fn number<N: TryFrom<i64> + Default>(&mut self) -> Result<N, StoreError> {
        let at = self.at;
        let value = self.opt_int()?.unwrap_or_default();
        let read = N::try_from(value).map_err(|_| wrong(at, &format!("{value} is out of range")));
        self.noted(read, N::default())
    }

    pub fn time(&mut self) -> Result<Option<TimestampMs>, StoreError> {
        Ok(self.opt_int()?.map(TimestampMs))
    }

    pub fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.opt_int()?.unwrap_or_default() != 0)
    }

    /// Text that is different in every row.
    pub fn own_text(&mut self) -> Result<Option<Arc<str>>, StoreError> {
        Ok(self.text()?.map(Arc::from))
    }

    fn text(&mut self) -> Result<Option<&'r str>, StoreError> {
        let at = self.next();
        let read = self.cells.text(at);
        self.noted(read, None)
    }

    /// Text that many rows share.
    pub fn shared_text(&mut self) -> Result<Option<Arc<str>>, StoreError> {
        let at = self.at;
        Ok(self.text()?.map(|word| self.words.keep(self.table + at, word)))
    }

    pub fn word<T: Spelling>(&mut self) -> Result<Option<T>, StoreError> {
        let at = self.at;
        let Some(word) = self.text()? else {
            return Ok(None);
        };
        let unknown = || wrong(at, &format!("unknown word {word:?}"));
        let read = T::read(word).map(Some).ok_or_else(unknown);
        self.noted(read, None)
    }

    /// A word that must be there; `empty` stands for it where damage is only noted.
    fn must<T: Spelling>(&mut self, empty: T) -> Result<T, StoreError> {
        let at = self.at;
        let noted = self.damage.as_ref().map_or(0, Vec::len);
        match self.word()? {
            Some(word) => Ok(word),
            None if self.damage.as_ref().map_or(0, Vec::len) > noted => Ok(empty),
            None => self.noted(Err(wrong(at, &"a state is missing")), empty),
        }
    }

    pub fn opt_uuid(&mut self) -> Result<Option<Uuid>, StoreError> {
        let at = self.next();
        let read = self.cells.blob(at).and_then(|bytes| {
            let id = bytes.map(|bytes| Uuid::from_slice(bytes).map_err(|error| wrong(at, &error)));
            id.transpose()
        });
        self.noted(read, None)
    }

    pub fn uuid(&mut self) -> Result<Uuid, StoreError> {
        let at = self.at;
        let read = self.opt_uuid()?.ok_or_else(|| wrong(at, &"an id is missing"));
        self.noted(read, Uuid::nil())
    }

    pub fn bytes(&mut self) -> Result<Option<Arc<[u8]>>, StoreError> {
        let at = self.next();
        let read = self.cells.blob(at);
        Ok(self.noted(read, None)?.map(Arc::from))
    }

    /// Two columns: the bytes, and whether they are stored apart.
    pub fn blob(&mut self) -> Result<Blob, StoreError> {
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
            phase: self.must(LifecyclePhase::Submitted)?,
            ownership: self.must(OwnershipState::Unowned)?,
            eligibility: self.must(EligibilityState::NotApplicable)?,
            public_state: self.must(PublicState::Waiting)?,
            attempt_state: self.must(AttemptState::PendingFirstAttempt)?,
            blocking: self.must(BlockingReason::None)?,
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
            rewritten: Rewritten::Nothing,
        })
    }

    /// An execution whose columns are followed by those of its payload.
    pub fn execution_with_payload(&mut self) -> Result<ExecutionRow, StoreError> {
        let mut row = self.execution()?;
        row.payload = self.blob()?;
        Ok(row)
    }

    pub fn attempt(&mut self, execution: ExecutionKey) -> Result<AttemptRow, StoreError> {
        self.table = 128;
        Ok(AttemptRow {
            key: AttemptKey { execution, index: self.number()? },
            attempt_type: self.must(AttemptType::Initial)?,
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
            lease_nonce: self.number()?,
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
            key: FlowKey { id: self.uuid()?, partition: self.number()? },
            namespace: self.shared_text()?.unwrap_or_default(),
            kind: self.shared_text()?.unwrap_or_default(),
            graph_revision: self.number()?,
            state: self.must(FlowState::Open)?,
            created_at: TimestampMs(self.number()?),
            terminal_at: self.time()?,
            nodes: self.number()?,
            edges: self.number()?,
            ended: Endings {
                completed: self.number()?,
                failed: self.number()?,
                cancelled: self.number()?,
                expired: self.number()?,
                skipped: self.number()?,
                spared: self.number()?,
            },
            raw_fields: self.own_text()?.unwrap_or_default(),
        })
    }

    pub fn timer(&mut self) -> Result<TimerRow, StoreError> {
        let due_at = TimestampMs(self.number()?);
        let key = TimerKey { due_at, kind: self.must(TimerKind::Ready)?, subject: self.uuid()? };
        let members = self.bytes()?.unwrap_or_default();
        Ok(TimerRow { key, members: TimerRow::decode_members(&members) })
    }

    pub fn lane(&mut self) -> Result<LaneRow, StoreError> {
        Ok(LaneRow {
            lane: self.shared_text()?.unwrap_or_default(),
            state: self.must(LaneState::Paused)?,
            paused_reason: self.own_text()?,
            paused_by: self.own_text()?,
            paused_at: self.time()?,
            limited: self.flag()?,
        })
    }

    /// A record, column by column.
    pub fn record(&mut self, spec: &'static Spec) -> Result<AnyRow, StoreError> {
        let mut values = Vec::with_capacity(spec.columns.len());
        for column in spec.columns {
            let value = match column.kind {
                Kind::Small | Kind::Int4 | Kind::Int | Kind::Bool => {
                    self.opt_int()?.map(Value::Int)
                }
                Kind::Text | Kind::Json => self.own_text()?.map(Value::Text),
                Kind::Bytes => self.bytes()?.map(Value::Bytes),
                Kind::Uuid => self.opt_uuid()?.map(Value::Uuid),
            };
            values.push(value.unwrap_or(Value::Null));
        }
        Ok(AnyRow { spec, values: values.into() })
    }

    pub fn event(&mut self) -> Result<EventRow, StoreError> {
        self.table = 256;
        let seq = self.number()?;
        let at = TimestampMs(self.number()?);
        let place = self.at;
        let word = self.text()?.unwrap_or_default();
        let read = EventType::parse(word);
        let read = read.ok_or_else(|| wrong(place, &format!("unknown event {word:?}")));
        let event_type = self.noted(read, EventType::Unreadable)?;
        let namespace = self.shared_text()?.unwrap_or_default();
        let lane = self.shared_text()?;
        let kind = self.shared_text()?;
        let id = self.opt_uuid()?;
        let partition = self.number()?;
        let shard = self.number()?;
        Ok(EventRow {
            shard,
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

/// Rows of a state and a number, summed by state; they are not told apart otherwise.
pub fn state_counts(rows: impl Iterator<Item = impl Cells>) -> Result<Vec<CountRow>, StoreError> {
    let mut counts: BTreeMap<PublicState, u64> = BTreeMap::new();
    for cells in rows {
        let state = cells.text(0).ok().flatten().and_then(PublicState::read);
        let state = state.unwrap_or(PublicState::Waiting);
        *counts.entry(state).or_default() += cells.int(1)?.unwrap_or(0).unsigned_abs();
    }
    let (namespace, lane): (Arc<str>, Arc<str>) = ("".into(), "".into());
    let row = |(state, count)| {
        let (namespace, lane) = (namespace.clone(), lane.clone());
        CountRow { namespace, lane, state, count }
    };
    Ok(counts.into_iter().map(row).collect())
}

/// One row that nobody can read must not stop the others: it counts as absent, loudly.
pub fn readable<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(row) => Ok(Some(row)),
        Err(StoreError::Corrupt(why)) => {
            tracing::error!(why, "an execution's row cannot be read; it is passed over");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
