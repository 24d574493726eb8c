//! Budgets: a hard limit that is never exceeded, and books that balance whatever happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::contracts::{
    Amounts, ApproveBudgetArgs, BreachAction, BudgetScope, BudgetSnapshot, DimensionLimits,
    EventType, FailureClass, PutBudgetArgs, PutQuotaArgs, ReportUsageArgs, Submission,
    SubmitOutcome, UsageOutcome,
};
use ff_core::engine_backend::{EngineBackend, LimitOperations, Namespaced};
use ff_core::policy::ExecutionPolicy;
use ff_core::state::PublicState;
use ff_core::types::{BudgetId, FlowId, LaneId, Namespace};

use super::flow_graph::{claim_all, complete_all, graph, plant, states};
use super::quota::quota;
use super::{Fixture, LANE, LEASE_MS, claim_args, code, failure, item, retries};

pub(super) const HOUR_MS: u64 = 60 * 60 * 1000;

pub(super) fn namespace() -> Namespace {
    Namespace::new("default")
}

pub(super) fn id() -> BudgetId {
    BudgetId::new("tokens-per-day")
}

pub(super) fn tokens(amount: u64) -> Amounts {
    BTreeMap::from([("tokens".to_owned(), amount)])
}

pub(super) fn budget(hard: u64, estimate: u64) -> PutBudgetArgs {
    let limits = DimensionLimits { hard: Some(hard), soft: None };
    PutBudgetArgs {
        namespace: namespace(),
        budget_id: id(),
        dimensions: BTreeMap::from([("tokens".to_owned(), limits)]),
        estimate: if estimate > 0 { tokens(estimate) } else { Amounts::new() },
        ..PutBudgetArgs::default()
    }
}

pub(super) fn charged(policy: ExecutionPolicy) -> Submission {
    item().policy(ExecutionPolicy { budget_ids: vec![id().0], ..policy })
}

pub(super) fn charged_item() -> Submission {
    charged(ExecutionPolicy::default())
}

pub(super) async fn standing(f: &Fixture) -> BudgetSnapshot {
    f.backend.get_budget(&namespace(), &id()).await.unwrap()
}

pub(super) async fn books(f: &Fixture) -> (u64, u64) {
    let tokens = standing(f).await.dimensions["tokens"];
    if let Some(hard) = tokens.hard {
        assert!(tokens.used + tokens.reserved <= hard, "{tokens:?}");
    }
    (tokens.used, tokens.reserved)
}

pub(super) async fn report(
    f: &Fixture,
    handle: &Handle,
    amount: u64,
    key: Option<&str>,
) -> UsageOutcome {
    let dedup_key = key.map(ToOwned::to_owned);
    let args = ReportUsageArgs { budget_id: id(), amounts: tokens(amount), dedup_key };
    f.backend.report_usage(handle, args).await.unwrap()
}

pub async fn never_overspent(f: &Fixture) {
    f.backend.put_budget(budget(100, 10)).await.unwrap();
    for _ in 0..64 {
        f.submit(charged_item()).await;
    }
    let claims: Vec<_> = (0..64)
        .map(|_| {
            let backend = f.backend.clone();
            tokio::spawn(async move { backend.claim_many(claim_args()).await.unwrap() })
        })
        .collect();
    let mut held = Vec::new();
    for claim in claims {
        held.extend(claim.await.unwrap());
    }
    assert_eq!(held.len(), 10);
    assert_eq!(books(f).await, (0, 100));
    // Reports at once, each within what its execution holds and beyond it.
    let reports: Vec<_> = held
        .iter()
        .flat_map(|one| [4, 4, 4].map(|amount| (one.handle.clone(), amount)))
        .map(|(handle, amount)| {
            let f = f.clone();
            tokio::spawn(async move { report(&f, &handle, amount, None).await })
        })
        .collect();
    let mut applied = 0;
    for report in reports {
        applied += match report.await.unwrap() {
            UsageOutcome::HardBreach { .. } => 0,
            _ => 4,
        };
    }
    assert_eq!(books(f).await.0, applied);
    for one in &held {
        f.backend.complete(&one.handle, None).await.unwrap();
    }
    assert_eq!(books(f).await, (applied, 0));
}

