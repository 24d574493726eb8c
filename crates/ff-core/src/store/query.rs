//! Reads outside transactions: what may be asked, and rows for an answer.

use std::sync::Arc;

use uuid::Uuid;

use super::{Damage, RetentionScan, Scan};
use crate::contracts::ListOrder;
use crate::engine_error::StoreError;
use crate::rows::Value;
use crate::rows::{
    AnyKey, AnyRow, AttemptRow, EventRow, ExecutionRow, FlowKey, FlowRow, FlowState, LaneRow,
    Record, TimerKey, TimerRow,
};
use crate::state::PublicState;
use crate::types::{ExecutionKey, TimestampMs};

#[derive(Clone, Debug)]
pub enum Query {
    /// `executions` (0 or 1), all its `attempts`, its `lanes`, its `flows`.
    Execution(ExecutionKey),
    /// A page of `executions`.
    Executions(ListQuery),
    /// `count`: how many executions the filter names.
    Count(ListQuery),
    /// `flows` (0 or 1) and `counts` of its members per state.
    Flow(FlowKey),
    /// A page of `flows`, the newest first.
    Flows(FlowListQuery),
    /// The unfinished `executions` of a flow that its cancellation does not hold back, up to a
    /// number.
    UnfinishedMembers { flow: FlowKey, limit: usize },
    /// The stored payloads of these executions, as `blobs`.
    Payloads(Vec<ExecutionKey>),
    /// `executions` by their keys, in that order, and their stored results as `blobs`. Ends before
    /// the first whose result does not fit into so many bytes with those before it; one always
    /// comes.
    Results { keys: Vec<ExecutionKey>, bytes: usize },
    /// `events` after a place in each shard of the log, so many of each at most, and `log`. The
    /// event at the place itself comes first, if the log still has it, and is not counted.
    Events { after: Vec<u64>, limit: usize },
    /// `events` of one execution after one of its versions.
    History { execution: ExecutionKey, after_version: u64, limit: usize },
    /// `counts` per namespace, lane and state.
    Counts { namespace: Option<Arc<str>> },
    /// All `lanes`, sorted.
    Lanes,
    /// `records` by their keys, and those that scans find, one scan after the other.
    Records { keys: Vec<AnyKey>, scans: Vec<Scan> },
    /// `log`: where the log begins and ends.
    Log,
    /// `next_due`: when the sweeper has something to do.
    NextDue(Option<RetentionScan>),
    /// A page of `timers` in the order of their due times, behind one of them.
    Timers { after: Option<TimerKey>, limit: usize },
}

/// Which flows to list, with a keyset position.
#[derive(Clone, Debug, Default)]
pub struct FlowListQuery {
    pub namespace: Option<Arc<str>>,
    pub states: Vec<FlowState>,
    /// The creation time and id of the last flow of the page before.
    pub after: Option<(TimestampMs, Uuid)>,
    pub limit: usize,
}

impl Query {
    /// Whether a text that it compares with contains a NUL character, which no stored text has.
    /// Postgres refuses such a text, so no store is asked.
    pub fn has_nul(&self) -> bool {
        let nul = |text: &Option<Arc<str>>| text.as_ref().is_some_and(|text| text.contains('\0'));
        let listed = |list: &ListQuery| {
            let tag = list.tag.as_ref();
            nul(&list.namespace)
                || nul(&list.lane)
                || nul(&list.kind)
                || tag.is_some_and(|(key, value)| key.contains('\0') || value.contains('\0'))
        };
        let valued = |values: &[Value]| {
            values.iter().any(|value| matches!(value, Value::Text(text) if text.contains('\0')))
        };
        match self {
            Self::Executions(list) | Self::Count(list) => listed(list),
            Self::Flows(list) => nul(&list.namespace),
            Self::Counts { namespace } => nul(namespace),
            Self::Records { keys, scans } => {
                keys.iter().any(|key| valued(&key.values))
                    || scans.iter().any(|scan| valued(&scan.prefix) || valued(&scan.after))
            }
            _ => false,
        }
    }
}

/// A filter with a keyset position.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    pub namespace: Option<Arc<str>>,
    pub lane: Option<Arc<str>>,
    pub states: Vec<PublicState>,
    pub kind: Option<Arc<str>>,
    pub flow_id: Option<Uuid>,
    pub tag: Option<(String, String)>,
    pub created_from: Option<TimestampMs>,
    pub created_before: Option<TimestampMs>,
    pub order: ListOrder,
    /// The creation time and id of the last execution of the page before.
    pub after: Option<(TimestampMs, Uuid)>,
    pub limit: usize,
}

impl ListQuery {
    /// Whether a row passes the filter, its position apart.
    pub fn matches(&self, row: &ExecutionRow) -> bool {
        let same = |wanted: &Option<Arc<str>>, have: &Arc<str>| {
            wanted.as_ref().is_none_or(|wanted| wanted == have)
        };
        same(&self.namespace, &row.namespace)
            && same(&self.lane, &row.lane)
            && same(&self.kind, &row.kind)
            && (self.states.is_empty() || self.states.contains(&row.public_state))
            && (self.flow_id.is_none() || self.flow_id == row.flow_id)
            && self.in_window(row)
            && self.tag.as_ref().is_none_or(|(key, value)| row.tags().get(key) == Some(value))
    }

    /// Whether a row was created in the time that is asked for.
    pub fn in_window(&self, row: &ExecutionRow) -> bool {
        self.created_from.is_none_or(|from| row.created_at >= from)
            && self.created_before.is_none_or(|before| row.created_at < before)
    }

    /// Whether a row comes after the position.
    pub fn is_after(&self, row: &ExecutionRow) -> bool {
        let here = (row.created_at, row.key.id);
        self.after.is_none_or(|after| match self.order {
            ListOrder::NewestFirst => here < after,
            ListOrder::OldestFirst => here > after,
        })
    }
}

/// Rows of every kind; a query fills those that it speaks of.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub now: TimestampMs,
    pub executions: Vec<ExecutionRow>,
    pub attempts: Vec<AttemptRow>,
    pub flows: Vec<FlowRow>,
    pub lanes: Vec<LaneRow>,
    pub events: Vec<EventRow>,
    pub blobs: Vec<(ExecutionKey, Arc<[u8]>)>,
    pub records: Vec<AnyRow>,
    pub counts: Vec<CountRow>,
    pub count: u64,
    pub log: Option<LogBounds>,
    pub next_due: Option<TimestampMs>,
    pub timers: Vec<TimerRow>,
    /// What could not be read of the rows above.
    pub damage: Damage,
}

impl Rows {
    /// The records of one table, in the order in which they were found.
    pub fn records<R: Record>(&self) -> Result<Vec<R>, StoreError> {
        self.records.iter().filter_map(|row| row.decode().transpose()).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountRow {
    pub namespace: Arc<str>,
    pub lane: Arc<str>,
    pub state: PublicState,
    pub count: u64,
}

/// The log's identity and what each of its shards has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBounds {
    pub history_id: Uuid,
    pub secret: LogSecret,
    pub shards: Vec<ShardBounds>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardBounds {
    /// The first place that can still be read.
    pub floor: u64,
    /// The last place written.
    pub head: u64,
    /// The mark of the event before the floor; 0 if there was none or it is not known.
    pub floor_mark: u32,
}

/// Random bytes that are stored with the log. Cursors are sealed with keys made from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LogSecret(pub [u8; 32]);

impl std::fmt::Debug for LogSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogSecret(..)")
    }
}
