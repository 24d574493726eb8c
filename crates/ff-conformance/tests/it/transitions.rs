//! Every operation in every state: one table of what it answers.

use std::sync::Arc;
use std::time::Duration;

use ff_conformance::exercise::{
    Fixture, LANE, LEASE_MS, Setup, cancel_args, claim_args, code, create_args, failure, item,
    new_id, retries,
};
use ff_core::backend::Handle;
use ff_core::condition::ResumeCondition;
use ff_core::contracts::{
    CancelExecutionArgs, CreateWaitpointArgs, FailureClass, PauseLaneArgs, RenewOutcome,
    ResubmitArgs, SetTagsArgs, SubmitOutcome, SuspendArgs,
};
use ff_core::engine::{Engine, EngineConfig, Pumping, pump};
use ff_core::engine_backend::{EngineBackend, SuspensionOperations};
use ff_core::engine_error::EngineError;
use ff_core::rows::ExecutionRow;
use ff_core::state::{BlockingReason, EligibilityState, PublicState};
use ff_core::store::memory::MemoryStore;
use ff_core::types::{CancelSource, ExecutionId, LaneId, LeaseEpoch};

const STATES: &str = "submitted waiting delayed backoff blocked held active lapsed \
                      completed failed expired cancelled suspended resumed";

