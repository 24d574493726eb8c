//! One plain struct per table. `spelling` says how each enum is written in storage.

mod attempt;
mod bulk;
mod event;
mod execution;
mod flow;
mod idempotency;
mod lane;
mod limit;
mod record;
mod schedule;
pub mod spelling;
mod step;
mod stream;
mod suspension;
mod timer;
mod token;
mod webhook;
mod worker;

pub use attempt::{AttemptKey, AttemptRow};
pub use bulk::{BulkDefinition, BulkFailureKey, BulkFailureRow, BulkKey, BulkRow};
pub use event::EventRow;
pub use execution::{AGEING_MS_PER_PRIORITY, Blob, ExecutionRow, Rewritten};
pub(crate) use execution::{raw_object, tags, with_raw};
pub use flow::{
    BacklogKey, BacklogMemberKey, BacklogMemberRow, BacklogRow, CascadeKey, CascadeKind,
    CascadeRow, ChildrenKey, ChildrenRow, EdgeGroupKey, EdgeGroupRow, EdgeKey, EdgeKind, EdgeRow,
    Endings, FlowKey, FlowRow, FlowState,
};
pub use idempotency::{IdempotencyKey, IdempotencyRow};
pub use lane::LaneRow;
pub use limit::{
    Account, Dimensions, End, Holds, LimitKey, LimitKind, LimitRow, LimitStateKey, LimitStateRow,
    LimitUsageKey, LimitUsageRow, LimitWait, LimitWaitKey, LimitWaitRow, Pass, Permits, Rule,
    Share, Short, Standing, Window, limit_id, quota_state_id,
};
pub(crate) use limit::{budget_names, with_budget_name};
pub use record::{AnyKey, AnyRow, Column, Field, Json, Kind, Order, Record, Spec, Value, Word};
pub(crate) use record::{record, values};
pub use schedule::{Runs, ScheduleKey, ScheduleRow};
pub use step::{StepCount, StepKey, StepRow};
pub use stream::{FrameKey, FrameRow, StreamKey, StreamRow, SummaryKey, SummaryRow};
pub use suspension::{
    Kid, SignalCountKey, SignalCountRow, SignalKey, SignalRow, SuspensionKey, SuspensionOutcomeKey,
    SuspensionOutcomeRow, SuspensionRow, WaitpointKey, WaitpointKeyRow, WaitpointRow,
};
pub use timer::{TimerKey, TimerKind, TimerMember, TimerRow};
pub use token::{TokenKey, TokenRow};
pub use webhook::{WebhookDeliveryKey, WebhookDeliveryRow, WebhookKey, WebhookRow};
pub use worker::{WorkerKey, WorkerRow};

use std::fmt::Debug;
use std::hash::Hash;

/// A row knows its own key.
pub trait Row: Clone + Send + Sync + 'static {
    type Key: Clone + Debug + Ord + Hash + Send + Sync + 'static;

    fn key(&self) -> Self::Key;
}

/// Every table that is described rather than known by name, in the order of their names.
pub const RECORDS: &[&Spec] = &[
    TokenRow::SPEC,
    BulkRow::SPEC,
    BulkFailureRow::SPEC,
    BacklogRow::SPEC,
    BacklogMemberRow::SPEC,
    LimitRow::SPEC,
    LimitStateRow::SPEC,
    LimitUsageRow::SPEC,
    LimitWaitRow::SPEC,
    CascadeRow::SPEC,
    ChildrenRow::SPEC,
    EdgeRow::SPEC,
    EdgeGroupRow::SPEC,
    ScheduleRow::SPEC,
    SignalRow::SPEC,
    SignalCountRow::SPEC,
    SuspensionRow::SPEC,
    SuspensionOutcomeRow::SPEC,
    WaitpointRow::SPEC,
    WaitpointKeyRow::SPEC,
    StepRow::SPEC,
    StreamRow::SPEC,
    FrameRow::SPEC,
    SummaryRow::SPEC,
    WebhookRow::SPEC,
    WebhookDeliveryRow::SPEC,
    WorkerRow::SPEC,
];
