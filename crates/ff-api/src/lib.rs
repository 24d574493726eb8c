//! The shapes that cross HTTP, shared by the server and its clients. Field names and words are
//! those of the engine; instants are RFC 3339 in UTC, durations are `30s` or ISO 8601.

#![forbid(unsafe_code)]

mod bounded;
mod bulk;
pub mod bytes;
mod execution;
mod flow;
mod lane;
mod lease;
mod limit;
mod problem;
mod schedule;
mod span;
mod stream;
pub mod strict;
mod suspension;
mod system;
mod token;
mod webhook;

pub use bulk::{BulkAnswer, BulkFilter, BulkSnapshot, PreviewBulkRequest, StartBulkRequest};
pub use bytes::{BytesError, JSON};
pub use execution::{
    CancelRequest, ChangePriorityRequest, EventPage, ExecutionResult, HistoryPage, Payload,
    ReplayRequest, RescheduleRequest, ResubmitRequest, RevokeLeaseOutcome, RevokeLeaseRequest,
    StateAnswer, SubmitBatchAnswer, SubmitBatchRequest, SubmitOutcome, SubmitRequest,
};
pub use flow::{
    CancelFlowAnswer, CancelFlowRequest, ExtendFlowRequest, FlowNodeRequest, ForkFlowRequest,
    Parent, ParentsAnswer, SubmitFlowRequest, WaitChildrenRequest,
};
pub use lane::{CountsAnswer, LanesAnswer, PauseLaneRequest};
pub use lease::{
    CancelHeldRequest, ClaimAnswer, ClaimRequest, ClaimedExecution, CompleteRequest, DelayAnswer,
    DelayRequest, FailAnswer, FailRequest, FailureClass, LeaseBatchAnswer, LeaseBatchRequest,
    LeaseOperation, LeaseOutcome, ProgressRequest, RenewAnswer, RenewOutcome, RenewRequest,
};
pub use limit::{
    ApproveBudgetRequest, BudgetRequest, BudgetsAnswer, QuotaRequest, QuotasAnswer,
    ReleaseBudgetAnswer, ReleaseBudgetRequest, ReportUsageRequest, ResetBudgetAnswer,
};
pub use problem::Problem;
pub use schedule::{
    BackfillScheduleAnswer, BackfillScheduleRequest, PauseScheduleRequest, PreviewScheduleAnswer,
    PreviewScheduleRequest, PutScheduleAnswer, ScheduleRequest, ScheduleSnapshot, ScheduleTemplate,
    SchedulesAnswer, TriggerScheduleAnswer,
};
pub use span::{Span, SpanError};
pub use stream::{
    AppendFramesRequest, RecordStepRequest, RegisterWorkerRequest, SleepStepRequest, StepsAnswer,
    WorkersAnswer,
};
pub use suspension::{
    CreateWaitpointRequest, ObserveSignalsRequest, ResumeRequest, RotateWaitpointSecretRequest,
    Signal, SignalRequest, SignalsAnswer, SuspendAnswer, SuspendRequest, TokenSignalRequest,
    WaitpointKeysAnswer, WaitpointTokenAnswer,
};
pub use system::{Health, Version};
pub use token::{CreateTokenRequest, CreatedToken, Scope, TokenList, TokenSnapshot};
pub use webhook::{
    CreateWebhookRequest, CreatedWebhook, RotateWebhookSecretRequest, WebhookDeliveriesAnswer,
    WebhooksAnswer,
};
