//! A signal, a time-out and a cancellation in one transaction, in every order: the first ends the
//! wait, and the others find it ended.

use std::sync::Arc;
use std::time::Duration;

use ff_conformance::exercise::{Fixture, Setup, cancel_args, item};
use ff_core::condition::ResumeCondition;
use ff_core::contracts::{
    DeliverSignalArgs, SignalOutcome, SignalTarget, SuspendArgs, SuspendOutcome, TimeoutBehavior,
    WaitEnd,
};
use ff_core::engine::{EngineConfig, prepare_deliver_signal};
use ff_core::engine_backend::SuspensionOperations;
use ff_core::operations::execution::CancelExecution;
use ff_core::operations::timer::Sweep;
use ff_core::state::PublicState;
use ff_core::store::memory::MemoryBackend;
use ff_core::store::{Batch, Job};
use ff_core::token::{Keyring, WaitpointSecrets};
use ff_core::types::ExecutionId;
use tokio::sync::oneshot;

/// What shares the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rival {
    Signal,
    Sweep,
    Cancel,
}

struct Race {
    f: Fixture,
    backend: Arc<MemoryBackend>,
    id: ExecutionId,
    signal: DeliverSignalArgs,
}

/// A suspended execution whose time has just run out, before anybody has swept.
async fn race(behavior: TimeoutBehavior) -> Race {
    let setup = Setup::new(EngineConfig::default());
    let backend = MemoryBackend::new(setup.clock.clone(), setup.config);
    let f = Fixture { backend: backend.clone(), clock: setup.clock };
    let (id, handle) = f.start(item()).await;
    let args = SuspendArgs::new(ResumeCondition::single("gate", "go"))
        .without_tokens()
        .timeout(Duration::from_secs(10), behavior);
    let SuspendOutcome::Suspended(details) = f.backend.suspend(&handle, args).await.unwrap() else {
        panic!("nothing had been signalled");
    };
    let waitpoint_id = details.waitpoints[0].waitpoint_id;
    let target = SignalTarget::Waitpoint { execution_id: id.clone(), waitpoint_id };
    Race { f, backend, id, signal: DeliverSignalArgs::new(target, "go") }
}

impl Race {
    /// Runs the rivals in one transaction; the outcome of the signal, if there was one.
    fn run(&self, order: &[Rival]) -> Option<Result<SignalOutcome, &'static str>> {
        let mut answer = None;
        // Nobody else may sweep between the moment and the transaction, so both are one.
        self.f.clock.step(10_000);
        let jobs = order.iter().map(|rival| match rival {
            Rival::Signal => {
                let (reply, receiver) = oneshot::channel();
                answer = Some(receiver);
                let ring = Keyring::new(&WaitpointSecrets::default());
                let limits = ff_core::limits::Limits::default();
                let operation = prepare_deliver_signal(self.signal.clone(), &ring, &limits);
                Job::new(operation.unwrap(), None, reply)
            }
            Rival::Sweep => {
                let (reply, _) = oneshot::channel();
                Job::new(
                    Sweep { limit: 10, bulk_chunk: 100, entropy: 0, isolation: None },
                    None,
                    reply,
                )
            }
            Rival::Cancel => {
                let (reply, _) = oneshot::channel();
                let args = cancel_args(&self.id, self.f.now());
                Job::new(CancelExecution { args }, None, reply)
            }
        });
        let mut batch = Batch::new(jobs.collect());
        self.backend.store().transact_now(&mut batch, true).unwrap();
        batch.answer();
        answer.map(|mut answer| answer.try_recv().unwrap().map_err(|error| error.code()))
    }
}

#[tokio::test]
async fn the_first_of_a_transaction_ends_the_wait() {
    use Rival::{Cancel, Signal, Sweep};
    let orders: [&[Rival]; 6] = [
        &[Signal, Sweep],
        &[Sweep, Signal],
        &[Signal, Cancel],
        &[Cancel, Signal],
        &[Cancel, Signal, Sweep],
        &[Sweep, Cancel, Signal],
    ];
    for behavior in [TimeoutBehavior::Fail, TimeoutBehavior::AutoResumeWithTimeoutSignal] {
        for order in orders {
            let race = race(behavior).await;
            let signalled = race.run(order);
            let end = race.f.backend.describe_suspension(&race.id).await.unwrap().unwrap().end;
            let expected = match (order[0], behavior) {
                (Signal, _) => WaitEnd::Satisfied,
                (Cancel, _) => WaitEnd::ExecutionEnded,
                (Sweep, TimeoutBehavior::Fail) => WaitEnd::TimedOut,
                (Sweep, _) => WaitEnd::AutoResumed,
            };
            assert_eq!(end, Some(expected), "{order:?} with {behavior:?}");
            let accepted = matches!(signalled, Some(Ok(SignalOutcome::Accepted { .. })));
            assert_eq!(accepted, order[0] == Signal, "{order:?}: {signalled:?}");
            let state = race.f.state(&race.id).await;
            let failed = expected == WaitEnd::TimedOut;
            let cancelled = order.contains(&Cancel) && !failed;
            let left = match (failed, cancelled) {
                (true, _) => PublicState::Failed,
                (_, true) => PublicState::Cancelled,
                _ => PublicState::Waiting,
            };
            assert_eq!(state, left, "{order:?} with {behavior:?}");
        }
    }
}
