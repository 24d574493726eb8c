//! What the exercises of suspensions and signals share.

use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::condition::{Distinct, ResumeCondition, SignalMatcher};
use ff_core::contracts::{
    ClaimedExecution, CreateWaitpointArgs, DeliverSignalArgs, PendingWaitpoint, ResumeArgs,
    SignalEffect, SignalOutcome, SignalTarget, SuspendArgs, SuspendOutcome, SuspensionDetails,
    SuspensionSnapshot, WaitpointGrant,
};
use ff_core::engine::EngineConfig;
use ff_core::engine_backend::SuspensionOperations;
use ff_core::engine_error::EngineError;
use ff_core::state::PublicState;
use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets};
use ff_core::types::ExecutionId;

use super::{Fixture, item};

/// The ids of the secrets that exercises with tokens are given.
pub const KIDS: [&str; 3] = ["k1", "k2", "k3"];

pub fn with_secrets() -> EngineConfig {
    let secrets = KIDS.iter().enumerate().map(|(at, kid)| {
        WaitpointSecret::new(*kid, Secret::new([at as u8 + 1; 32])).expect("a good secret")
    });
    let waitpoint_secrets = WaitpointSecrets::new(secrets).expect("different ids");
    EngineConfig { waitpoint_secrets, ..EngineConfig::default() }
}

pub fn count(n: u32, distinct: Distinct, keys: &[&str]) -> ResumeCondition {
    let waitpoint_keys = keys.iter().map(ToString::to_string).collect();
    ResumeCondition::Count { n, distinct, matcher: SignalMatcher::Any, waitpoint_keys }
}

pub fn all_of(members: impl IntoIterator<Item = ResumeCondition>) -> ResumeCondition {
    ResumeCondition::AllOf { members: members.into_iter().collect() }
}

/// A wait for one signal named `go` on the waitpoint `gate`, without a token.
pub fn gate() -> SuspendArgs {
    SuspendArgs::new(ResumeCondition::single("gate", "go")).without_tokens()
}

/// The suspension that was made; it must have been.
pub fn put(outcome: Result<SuspendOutcome, EngineError>) -> SuspensionDetails {
    match outcome {
        Ok(SuspendOutcome::Suspended(details)) => details,
        other => panic!("expected a suspension, got {other:?}"),
    }
}

pub fn accepted(outcome: Result<SignalOutcome, EngineError>) -> SignalEffect {
    match outcome {
        Ok(SignalOutcome::Accepted { effect, .. }) => effect,
        other => panic!("expected an accepted signal, got {other:?}"),
    }
}

/// Who may signal a waitpoint of an execution without showing a token.
pub fn operator(id: &ExecutionId, waitpoint: &WaitpointGrant) -> SignalTarget {
    SignalTarget::Waitpoint { execution_id: id.clone(), waitpoint_id: waitpoint.waitpoint_id }
}

pub fn bearer(waitpoint: &WaitpointGrant) -> SignalTarget {
    SignalTarget::Token(waitpoint.token.clone().expect("the waitpoint has a token"))
}

pub fn early(key: &str) -> CreateWaitpointArgs {
    CreateWaitpointArgs { token: None, ..CreateWaitpointArgs::new(key, Duration::from_secs(60)) }
}

impl Fixture {
    /// A new execution, claimed and suspended.
    pub async fn suspended(&self, args: SuspendArgs) -> (ExecutionId, SuspensionDetails) {
        let (id, handle) = self.start(item()).await;
        let details = put(self.backend.suspend(&handle, args).await);
        assert_eq!(self.state(&id).await, PublicState::Suspended);
        (id, details)
    }

    /// Signals as an operator.
    pub async fn signal(
        &self,
        id: &ExecutionId,
        waitpoint: &WaitpointGrant,
        name: &str,
    ) -> Result<SignalOutcome, EngineError> {
        let args = DeliverSignalArgs::new(operator(id, waitpoint), name);
        self.backend.deliver_signal(args).await
    }

    pub async fn pending(&self, handle: &Handle, key: &str) -> PendingWaitpoint {
        self.backend.create_waitpoint(handle, early(key)).await.expect("a waitpoint")
    }

    pub async fn resume(&self, id: &ExecutionId) -> Result<PublicState, EngineError> {
        let (by, reason) = ("ann".into(), "looks good".into());
        let args = ResumeArgs { execution_id: id.clone(), by, reason, delay_ms: 0 };
        self.backend.resume(args).await
    }

    pub async fn suspension(&self, id: &ExecutionId) -> SuspensionSnapshot {
        self.backend.describe_suspension(id).await.unwrap().expect("it was suspended")
    }

    /// Claims the execution, which must be there, and says what it was resumed by.
    pub async fn resumed(&self, id: &ExecutionId) -> (ClaimedExecution, Vec<String>) {
        let claimed = self.claim().await;
        assert_eq!(&claimed.execution_id, id, "another execution was handed out");
        let names = claimed.resume_signals.iter().map(|one| one.signal_name.clone()).collect();
        (claimed, names)
    }
}
