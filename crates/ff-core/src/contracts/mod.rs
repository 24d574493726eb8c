//! Arguments and answers of the operations, as plain values.

mod event;
mod operator;
mod read;
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
pub use submit::{
    CreateExecutionArgs, CreateExecutionResult, Idempotency, IdempotencyScope, Submission,
    SubmitOutcome,
};
pub use suspension::{
    CreateWaitpointArgs, DeliverSignalArgs, ListSignalsArgs, ListWaitpointsArgs, PendingWaitpoint,
    ResumeArgs, ResumeSignal, RotateWaitpointSecretArgs, RotateWaitpointSecretResult,
    SeedWaitpointSecretResult, SignalEffect, SignalOutcome, SignalSnapshot, SignalTarget,
    SuspendArgs, SuspendOutcome, SuspensionDetails, SuspensionReason, SuspensionSnapshot,
    TIMEOUT_SIGNAL, TimeoutBehavior, TokenTerms, WaitEnd, WaitpointBinding, WaitpointGrant,
    WaitpointKeySnapshot, WaitpointPage, WaitpointSnapshot, WaitpointState,
};
pub use worker::{ClaimArgs, ClaimedExecution, FailArgs, FailOutcome, FailureClass, RenewOutcome};
