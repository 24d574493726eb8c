//! Budgets: who is let go when there is room, and in which period usage counts.

use ff_core::backend::Handle;
use ff_core::contracts::{
    BudgetScope, ClaimArgs, EventType, PutBudgetArgs, ReportUsageArgs, Submission, UsageOutcome,
};
use ff_core::engine_backend::{CounterOperations, LimitOperations};
use ff_core::policy::ExecutionPolicy;
use ff_core::state::PublicState;
use ff_core::types::{BudgetId, ExecutionId, LaneId, Namespace};
use std::time::Duration;

use super::budget::{
    HOUR_MS, books, budget, charged, charged_item, id, namespace, report, standing, tokens,
};
use super::{Fixture, claim_args, code, item};

const MINUTE_MS: u64 = 60 * 1000;

/// Work that expects to use so much.
fn sized(amount: u64) -> Submission {
    let budget_estimate = tokens(amount);
    charged(ExecutionPolicy { budget_estimate, ..ExecutionPolicy::default() })
}

/// Takes everything that a budget of 100 has, lets these wait, and leaves them 20.
async fn waiting_for_the_rest(f: &Fixture, sizes: &[u64]) -> Vec<ExecutionId> {
    f.backend.put_budget(budget(100, 10)).await.unwrap();
    let (_, handle) = f.start(sized(100)).await;
    let mut ids = Vec::new();
    for size in sizes {
        ids.push(f.submit(sized(*size)).await);
    }
    assert!(f.try_claim().await.is_none());
    for id in &ids {
        assert_eq!(f.state(id).await, PublicState::RateLimited);
    }
    assert_eq!(report(f, &handle, 80, None).await, UsageOutcome::Applied);
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(books(f).await, (80, 0));
    ids
}

async fn is_left_alone(f: &Fixture, id: &ExecutionId) {
    assert_eq!(f.events(id).await, [EventType::Submitted, EventType::Limited]);
}

/// Nothing is due any more, however often somebody looks.
async fn is_quiet(f: &Fixture) {
    for _ in 0..20 {
        f.clock.advance(Duration::from_millis(1));
        assert_eq!(f.backend.engine().sweep().await.unwrap(), 0, "it is looked at again and again");
    }
}

/// What fits is let go past what does not, and what does not fit is left where it is.
pub async fn what_fits_is_woken(f: &Fixture) {
    let ids = waiting_for_the_rest(f, &[70, 70, 70, 10, 15, 10]).await;
    f.advance(0).await;
    assert_eq!(f.claim().await.execution_id, ids[3]);
    assert_eq!(f.claim().await.execution_id, ids[5]);
    for _ in 0..5 {
        assert!(f.try_claim().await.is_none());
        f.advance(1_000).await;
    }
    for at in [0, 1, 2, 4] {
        is_left_alone(f, &ids[at]).await;
    }
    is_quiet(f).await;
    assert_eq!(books(f).await, (80, 20));
}

/// However much stands before it that does not fit.
pub async fn far_behind(f: &Fixture) {
    let mut sizes = vec![70; 300];
    sizes.push(20);
    let ids = waiting_for_the_rest(f, &sizes).await;
    for _ in 0..8 {
        f.advance(1_000).await;
    }
    assert_eq!(f.claim().await.execution_id, ids[300]);
    for _ in 0..8 {
        f.advance(1_000).await;
    }
    for id in &ids[..300] {
        is_left_alone(f, id).await;
    }
    is_quiet(f).await;
}

/// Some go away while the others are looked over; nobody who waits is forgotten for it.
pub async fn gone_meanwhile(f: &Fixture) {
    let mut sizes = vec![70; 150];
    sizes[0] = 10;
    let ids = waiting_for_the_rest(f, &sizes).await;
    f.advance(0).await;
    assert_eq!(f.claim().await.execution_id, ids[0]);
    for id in &ids[64..70] {
        f.cancel_execution(id).await.unwrap();
    }
    for _ in 0..8 {
        f.advance(1_000).await;
    }
    assert_eq!(f.backend.recount_limits(false).await.unwrap(), []);
}

async fn hold_for_hours(f: &Fixture) -> Handle {
    f.submit(charged_item()).await;
    let args = ClaimArgs { lease_ttl_ms: 5 * HOUR_MS as u32, ..claim_args() };
    f.backend.claim_many(args).await.unwrap().pop().expect("there is room").handle
}

fn hourly(hard: u64) -> PutBudgetArgs {
    PutBudgetArgs { reset_period_ms: Some(HOUR_MS), ..budget(hard, 10) }
}