/// The holder's word settles; a cancellation or a lost lease refunds. Either way what was reported
/// stays used.
pub async fn settled_and_refunded(f: &Fixture) {
    f.backend.put_budget(budget(1_000, 40)).await.unwrap();
    let backend = &f.backend;
    let mut expected = 0;
    for (ending, reported, used) in [
        ("complete", None, 40),
        ("complete", Some(15), 15),
        ("complete", Some(90), 90),
        ("fail", None, 40),
        ("retry", Some(5), 5),
        ("expire", None, 0),
        ("expire", Some(7), 7),
        ("revoke", None, 0),
        ("cancel", None, 0),
        ("cancel", Some(50), 50),
        ("give up", None, 0),
        ("delay", None, 0),
    ] {
        let (id, handle) = f.start(charged(retries(1, 60_000))).await;
        assert_eq!(books(f).await, (expected, 40), "{ending}");
        if let Some(reported) = reported {
            assert_eq!(report(f, &handle, reported, None).await, UsageOutcome::Applied);
        }
        match ending {
            "complete" => backend.complete(&handle, None).await.unwrap(),
            "fail" => drop(backend.fail(&handle, failure(FailureClass::Fatal)).await.unwrap()),
            "retry" => drop(backend.fail(&handle, failure(FailureClass::Retryable)).await.unwrap()),
            "expire" => f.advance(u64::from(LEASE_MS)).await,
            "revoke" => f.revoke(&id).await.unwrap(),
            "cancel" => f.cancel_execution(&id).await.unwrap(),
            "give up" => backend.cancel(&handle, "enough").await.unwrap(),
            _ => drop(backend.delay(&handle, Duration::from_secs(90)).await.unwrap()),
        }
        expected += used;
        assert_eq!(books(f).await, (expected, 0), "{ending} after {reported:?}");
        let _ = f.cancel_execution(&id).await;
    }
}

pub async fn reports(f: &Fixture) {
    let mut args = budget(100, 0);
    args.dimensions.insert("tokens".into(), DimensionLimits { hard: Some(100), soft: Some(50) });
    f.backend.put_budget(args).await.unwrap();
    let (execution, handle) = f.start(charged_item()).await;
    assert_eq!(report(f, &handle, 30, Some("a")).await, UsageOutcome::Applied);
    assert_eq!(report(f, &handle, 30, Some("a")).await, UsageOutcome::AlreadyApplied);
    assert_eq!(books(f).await, (30, 0));
    let soft = UsageOutcome::SoftBreach { dimension: "tokens".into(), used: 60, soft: 50 };
    assert_eq!(report(f, &handle, 30, Some("b")).await, soft);
    let hard = UsageOutcome::HardBreach { dimension: "tokens".into(), used: 60, hard: 100 };
    assert_eq!(report(f, &handle, 41, Some("c")).await, hard);
    assert_eq!(books(f).await, (60, 0));
    // What was not applied may be reported again, with the same key.
    let soft = UsageOutcome::SoftBreach { dimension: "tokens".into(), used: 100, soft: 50 };
    assert_eq!(report(f, &handle, 40, Some("c")).await, soft);
    let standing = standing(f).await;
    assert_eq!((standing.hard_breaches, standing.soft_breaches), (1, 2));
    assert_eq!(standing.last_breach_dimension.as_deref(), Some("tokens"));

    // A holder that has lost its lease spends nothing.
    f.revoke(&execution).await.unwrap();
    let args = ReportUsageArgs { budget_id: id(), amounts: tokens(0), dedup_key: None };
    let stale = f.backend.report_usage(&handle, args.clone()).await;
    assert_eq!(code(&stale), "execution_not_active");
    let released = f.backend.release_budget(&namespace(), &id(), &execution).await.unwrap();
    assert_eq!(released, tokens(100));
    assert_eq!(books(f).await, (0, 0));
    let again = f.backend.release_budget(&namespace(), &id(), &execution).await.unwrap();
    assert_eq!(again, Amounts::new());
    assert_eq!(books(f).await, (0, 0));
}

