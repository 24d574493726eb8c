//! Arguments and answers of the operations, as plain values.

mod event;
mod operator;
mod read;
mod signal;
mod submit;
mod suspension;
mod worker;

pub use event::{Event, EventFilter, EventType};
pub use operator::{
    CancelExecutionArgs, CancelExecutionResult, CancelFlowArgs, CancelFlowHeader, CancelFlowResult,
    ChangePriorityArgs, ChangePriorityResult, PauseLaneArgs, ReplayExecutionArgs,
    ReplayExecutionResult, RescheduleArgs, RevokeLeaseArgs, RevokeLeaseResult, SetTagsArgs,
};
pub use read::{
    AttemptSnapshot, Durability, ExecutionPage, ExecutionSnapshot, ExecutionSummary, Explanation,
    LaneCounts, LaneSnapshot, LeaseSnapshot, ListExecutionsArgs, ListOrder, ProgressSnapshot,
};
pub use signal::{
    DeliverSignalArgs, ListSignalsArgs, ResumeSignal, SignalEffect, SignalOutcome, SignalSnapshot,
    SignalTarget,
};
pub use submit::{
    CreateExecutionArgs, CreateExecutionResult, Idempotency, IdempotencyScope, Submission,
    SubmitOutcome,
};
pub use suspension::{
    CreateWaitpointArgs, ListWaitpointsArgs, PendingWaitpoint, ResumeArgs,
    RotateWaitpointSecretArgs, RotateWaitpointSecretResult, SeedWaitpointSecretResult, SuspendArgs,
    SuspendOutcome, SuspensionDetails, SuspensionReason, SuspensionSnapshot, TIMEOUT_SIGNAL,
    TimeoutBehavior, TokenTerms, WaitEnd, WaitpointBinding, WaitpointGrant, WaitpointKeySnapshot,
    WaitpointPage, WaitpointSnapshot, WaitpointState,
};
pub use worker::{ClaimArgs, ClaimedExecution, FailArgs, FailOutcome, FailureClass, RenewOutcome};
