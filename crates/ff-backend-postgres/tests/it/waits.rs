//! Waits between two engines on one schema: what one of them remembers of an execution and of what
//! it waits for counts for nothing once the other one has changed it.

use std::sync::Arc;
use std::time::Duration;

use ff_backend_postgres::PostgresBackend;
use ff_core::condition::{ResumeCondition, SignalMatcher};
use ff_core::contracts::{
    ClaimedExecution, CreateWaitpointArgs, DeliverSignalArgs, SignalEffect, SignalOutcome,
    SignalTarget, Submission, SuspendArgs, SuspendOutcome, TimeoutBehavior, WaitpointBinding,
};
use ff_core::engine_backend::{EngineBackend, SuspensionOperations};
use ff_core::engine_error::{EngineError, StateKind};
use ff_core::types::{ExecutionId, WaitpointId};

use crate::database::{Schema, claim_from};

const ROUNDS: usize = 20;
const HOUR: Duration = Duration::from_secs(3600);

async fn claim(engine: &PostgresBackend) -> ClaimedExecution {
    let claim = claim_from("waits", 1, Duration::from_secs(10));
    engine.claim_many(claim).await.expect("claim").remove(0)
}

fn go() -> ResumeCondition {
    ResumeCondition::Single { waitpoint_key: "go".to_owned(), matcher: SignalMatcher::Any }
}

async fn signal(
    engine: Arc<PostgresBackend>,
    execution_id: ExecutionId,
    waitpoint_id: WaitpointId,
) -> Result<SignalOutcome, EngineError> {
    let target = SignalTarget::Waitpoint { execution_id, waitpoint_id };
    engine.deliver_signal(DeliverSignalArgs::new(target, "go")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_that_the_other_engine_took_is_not_missed() {
    let schema = Schema::new();
    let (own, other) = (schema.open().await, schema.open().await);
    for round in 0..ROUNDS {
        own.submit(vec![Submission::new("waits", "test")]).await.expect("submit");
        let one = claim(&own).await;
        let args = CreateWaitpointArgs { token: None, ..CreateWaitpointArgs::new("go", HOUR) };
        let pending = own.create_waitpoint(&one.handle, args).await.expect("create");
        let waitpoint_id = pending.waitpoint.waitpoint_id;
        let early = signal(other.clone(), one.execution_id.clone(), waitpoint_id).await;
        let buffered = SignalEffect::BufferedForPendingWaitpoint;
        let early = early.expect("signal");
        assert!(matches!(early, SignalOutcome::Accepted { effect, .. } if effect == buffered));
        let args =
            SuspendArgs::new(go()).waitpoints([WaitpointBinding::UsePending { waitpoint_id }]);
        let outcome = own.suspend(&one.handle, args).await.expect("suspend");
        let SuspendOutcome::AlreadySatisfied { signals, .. } = outcome else {
            panic!("round {round}: {outcome:?}")
        };
        assert_eq!(signals.len(), 1);
        own.complete(&one.handle, None).await.expect("complete");
    }
    own.close().await;
    other.close().await;
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_signals_at_once_ends_a_wait() {
    let schema = Schema::new();
    let engines = [schema.open().await, schema.open().await];
    for round in 0..ROUNDS {
        let [own, other] = [&engines[round % 2], &engines[(round + 1) % 2]];
        own.submit(vec![Submission::new("waits", "test")]).await.expect("submit");
        let one = claim(own).await;
        let args = SuspendArgs::new(go()).without_tokens().timeout(HOUR, TimeoutBehavior::Fail);
        let outcome = own.suspend(&one.handle, args).await.expect("suspend");
        let SuspendOutcome::Suspended(details) = outcome else {
            panic!("nobody has signalled yet")
        };
        let waitpoint_id = details.waitpoints[0].waitpoint_id;
        let signals = [own, other].map(|engine| {
            tokio::spawn(signal(engine.clone(), one.execution_id.clone(), waitpoint_id))
        });
        let mut satisfied = 0;
        for outcome in signals {
            match outcome.await.expect("no panic") {
                Ok(SignalOutcome::Accepted { effect, .. }) => {
                    assert_eq!(effect, SignalEffect::ResumeConditionSatisfied, "round {round}");
                    satisfied += 1;
                }
                Err(EngineError::State(StateKind::WaitpointClosed)) => {}
                outcome => panic!("round {round}: {outcome:?}"),
            }
        }
        assert_eq!(satisfied, 1, "round {round}");
        // The engine that knows nothing of it goes on with the same attempt.
        let resumed = claim(other).await;
        assert_eq!(resumed.attempt_index, one.attempt_index);
        assert_eq!(resumed.resume_signals.len(), 1, "round {round}");
        let late = signal(own.clone(), one.execution_id.clone(), waitpoint_id).await;
        assert!(matches!(late, Err(EngineError::State(StateKind::WaitpointClosed))), "{late:?}");
        other.complete(&resumed.handle, None).await.expect("complete");
    }
    for engine in &engines {
        engine.close().await;
    }
    schema.drop().await;
}