pub async fn periods(f: &Fixture) {
    let args = PutBudgetArgs { reset_period_ms: Some(HOUR_MS), ..budget(10, 10) };
    f.backend.put_budget(args).await.unwrap();
    let start = f.now();
    let (_, handle) = f.start(charged_item()).await;
    let waiting = f.submit(charged_item()).await;
    assert!(f.try_claim().await.is_none());
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(books(f).await, (10, 0));
    assert_eq!(standing(f).await.next_reset_at, Some(start.after_ms(HOUR_MS)));
    assert_eq!(f.state(&waiting).await, PublicState::RateLimited);
    let why = f.backend.explain(&waiting).await.unwrap();
    assert_eq!((&*why.rule, why.next_change_at), ("budget", Some(start.after_ms(HOUR_MS))));
    assert_eq!((&why.details["used"], &why.details["hard"]), (&10.into(), &10.into()));
    f.advance(HOUR_MS - 1).await;
    assert!(f.try_claim().await.is_none());
    f.advance(1).await;
    assert_eq!(books(f).await, (0, 0));
    assert_eq!(f.claim().await.execution_id, waiting);

    // An operator need not wait for it.
    let next = f.submit(charged_item()).await;
    assert!(f.try_claim().await.is_none());
    let reset = f.backend.reset_budget(&namespace(), &id()).await.unwrap();
    assert_eq!(reset, Some(f.now().after_ms(HOUR_MS)));
    f.advance(0).await;
    // What is reserved is in use, and stays so.
    assert_eq!(books(f).await, (0, 10));
    assert_eq!(f.state(&next).await, PublicState::RateLimited);
}

/// Room that comes back is given to those who wait for it.
pub async fn refunds_wake(f: &Fixture) {
    f.backend.put_budget(budget(10, 10)).await.unwrap();
    let (id, _) = f.start(charged_item()).await;
    let waiting = f.submit(charged_item()).await;
    let other = f.submit(item()).await;
    // Work without a budget is not held up.
    assert_eq!(f.claim().await.execution_id, other);
    assert!(f.try_claim().await.is_none());
    f.cancel_execution(&id).await.unwrap();
    f.advance(0).await;
    assert_eq!(f.claim().await.execution_id, waiting);
    let raised = f.submit(charged_item()).await;
    assert!(f.try_claim().await.is_none());
    f.backend.put_budget(budget(20, 10)).await.unwrap();
    f.advance(1).await;
    assert_eq!(f.claim().await.execution_id, raised);
}

pub async fn suspended_for_approval(f: &Fixture) {
    let args = PutBudgetArgs { on_breach: BreachAction::Suspend, ..budget(10, 10) };
    f.backend.put_budget(args).await.unwrap();
    f.start(charged_item()).await;
    let waiting = f.submit(charged_item()).await;
    assert!(f.try_claim().await.is_none());
    assert_eq!(f.state(&waiting).await, PublicState::Suspended);
    let why = f.backend.explain(&waiting).await.unwrap();
    assert_eq!(why.rule, "budget_approval", "{why:?}");
    let approve = |raise: Amounts| ApproveBudgetArgs {
        execution_id: waiting.clone(),
        raise,
        by: "somebody".into(),
    };
    // Approval without room asks the budget again, which still has none.
    f.backend.approve_budget(approve(Amounts::new())).await.unwrap();
    assert!(f.try_claim().await.is_none());
    assert_eq!(f.state(&waiting).await, PublicState::Suspended);
    let unknown = BTreeMap::from([("cents".to_owned(), 1)]);
    assert_eq!(code(&f.backend.approve_budget(approve(unknown)).await), "invalid_input");
    f.backend.approve_budget(approve(tokens(10))).await.unwrap();
    assert_eq!(f.claim().await.execution_id, waiting);
    assert_eq!(books(f).await, (0, 20));
    assert_eq!(code(&f.backend.approve_budget(approve(tokens(10))).await), "not_runnable");
}

