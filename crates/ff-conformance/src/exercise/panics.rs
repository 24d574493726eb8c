//! A bug in one operation or one timer is told to whom it concerns, and everything else goes on.

use std::time::Duration;

use ff_core::contracts::PutBudgetArgs;
use ff_core::engine_backend::LimitOperations;
use ff_core::engine_error::EngineError;
use ff_core::operations::Operation;
use ff_core::rows::{LimitStateRow, Standing};
use ff_core::state::PublicState;
use ff_core::store::{Change, Needs, World};
use ff_core::types::{ExecutionKey, TimestampMs};
use uuid::Uuid;

use super::counter::{states, write_record};
use super::{Fixture, budget, item};

/// Where an operation has its bug.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Needs,
    More,
    Decide,
}

struct Buggy(Place);

impl Operation for Buggy {
    type Reply = ();

    const NAME: &'static str = "buggy";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(ExecutionKey { partition: 0, id: Uuid::from_u128(1) });
        assert!(self.0 != Place::Needs, "a bug");
    }

    fn more(&self, _: &World, _: &mut Needs) {
        assert!(self.0 != Place::More, "a bug");
    }

    fn decide(&self, _: &World) -> Result<((), Change), EngineError> {
        assert!(self.0 != Place::Decide, "a bug");
        Ok(((), Change::default()))
    }
}

pub async fn of_operations(f: &Fixture) {
    let engine = f.backend.engine();
    for place in [Place::Needs, Place::More, Place::Decide] {
        // More often than a store has writers.
        for _ in 0..16 {
            let (refused, accepted) = tokio::join!(engine.run(None, Buggy(place)), f.offer(item()));
            assert!(refused.unwrap_err().is_panic());
            assert!(accepted.execution_id().is_some(), "the others are not harmed");
        }
    }
    let mut claimed = 0;
    while let Some(work) = f.try_claim().await {
        f.backend.complete(&work.handle, None).await.unwrap();
        claimed += 1;
    }
    assert_eq!(claimed, 48);
    engine.check_writing().unwrap();
}

/// Writes a number that a look at the budget cannot count on from.
async fn make_it_panic(f: &Fixture) -> LimitStateRow {
    let mut state = states(f).await.remove(0);
    let Standing::Budget(account) = &mut state.standing.0 else { panic!("a budget") };
    account.period = u64::MAX;
    write_record(f, &state.key, &state).await;
    state
}

/// Timers that are due together with one whose look panics fire; that one is put off, by more each
/// time, and fires once it can.
pub async fn of_due_timers(f: &Fixture) {
    let minute = PutBudgetArgs { reset_period_ms: Some(60_000), ..budget::budget(4, 4) };
    f.backend.put_budget(minute).await.unwrap();
    let (_, _holder) = f.start(budget::charged_item()).await;
    let blocked = f.submit(budget::charged_item()).await;
    assert!(f.try_claim().await.is_none(), "there is no room before the next period");
    make_it_panic(f).await;
    let delayed = f.submit(item().delay(Duration::from_secs(60))).await;
    let expiring = f.submit(item().deadline(Duration::from_secs(60))).await;
    f.advance(60_000).await;
    assert_eq!(f.state(&delayed).await, PublicState::Waiting, "the other timers fire");
    assert_eq!(f.state(&expiring).await, PublicState::Expired);
    assert_ne!(f.state(&blocked).await, PublicState::Waiting);

    // It is looked at again after a second, then after two, then after four.
    for pause_ms in [1_000, 2_000, 4_000] {
        assert_eq!(next_due(f).await, Some(f.now().after_ms(pause_ms)));
        f.advance(pause_ms).await;
    }
    let mut state = states(f).await.remove(0);
    let Standing::Budget(account) = &mut state.standing.0 else { panic!("a budget") };
    account.period = 7;
    write_record(f, &state.key, &state).await;
    f.advance(8_000).await;
    assert_eq!(f.state(&blocked).await, PublicState::Waiting, "it fires once it can");
}

/// When the budget's timer is due: nothing else has one by now but retention.
async fn next_due(f: &Fixture) -> Option<TimestampMs> {
    let query = ff_core::store::Query::NextDue(None);
    f.backend.engine().query(query).await.unwrap().next_due
}
