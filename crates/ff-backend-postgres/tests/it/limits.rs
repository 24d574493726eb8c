//! A quota and a budget under several engines at once: neither is overspent at any instant, and
//! nothing of them leaks, whatever ends a lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ff_backend_postgres::{PostgresBackend, PostgresOptions};
use ff_core::contracts::{
    Amounts, ClaimArgs, ClaimedExecution, DimensionLimits, FailArgs, FailureClass, PutBudgetArgs,
    PutQuotaArgs, ReportUsageArgs, Submission,
};
use ff_core::engine::clock::ManualClock;
use ff_core::engine_backend::{CounterOperations, EngineBackend, LimitOperations};
use ff_core::policy::ExecutionPolicy;
use ff_core::types::{BudgetId, LaneId, Namespace, QuotaId, WorkerInstanceId};
use sqlx::Row;

use crate::database::{Schema, claim_from, pool, url};

const ENGINES: usize = 3;
const WORKERS: usize = 4;
const EXECUTIONS: usize = 60;
const CAP: u32 = 3;
/// Not enough for everything, so that it is fought for at the end.
const HARD: u64 = 40;
const LEASE: Duration = Duration::from_secs(60);

fn tokens(amount: u64) -> Amounts {
    BTreeMap::from([("tokens".to_owned(), amount)])
}

async fn set_limits(backend: &PostgresBackend) {
    let quota = PutQuotaArgs {
        quota_id: QuotaId::new("cap"),
        lane_id: Some(LaneId::new("lane")),
        concurrency: Some(CAP),
        ..PutQuotaArgs::default()
    };
    backend.put_quota(quota).await.expect("quota");
    let limits = DimensionLimits { hard: Some(HARD), soft: None };
    let budget = PutBudgetArgs {
        namespace: Namespace::new("default"),
        budget_id: BudgetId::new("budget"),
        dimensions: BTreeMap::from([("tokens".to_owned(), limits)]),
        estimate: tokens(1),
        ..PutBudgetArgs::default()
    };
    backend.put_budget(budget).await.expect("budget");
}

/// Ends a lease in one of the ways in which leases end; the last is to say nothing.
async fn end(backend: &PostgresBackend, one: &ClaimedExecution, how: u64) {
    let handle = &one.handle;
    let done = match how % 5 {
        0 | 1 => {
            let budget_id = BudgetId::new("budget");
            let usage = ReportUsageArgs { budget_id, amounts: tokens(1), dedup_key: None };
            // It may be refused: others have spent the rest.
            let _ = backend.report_usage(handle, usage).await;
            backend.complete(handle, None).await
        }
        2 => {
            let args = FailArgs {
                reason: "again".into(),
                category: "test".into(),
                class: FailureClass::Retryable,
            };
            backend.fail(handle, args).await.map(drop)
        }
        3 => backend.delay(handle, Duration::from_millis(1)).await.map(drop),
        _ => Ok(()),
    };
    // The lease may have expired meanwhile.
    if let Err(error) = done {
        let code = error.code();
        let expected = ["lease_expired", "stale_lease", "execution_not_active", "retry_exhausted"];
        assert!(expected.contains(&code), "{code}");
    }
}

/// Works until several looks in a row have found nothing, although time has passed.
async fn work(
    backend: Arc<PostgresBackend>,
    clock: Arc<ManualClock>,
    me: usize,
    dice: Arc<AtomicU64>,
) {
    let mut idle = 0;
    while idle < 10 {
        let args = ClaimArgs {
            worker_instance_id: WorkerInstanceId::new(format!("worker-{me}")),
            lease_ttl_ms: LEASE.as_millis() as u32,
            ..claim_from("lane", 2, Duration::ZERO)
        };
        let claimed = match backend.claim_many(args).await {
            Ok(claimed) => claimed,
            // Many meet at one counter: a call may lose every time and is told to come again.
            Err(error) if error.code() == "retry_exhausted" => continue,
            Err(error) => panic!("{error:?}"),
        };
        if claimed.is_empty() {
            idle += 1;
            // What was abandoned expires, and what was put off becomes ready.
            clock.advance(LEASE / 2);
            if let Err(error) = backend.engine().sweep().await {
                assert_eq!(error.code(), "retry_exhausted", "{error:?}");
            }
            continue;
        }
        idle = 0;
        for one in &claimed {
            end(&backend, one, dice.fetch_add(7, Ordering::Relaxed)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_under_several_engines() {
    let schema = Schema::new();
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let mut engines = Vec::new();
    for _ in 0..ENGINES {
        let options = PostgresOptions { clock: Some(clock.clone()), ..schema.options() };
        engines.push(PostgresBackend::open(options).await.expect("open"));
    }
    set_limits(&engines[0]).await;
    let policy =
        ExecutionPolicy { budget_ids: vec!["budget".into()], ..ExecutionPolicy::default() };
    let item = || Submission::new("lane", "kind").policy(policy.clone());
    engines[0].submit((0..EXECUTIONS).map(|_| item()).collect()).await.expect("submit");

    let dice = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|me| {
            let engine = engines[me % ENGINES].clone();
            tokio::spawn(work(engine, clock.clone(), me, dice.clone()))
        })
        .collect();
    for worker in workers {
        worker.await.expect("no panic");
    }

    // The log has each lease's begin and end in the order of their commits.
    let running = format!(
        "SELECT max(running), min(running), count(*) FROM (SELECT sum(CASE \
           WHEN event_type = 'claimed' THEN 1 WHEN lease_ended THEN -1 ELSE 0 END) \
           OVER (ORDER BY seq) AS running FROM {}.ff_event WHERE lane_id = 'lane') AS log",
        schema.0
    );
    let pool = pool(&url(), 1).await;
    let row = sqlx::query(&running).fetch_one(&pool).await.expect("the log");
    let (most, least): (i64, i64) = (row.get(0), row.get(1));
    assert!(least >= 0 && most <= i64::from(CAP), "{least} to {most} were running");
    assert_eq!(most, i64::from(CAP), "the engines have come to the limit");
    pool.close().await;

    let namespace = Namespace::new("default");
    let budget = engines[0].get_budget(&namespace, &BudgetId::new("budget")).await.expect("budget");
    let spent = budget.dimensions["tokens"];
    assert!(spent.used + spent.reserved <= HARD, "{spent:?}");
    let drifts = engines[1].recount_limits(false).await.expect("recount");
    assert!(drifts.is_empty(), "counters and rows differ: {drifts:?}");
    for engine in engines {
        engine.close().await;
    }
    schema.drop().await;
}