/// A budget over all namespaces is raised only by those who are confined to none.
pub async fn raised_by_its_owner(f: &Fixture) {
    let everybody = Namespace::new("");
    let args = PutBudgetArgs {
        namespace: everybody.clone(),
        scope: BudgetScope::Namespace,
        on_breach: BreachAction::Suspend,
        ..budget(10, 10)
    };
    f.backend.put_budget(args).await.unwrap();
    f.start(item()).await;
    let waiting = f.submit(item()).await;
    assert!(f.try_claim().await.is_none());
    assert_eq!(f.state(&waiting).await, PublicState::Suspended);
    let raise = |raise: u64| ApproveBudgetArgs {
        execution_id: waiting.clone(),
        raise: tokens(raise),
        by: "somebody".into(),
    };
    let tenant = Namespaced::new(f.backend.clone(), namespace());
    assert_eq!(code(&tenant.approve_budget(raise(1_000)).await), "not_found");
    let hard =
        async || f.backend.get_budget(&everybody, &id()).await.unwrap().dimensions["tokens"].hard;
    assert_eq!(hard().await, Some(10));
    f.backend.approve_budget(raise(u64::MAX >> 11)).await.unwrap();
    assert_eq!(hard().await, Some(ff_core::limits::AMOUNT_MAX));
}

/// Claims look at a bounded number of limits, so no more can be declared.
pub async fn bounded_number(f: &Fixture) {
    let put = |number: usize| {
        let budget_id = BudgetId::new(format!("budget-{number}"));
        let args = PutBudgetArgs { budget_id, scope: BudgetScope::Namespace, ..budget(10, 1) };
        f.backend.put_budget(args)
    };
    for number in 0..256 {
        put(number).await.unwrap();
    }
    assert_eq!(code(&put(256).await), "invalid_input");
    put(7).await.unwrap();
    f.backend.delete_budget(&namespace(), &BudgetId::new("budget-7")).await.unwrap();
    put(256).await.unwrap();
    // Quotas over all lanes are among them, and so is one that is to be over all lanes from now on.
    let everywhere = PutQuotaArgs { lane_id: None, ..quota("one") };
    assert_eq!(code(&f.backend.put_quota(everywhere.clone()).await), "invalid_input");
    f.backend.put_quota(quota("one")).await.unwrap();
    assert_eq!(code(&f.backend.put_quota(everywhere.clone()).await), "invalid_input");
    f.backend.delete_budget(&namespace(), &BudgetId::new("budget-8")).await.unwrap();
    f.backend.put_quota(everywhere.clone()).await.unwrap();
    f.backend.put_quota(everywhere).await.unwrap();
    assert_eq!(code(&put(257).await), "invalid_input");
}

pub async fn pending_is_cancelled(f: &Fixture) {
    let args = PutBudgetArgs { on_breach: BreachAction::CancelPending, ..budget(10, 10) };
    f.backend.put_budget(args).await.unwrap();
    let (_, handle) = f.start(charged_item()).await;
    let mut pending = Vec::new();
    for _ in 0..5 {
        pending.push(f.submit(charged_item()).await);
    }
    assert!(f.try_claim().await.is_none());
    for id in &pending {
        assert_eq!(f.state(id).await, PublicState::Cancelled);
    }
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(books(f).await, (10, 0));
    assert_eq!(standing(f).await.hard_breaches, 5);
}