/// Whoever waits for a budget that a long lease holds is looked at once in a period.
pub async fn held_over_a_period(f: &Fixture) {
    f.backend.put_budget(hourly(10)).await.unwrap();
    let handle = hold_for_hours(f).await;
    let waiting = f.submit(charged_item()).await;
    assert!(f.try_claim().await.is_none());
    for _ in 0..2 {
        f.advance(HOUR_MS).await;
        is_quiet(f).await;
    }
    f.backend.complete(&handle, None).await.unwrap();
    f.advance(HOUR_MS).await;
    assert_eq!(f.claim().await.execution_id, waiting);
}

/// What a lease has used counts when it is settled, also if its period has begun meanwhile and
/// whether or not somebody has looked at the budget since.
pub async fn settled_in_its_period(f: &Fixture) {
    f.backend.put_budget(hourly(100)).await.unwrap();
    let start = f.now();
    f.advance(59 * MINUTE_MS).await;
    let (first, second) = (hold_for_hours(f).await, hold_for_hours(f).await);
    assert_eq!(books(f).await, (0, 20));
    f.advance(2 * MINUTE_MS).await;
    f.backend.complete(&first, None).await.unwrap();
    assert_eq!(books(f).await, (10, 10));
    let third = hold_for_hours(f).await;
    f.backend.complete(&second, None).await.unwrap();
    assert_eq!(books(f).await, (20, 10));
    assert_eq!(standing(f).await.next_reset_at, Some(start.after_ms(2 * HOUR_MS)));
    f.advance(59 * MINUTE_MS).await;
    assert_eq!(books(f).await, (0, 10));
    f.backend.complete(&third, None).await.unwrap();
    assert_eq!(books(f).await, (10, 0));
}

/// A period that is changed begins with the change. What the present one has used stays used until
/// the new one ends, and what earlier ones have used does not come back.
pub async fn changed_periods(f: &Fixture) {
    let put = |hours: Option<u64>| {
        let reset_period_ms = hours.map(|hours| hours * HOUR_MS);
        f.backend.put_budget(PutBudgetArgs { reset_period_ms, ..budget(100, 10) })
    };
    put(Some(1)).await.unwrap();
    let spend = async || {
        let (_, handle) = f.start(charged_item()).await;
        f.backend.complete(&handle, None).await.unwrap();
    };
    spend().await;
    f.advance(90 * MINUTE_MS).await;
    put(Some(24)).await.unwrap();
    assert_eq!(books(f).await, (0, 0));
    spend().await;
    f.advance(5 * HOUR_MS).await;
    put(Some(1)).await.unwrap();
    assert_eq!(books(f).await, (10, 0));
    assert_eq!(standing(f).await.next_reset_at, Some(f.now().after_ms(HOUR_MS)));
    // Declared anew as it was, it goes on.
    f.advance(HOUR_MS - 1).await;
    put(Some(1)).await.unwrap();
    assert_eq!(books(f).await, (10, 0));
    f.advance(1).await;
    assert_eq!(books(f).await, (0, 0));
    put(None).await.unwrap();
    spend().await;
    f.advance(9 * HOUR_MS).await;
    put(Some(1)).await.unwrap();
    assert_eq!(books(f).await, (10, 0));
}

/// Usage is reported to a budget over all namespaces as to one's own, which comes first; but not to
/// one that has nothing to do with the execution.
pub async fn over_all_namespaces(f: &Fixture) {
    let everybody = Namespace::new("");
    let over_all = |name: &str, scope| PutBudgetArgs {
        namespace: everybody.clone(),
        budget_id: BudgetId::new(name),
        scope,
        ..budget(100, 10)
    };
    let elsewhere = BudgetScope::Lane(LaneId::new("elsewhere"));
    f.backend.put_budget(over_all(&id().0, BudgetScope::Namespace)).await.unwrap();
    f.backend.put_budget(over_all("elsewhere", elsewhere)).await.unwrap();
    let used = async |namespace: &Namespace| {
        let tokens = f.backend.get_budget(namespace, &id()).await.unwrap().dimensions["tokens"];
        (tokens.used, tokens.reserved)
    };
    let (_, handle) = f.start(item()).await;
    assert_eq!(used(&everybody).await, (0, 10));
    assert_eq!(report(f, &handle, 4, Some("a")).await, UsageOutcome::Applied);
    assert_eq!(report(f, &handle, 4, Some("a")).await, UsageOutcome::AlreadyApplied);
    assert_eq!(used(&everybody).await, (4, 6));
    let budget_id = BudgetId::new("elsewhere");
    let args = ReportUsageArgs { budget_id, amounts: tokens(1), dedup_key: None };
    assert_eq!(code(&f.backend.report_usage(&handle, args).await), "not_found");
    f.backend.put_budget(budget(100, 0)).await.unwrap();
    assert_eq!(report(f, &handle, 3, Some("a")).await, UsageOutcome::Applied);
    assert_eq!((used(&everybody).await, used(&namespace()).await), ((4, 6), (3, 0)));
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(used(&everybody).await, (4, 0));
}
