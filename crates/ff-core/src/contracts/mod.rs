//! Arguments and answers of the operations, as plain values.

mod actor;
mod base64;
mod bulk;
mod counter;
mod event;
mod flow;
mod limit;
mod operator;
mod read;
mod schedule;
mod signal;
mod step;
mod stream;
mod submit;
mod suspension;
mod timer;
mod token;
mod webhook;
mod worker;
mod worker_registry;

pub(crate) use actor::take_actor;
pub use actor::{Actor, Stamp};
pub use bulk::{
    BulkAction, BulkFailure, BulkFailurePage, BulkFilter, BulkPage, BulkPreview, BulkSnapshot,
    BulkState, ListBulkArgs, StartBulkArgs,
};
pub use counter::Drift;
pub use event::{Event, EventFilter, EventType};
pub use flow::{
    EdgeGroupSnapshot, EdgeGroupState, EdgePolicy, ExtendFlowArgs, FlowEdge, FlowGraph,
    FlowGraphArgs, FlowGraphEdge, FlowGraphNode, FlowNode, FlowPage, FlowSnapshot, FlowStatus,
    FlowSummary, ForkFlowArgs, ListFlowsArgs, OnSatisfied, ParentPage, ParentResult,
    ParentResultsArgs, ReplayFlowArgs, ReplayFlowResult, SubmitFlowArgs, SubmitFlowResult,
    WaitChildrenResult,
};
pub use limit::{
    Amounts, ApproveBudgetArgs, BreachAction, BudgetScope, BudgetSnapshot, DimensionLimits,
    DimensionUsage, PutBudgetArgs, PutQuotaArgs, QuotaKey, QuotaSnapshot, QuotaUsage, RateLimit,
    ReportUsageArgs, UsageOutcome,
};
pub use operator::{
    CancelExecutionArgs, CancelExecutionResult, CancelFlowArgs, CancelFlowHeader, CancelFlowResult,
    ChangePriorityArgs, ChangePriorityResult, PauseLaneArgs, ReplayExecutionArgs,
    ReplayExecutionResult, RescheduleArgs, ResubmitArgs, ResubmitResult, RevokeLeaseArgs,
    RevokeLeaseResult, SetTagsArgs,
};
pub use read::{
    AttemptSnapshot, Durability, ExecutionPage, ExecutionSnapshot, ExecutionSummary, Explanation,
    LaneCounts, LaneSnapshot, LeaseSnapshot, ListExecutionsArgs, ListOrder, Listed,
    ProgressSnapshot, UnreadableRecord,
};
pub use schedule::{
    Backfill, BackfillScheduleArgs, ListSchedulesArgs, MissedPolicy, OverlapPolicy,
    PauseScheduleArgs, PutScheduleArgs, PutScheduleOutcome, ScheduleId, SchedulePage,
    SchedulePause, ScheduleSnapshot, ScheduleTemplate, Timing, TriggerScheduleArgs,
};
pub use signal::{
    DeliverSignalArgs, ListSignalsArgs, ResumeSignal, SignalEffect, SignalOutcome, SignalSnapshot,
    SignalSource, SignalTarget,
};
pub use step::{RecordStepOutcome, SleepOutcome, Step};
pub use stream::{
    AppendFramesArgs, AppendFramesOutcome, CloseReason, Frame, FrameId, FrameInput, FrameMode,
    ReadStreamArgs, StreamCursor, StreamEnd, StreamPage, StreamSummary, Visibility,
};
pub use submit::{
    CreateExecutionArgs, CreateExecutionResult, Idempotency, IdempotencyScope, Submission,
    SubmitOutcome,
};
pub use suspension::{
    CreateWaitpointArgs, ListWaitpointsArgs, PendingWaitpoint, Question, ResumeArgs,
    RotateWaitpointSecretArgs, RotateWaitpointSecretResult, SeedWaitpointSecretResult, SuspendArgs,
    SuspendOutcome, SuspensionDetails, SuspensionReason, SuspensionSnapshot, TIMEOUT_SIGNAL,
    TimeoutBehavior, TokenTerms, WaitEnd, WaitpointBinding, WaitpointGrant, WaitpointKeySnapshot,
    WaitpointPage, WaitpointSnapshot, WaitpointState,
};
pub use timer::{MissingTimer, TimerCheck, UnreadPolicy};
pub use token::{CreateTokenArgs, StoredToken};
pub use webhook::{
    ClaimWebhookOutcome, ClaimedWebhook, CreateWebhookArgs, ReportWebhookArgs,
    RotateWebhookSecretArgs, WebhookAttempt, WebhookDelivery, WebhookSnapshot, WebhookState,
};
pub use worker::{ClaimArgs, ClaimedExecution, FailArgs, FailOutcome, FailureClass, RenewOutcome};
pub use worker_registry::{
    HeartbeatOutcome, ListWorkersArgs, RegisterWorkerArgs, RegisterWorkerOutcome, RetireOutcome,
    WorkerRef, WorkerSnapshot,
};