pub async fn scopes(f: &Fixture) {
    let tagged = || item().tag("team.name", "red");
    let lane = LaneId::new(LANE);
    let tag = BudgetScope::Tag { name: "team.name".into(), value: "red".into() };
    for scope in [BudgetScope::Lane(lane), tag, BudgetScope::Namespace] {
        let args = PutBudgetArgs { scope: scope.clone(), ..budget(1, 1) };
        f.backend.put_budget(args).await.unwrap();
        let elsewhere = Submission { namespace: Namespace::new("other"), ..item() };
        let free = f.submit(elsewhere.priority(9)).await;
        let (_, handle) = {
            assert_eq!(f.claim().await.execution_id, free, "{scope:?}");
            f.start(tagged()).await
        };
        let blocked = f.submit(tagged()).await;
        assert!(f.try_claim().await.is_none(), "{scope:?}");
        assert_eq!(books(f).await, (0, 1), "{scope:?}");
        f.cancel_execution(&blocked).await.unwrap();
        f.backend.cancel(&handle, "done").await.unwrap();
        f.cancel_execution(&free).await.unwrap();
    }
    let mine = f.submit(item()).await;
    let other = f.submit(item()).await;
    let args = PutBudgetArgs { scope: BudgetScope::Execution(mine.clone()), ..budget(1, 2) };
    f.backend.put_budget(args).await.unwrap();
    assert!(f.events(&mine).await.contains(&EventType::BudgetAttached));
    assert_eq!(f.claim().await.execution_id, other);
    assert!(f.try_claim().await.is_none());
    assert_eq!(f.state(&mine).await, PublicState::RateLimited);
}

pub async fn own_estimates(f: &Fixture) {
    f.backend.put_budget(budget(100, 10)).await.unwrap();
    let policy = ExecutionPolicy { budget_estimate: tokens(70), ..ExecutionPolicy::default() };
    f.start(charged(policy.clone())).await;
    assert_eq!(books(f).await, (0, 70));
    // What does not fit lets smaller work pass.
    let large = f.submit(charged(policy)).await;
    let small = f.submit(charged_item()).await;
    assert_eq!(f.claim().await.execution_id, small);
    assert_eq!(f.state(&large).await, PublicState::RateLimited);
    assert_eq!(books(f).await, (0, 80));
}

pub async fn refusals(f: &Fixture) {
    let backend = &f.backend;
    match f.offer(charged_item()).await {
        SubmitOutcome::Refused(error) => assert_eq!(error.code(), "not_found"),
        other => panic!("a budget that is not there was accepted: {other:?}"),
    }
    let bad = [
        PutBudgetArgs { budget_id: BudgetId::new(""), ..budget(1, 0) },
        PutBudgetArgs { namespace: Namespace::default(), ..budget(1, 0) },
        PutBudgetArgs { dimensions: BTreeMap::new(), ..budget(1, 0) },
        PutBudgetArgs { estimate: BTreeMap::from([("cents".into(), 1)]), ..budget(1, 0) },
        PutBudgetArgs { reset_period_ms: Some(0), ..budget(1, 0) },
        budget(1, u64::MAX),
    ];
    for args in bad {
        assert_eq!(code(&backend.put_budget(args.clone()).await), "invalid_input", "{args:?}");
    }
    assert_eq!(code(&backend.get_budget(&namespace(), &id()).await), "not_found");
    assert_eq!(code(&backend.reset_budget(&namespace(), &id()).await), "not_found");
    let budget_ids = (0..9).map(|at| at.to_string()).collect();
    let policy = ExecutionPolicy { budget_ids, ..ExecutionPolicy::default() };
    match f.offer(item().policy(policy)).await {
        SubmitOutcome::Refused(error) => assert_eq!(error.code(), "invalid_policy_json"),
        other => panic!("nine budgets were accepted: {other:?}"),
    }
}

pub async fn namespaces(f: &Fixture) {
    f.backend.put_budget(budget(10, 1)).await.unwrap();
    let stranger = Namespaced::new(f.backend.clone(), Namespace::new("stranger"));
    let stranger: Arc<dyn EngineBackend> = Arc::new(stranger);
    let nobody = Namespace::default();
    assert_eq!(code(&stranger.get_budget(&nobody, &id()).await), "not_found");
    assert_eq!(code(&stranger.get_budget(&namespace(), &id()).await), "invalid_input");
    assert!(stranger.list_budgets(&nobody, None, 10).await.unwrap().is_empty());
    let listed = f.backend.list_budgets(&namespace(), None, 10).await.unwrap();
    assert_eq!(listed.items, [standing(f).await]);
    assert!(f.backend.list_budgets(&namespace(), Some(&id()), 10).await.unwrap().is_empty());
    // The same name elsewhere is another budget.
    let own = PutBudgetArgs { namespace: nobody.clone(), ..budget(3, 1) };
    stranger.put_budget(own).await.unwrap();
    let seen = stranger.get_budget(&nobody, &id()).await.unwrap();
    assert_eq!(seen.dimensions["tokens"].hard, Some(3));
    assert_eq!(standing(f).await.dimensions["tokens"].hard, Some(10));
}