/// For each operation: what it answers, and in which states. A state's word means that the
/// operation was accepted and left it there, `same` that it was accepted and nothing changed;
/// anything else is the code of a refusal, after which nothing has changed either. `others` are
/// all states that the operation's other lines do not name.
///
/// `lapsed` is an active execution whose lease has expired before anybody swept. Calls by the
/// holder use the handle that the execution was last claimed with.
#[rustfmt::skip]
const TABLE: &[(&str, &[(&str, &str)])] = &[
    ("submit", &[("same", "others")]),
    ("create_execution", &[("same", "others")]),
    ("claim", &[("active", "submitted waiting resumed"), ("same", "others")]),
    ("renew", &[
        ("active", "active"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("progress", &[
        ("active", "active"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("complete", &[
        ("completed", "active"),
        ("same", "completed"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("complete with another result", &[
        ("completed", "active"),
        ("result_already_recorded", "completed"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("fail", &[
        ("delayed", "active"),
        ("same", "backoff failed"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("fail for good", &[
        ("failed", "active"),
        ("same", "backoff failed"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("cancel", &[
        ("cancelled", "active"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("delay", &[
        ("delayed", "active"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("cancel_execution", &[
        (
            "cancelled",
            "submitted waiting delayed backoff blocked held active lapsed suspended resumed",
        ),
        ("same", "cancelled"),
        ("invalid_input", "completed failed expired"),
    ]),
    ("cancel_execution by holder", &[
        (
            "cancelled",
            "submitted waiting delayed backoff blocked held active lapsed suspended resumed",
        ),
        ("same", "cancelled"),
        ("invalid_input", "completed failed expired"),
    ]),
    ("cancel_execution by a former holder", &[
        ("stale_lease", "active lapsed"),
        ("cancelled", "submitted waiting delayed backoff blocked held suspended resumed"),
        ("same", "cancelled"),
        ("invalid_input", "completed failed expired"),
    ]),
    ("suspend", &[
        ("suspended", "active"),
        ("already_suspended", "suspended"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("create_waitpoint", &[
        ("active", "active"),
        ("lease_expired", "lapsed"),
        ("execution_not_active", "others"),
    ]),
    ("resume", &[("waiting", "suspended"), ("execution_not_suspended", "others")]),
    ("revoke_lease", &[("waiting", "active lapsed"), ("same", "others")]),
    ("change_priority", &[("waiting", "waiting resumed"), ("execution_not_eligible", "others")]),
    ("replay_execution", &[
        ("waiting", "completed failed expired"),
        ("execution_not_terminal", "others"),
    ]),
    ("resubmit", &[
        ("same", "completed failed expired cancelled"),
        ("execution_not_ended", "others"),
    ]),
    ("reschedule", &[
        ("delayed", "submitted waiting delayed backoff resumed"),
        ("not_runnable", "others"),
    ]),
    ("reschedule to now", &[
        ("waiting", "submitted waiting delayed backoff resumed"),
        ("not_runnable", "others"),
    ]),
    ("set_tags", &[
        ("waiting", "submitted waiting held resumed"),
        ("suspended", "suspended"),
        ("delayed", "delayed backoff"),
        ("waiting_children", "blocked"),
        ("active", "active lapsed"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("expired", "expired"),
        ("cancelled", "cancelled"),
    ]),
    ("pause_lane", &[("same", "others")]),
    ("sweep", &[("waiting", "lapsed"), ("same", "others")]),
    ("sweep after a minute", &[("waiting", "backoff active lapsed"), ("same", "others")]),
    ("sweep after an hour", &[
        ("waiting", "delayed"),
        ("expired", "backoff active lapsed suspended resumed"),
        ("same", "others"),
    ]),
];

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A memory store that nobody sweeps, so that an expired lease stays for the table to look at.
struct Unswept {
    engine: Engine,
}

impl EngineBackend for Unswept {
    fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// An execution in a state, and the last handle that it was claimed with.
struct Subject {
    f: Fixture,
    id: ExecutionId,
    handle: Handle,
}

async fn subject(state: &str) -> Subject {
    let setup = Setup::new(EngineConfig::default());
    let store = Arc::new(MemoryStore::new(setup.clock.clone()));
    let (engine, queue) = Engine::new(store.clone(), setup.config.clone());
    let max_batch = setup.config.limits.batch;
    let pumping = Pumping { max_batch, own_thread: false };
    tokio::spawn(pump(store.clone(), queue, pumping, std::future::pending()));
    let f = Fixture { backend: Arc::new(Unswept { engine }), clock: setup.clock };
    let block = |id: &ExecutionId, edit: fn(&mut ExecutionRow)| {
        store.edit(|tables| edit(tables.executions.get_mut(&id.key()).unwrap()));
    };
    let id = match state {
        "submitted" => {
            let id = new_id();
            f.backend.create_execution(create_args(&id, f.now())).await.unwrap();
            id
        }
        "delayed" => f.submit(item().delay(HOUR)).await,
        "blocked" => {
            let id = f.submit(item()).await;
            block(&id, |row| {
                row.eligibility = EligibilityState::BlockedByDependencies;
                row.blocking = BlockingReason::WaitingForChildren;
                row.public_state = PublicState::WaitingChildren;
            });
            id
        }
        "held" => {
            let id = f.submit(item()).await;
            block(&id, |row| {
                row.eligibility = EligibilityState::BlockedByOperator;
                row.blocking = BlockingReason::PausedByFlowCancel;
            });
            id
        }
        "waiting" => f.submit(item()).await,
        _ => {
            let (id, handle) = f.start(item().policy(retries(1, 60_000)).deadline(HOUR)).await;
            bring_to(&f, &id, &handle, state).await;
            return Subject { f, id, handle };
        }
    };
    // Nobody has claimed it, so the handle is one that somebody made up.
    let (partition, uuid) = (id.partition(), id.uuid().simple());
    let handle = format!("ffh1.f.{partition}.{uuid}.0.1.{LEASE_MS}.worker-1");
    Subject { f, id, handle: Handle::decode(&handle).unwrap() }
}

/// From active to a state that is reached by way of it.
async fn bring_to(f: &Fixture, id: &ExecutionId, handle: &Handle, state: &str) {
    match state {
        "active" => {}
        "lapsed" => f.clock.advance(Duration::from_millis(u64::from(LEASE_MS))),
        "backoff" => {
            f.backend.fail(handle, failure(FailureClass::Retryable)).await.unwrap();
        }
        "completed" => f.backend.complete(handle, None).await.unwrap(),
        "failed" => {
            f.backend.fail(handle, failure(FailureClass::Fatal)).await.unwrap();
        }
        "expired" => {
            while f.state(id).await != PublicState::Expired {
                f.backend.renew_many(std::slice::from_ref(handle)).await.unwrap();
                f.advance(u64::from(LEASE_MS) - 1).await;
            }
        }
        "cancelled" => f.cancel_execution(id).await.unwrap(),
        "suspended" | "resumed" => {
            let args = SuspendArgs::new(ResumeCondition::OperatorOnly);
            f.backend.suspend(handle, args).await.unwrap();
            if state == "resumed" {
                f.resume(id).await.unwrap();
            }
        }
        other => panic!("no such state: {other}"),
    }
}

impl Subject {
    async fn attempt(&self, operation: &str) -> Result<(), EngineError> {
        let (f, id, handle) = (&self.f, &self.id, &self.handle);
        match operation {
            "claim" => f.backend.claim_many(claim_args()).await.map(drop),
            "submit" => match f.offer(item().id(id.clone())).await {
                SubmitOutcome::Refused(error) => Err(error),
                _ => Ok(()),
            },
            "create_execution" => {
                f.backend.create_execution(create_args(id, f.now())).await.map(drop)
            }
            "cancel_execution" => f.cancel_execution(id).await,
            "cancel_execution by holder" => self.cancel(handle.lease_epoch()).await,
            "cancel_execution by a former holder" => self.cancel(LeaseEpoch(0)).await,
            "resume" => f.resume(id).await.map(drop),
            "revoke_lease" => f.revoke(id).await,
            "change_priority" => f.change_priority(id, 5).await,
            "replay_execution" => f.replay(id).await,
            "reschedule" => f.reschedule(id, 1_000).await.map(drop),
            "reschedule to now" => f.reschedule(id, 0).await.map(drop),
            "resubmit" => {
                let resubmitted = f.backend.resubmit(ResubmitArgs::new(id.clone())).await;
                resubmitted.map(drop)
            }
            "set_tags" => {
                let tags = [("team.name".to_owned(), Some("blue".to_owned()))].into();
                let execution_id = id.clone();
                f.backend.set_tags(SetTagsArgs { execution_id, tags }).await
            }
            "pause_lane" => {
                let lane_id = LaneId::new(LANE);
                let args = PauseLaneArgs { lane_id, reason: String::new(), by: String::new() };
                f.backend.pause_lane(args).await
            }
            "sweep" => f.backend.engine().sweep().await.map(drop),
            "sweep after a minute" => {
                f.advance(60_000).await;
                Ok(())
            }
            "sweep after an hour" => {
                f.advance(60 * 60 * 1000).await;
                Ok(())
            }
            _ => self.attempt_by_holder(operation).await,
        }
    }

    async fn cancel(&self, epoch: LeaseEpoch) -> Result<(), EngineError> {
        let args = CancelExecutionArgs {
            source: CancelSource::LeaseHolder,
            lease_epoch: Some(epoch),
            ..cancel_args(&self.id, self.f.now())
        };
        self.f.backend.cancel_execution(args).await.map(drop)
    }

    async fn attempt_by_holder(&self, operation: &str) -> Result<(), EngineError> {
        let (f, handle) = (&self.f, &self.handle);
        match operation {
            "renew" => {
                // The clock moves a little, or a renewal would leave no trace.
                f.clock.step(1);
                let handles = std::slice::from_ref(handle);
                match f.backend.renew_many(handles).await?.remove(0) {
                    RenewOutcome::Renewed { .. } => Ok(()),
                    RenewOutcome::Lost(error) => Err(error),
                }
            }
            "progress" => f.backend.progress(handle, Some(1), None).await,
            "complete" => f.backend.complete(handle, None).await,
            "complete with another result" => {
                f.backend.complete(handle, Some(b"other".to_vec())).await
            }
            "fail" => {
                let args = failure(FailureClass::Retryable);
                f.backend.fail(handle, args).await.map(drop)
            }
            "fail for good" => f.backend.fail(handle, failure(FailureClass::Fatal)).await.map(drop),
            "cancel" => f.backend.cancel(handle, "enough").await,
            "delay" => f.backend.delay(handle, HOUR).await.map(drop),
            "suspend" => {
                let args = SuspendArgs::new(ResumeCondition::OperatorOnly);
                f.backend.suspend(handle, args).await.map(drop)
            }
            "create_waitpoint" => {
                let args =
                    CreateWaitpointArgs { token: None, ..CreateWaitpointArgs::new("w", HOUR) };
                f.backend.create_waitpoint(handle, args).await.map(drop)
            }
            other => panic!("no such operation: {other}"),
        }
    }
}

/// What the table says about one cell, as it really is.
async fn outcome(operation: &str, state: &str) -> String {
    let subject = subject(state).await;
    let before = subject.f.picture(&subject.id).await;
    let answer = subject.attempt(operation).await;
    let same = subject.f.picture(&subject.id).await == before;
    match answer {
        Ok(()) if same => "same".to_owned(),
        Ok(()) => subject.f.state(&subject.id).await.as_str().to_owned(),
        Err(_) => {
            assert!(same, "{operation} was refused in {state} and changed something");
            code(&answer).to_owned()
        }
    }
}

/// The outcome that the table gives for a state.
fn expected(rows: &[(&'static str, &'static str)], state: &str) -> &'static str {
    let names = |states: &str, wanted: &str| states.split_whitespace().any(|one| one == wanted);
    let mut named = rows.iter().filter(|(_, states)| names(states, state));
    let others = rows.iter().find(|(_, states)| *states == "others");
    let row = named.next().or(others);
    assert!(named.next().is_none(), "{state} is named twice");
    row.unwrap_or_else(|| panic!("{state} is missing")).0
}

#[tokio::test]
async fn every_operation_in_every_state() {
    let mut wrong = Vec::new();
    for (operation, rows) in TABLE {
        for state in STATES.split_whitespace() {
            let (expected, found) = (expected(rows, state), outcome(operation, state).await);
            if found != expected {
                wrong.push(format!("{operation} in {state}: expected {expected}, found {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_names_only_states_that_exist() {
    for (operation, rows) in TABLE {
        for state in rows.iter().flat_map(|(_, states)| states.split_whitespace()) {
            let known = state == "others" || STATES.split_whitespace().any(|one| one == state);
            assert!(known, "{operation} names {state}");
        }
    }
}