/// All members of a flow spend from its budget and nobody else does; what a lost lease held of it
/// is there for the others.
pub async fn over_a_flow(f: &Fixture) {
    let unknown = PutBudgetArgs { scope: BudgetScope::Flow(FlowId::new()), ..budget(20, 10) };
    assert_eq!(code(&f.backend.put_budget(unknown).await), "not_found");
    let flow = plant(f, graph("a>d b>d c>d")).await;
    let stranger = f.submit(item()).await;
    let args = |hard| PutBudgetArgs { scope: BudgetScope::Flow(flow.id), ..budget(hard, 10) };
    f.backend.put_budget(args(20)).await.unwrap();
    let held = claim_all(f).await;
    assert_eq!(held.len(), 3, "two members and the stranger");
    assert!(held.iter().any(|one| one.execution_id == stranger));
    assert_eq!(books(f).await, (0, 20));
    let waiting = states(f, &flow, "a b c").await;
    let waiting = waiting.into_iter().filter(|state| *state == PublicState::RateLimited);
    assert_eq!(waiting.count(), 1);
    let mut members = held.iter().filter(|one| one.execution_id != stranger);
    let first = members.next().expect("a member");
    f.backend.complete(&first.handle, None).await.unwrap();
    assert_eq!(books(f).await, (10, 10));
    f.advance(u64::from(LEASE_MS)).await;
    assert_eq!(books(f).await, (10, 0));
    f.cancel_execution(&stranger).await.unwrap();
    assert_eq!(complete_all(f).await, 1, "there is enough for one more");
    assert_eq!(books(f).await, (20, 0));
    assert_eq!(complete_all(f).await, 0);
    f.backend.put_budget(args(40)).await.unwrap();
    f.advance(1).await;
    assert_eq!([complete_all(f).await, complete_all(f).await], [1, 1]);
    assert_eq!(books(f).await, (40, 0));
    assert_eq!(states(f, &flow, "d").await, [PublicState::Completed]);
}

/// Whoever waits for a budget goes on when it is deleted; declared again, it begins with nothing
/// used, and what was spent of the one before cannot be taken back from it.
pub async fn deleted_budgets_let_go(f: &Fixture) {
    f.backend.put_budget(budget(10, 10)).await.unwrap();
    let (first, handle) = f.start(charged_item()).await;
    let second = f.submit(charged_item()).await;
    assert!(f.try_claim().await.is_none());
    assert_eq!(f.state(&second).await, PublicState::RateLimited);
    assert!(matches!(report(f, &handle, 4, None).await, UsageOutcome::Applied));
    f.backend.delete_budget(&namespace(), &id()).await.unwrap();
    assert_eq!(code(&f.backend.get_budget(&namespace(), &id()).await), "not_found");
    assert_eq!(code(&f.backend.delete_budget(&namespace(), &id()).await), "not_found");
    let args = ReportUsageArgs { budget_id: id(), amounts: tokens(1), dedup_key: None };
    assert_eq!(code(&f.backend.report_usage(&handle, args).await), "not_found");
    f.advance(1).await;
    let claimed = f.claim().await;
    assert_eq!(claimed.execution_id, second);
    // While a lease holds something of the old one, and when none does any more.
    for _ in 0..2 {
        f.backend.put_budget(budget(100, 10)).await.unwrap();
        assert_eq!(books(f).await.0, 0);
        let released = f.backend.release_budget(&namespace(), &id(), &first).await.unwrap();
        assert_eq!(released, Amounts::new());
        f.backend.delete_budget(&namespace(), &id()).await.unwrap();
        let _ = f.backend.complete(&handle, None).await;
        f.advance(60_001).await;
    }
    f.backend.put_budget(budget(100, 10)).await.unwrap();
    assert_eq!(books(f).await, (0, 0));
}
