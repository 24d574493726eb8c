//! Workers that make themselves known, and what is told of them.

use std::collections::BTreeSet;

use ff_core::backend::CapabilitySet;
use ff_core::contracts::{
    ClaimArgs, EventFilter, EventType, HeartbeatOutcome, ListWorkersArgs, RegisterWorkerArgs,
    RegisterWorkerOutcome, RetireOutcome, Submission, WorkerRef,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{Namespaced, WorkerOperations};
use ff_core::policy::ExecutionPolicy;
use ff_core::types::{LaneId, Namespace, WorkerId, WorkerInstanceId};

use super::{Fixture, LANE, claim_args, code, item};

const TTL_MS: u64 = 10_000;

pub(super) fn worker(instance: &str, capabilities: &[&str]) -> RegisterWorkerArgs {
    RegisterWorkerArgs {
        worker_id: WorkerId::new("program"),
        worker_instance_id: WorkerInstanceId::new(instance),
        namespace: None,
        lanes: [LaneId::new(LANE)].into(),
        capabilities: capabilities.iter().map(|token| (*token).to_owned()).collect(),
        liveness_ttl_ms: TTL_MS,
    }
}

fn named(instance: &str) -> WorkerRef {
    WorkerRef { worker_instance_id: WorkerInstanceId::new(instance), namespace: None }
}

async fn listed(f: &Fixture, args: ListWorkersArgs) -> Vec<String> {
    let workers = f.backend.list_workers(args).await.unwrap();
    workers.into_iter().map(|worker| worker.worker_instance_id.0).collect()
}

async fn alive(f: &Fixture) -> Vec<String> {
    listed(f, ListWorkersArgs::default()).await
}

fn requires(capabilities: &[&str]) -> Submission {
    let mut policy = ExecutionPolicy::default();
    policy.routing_requirements.required_capabilities =
        capabilities.iter().map(|token| (*token).to_owned()).collect();
    item().policy(policy)
}

pub async fn registered(f: &Fixture) {
    let backend = &f.backend;
    let started = f.now();
    let expires_at = started.after_ms(TTL_MS);
    let first = backend.register_worker(worker("b", &["gpu", "cuda=12.4"])).await.unwrap();
    assert_eq!(first, RegisterWorkerOutcome::Registered { expires_at });
    backend.register_worker(worker("a", &[])).await.unwrap();
    assert_eq!(alive(f).await, ["a", "b"]);
    f.advance(4_000).await;
    let expires_at = f.now().after_ms(TTL_MS);
    let beat = backend.heartbeat_worker(&named("b")).await.unwrap();
    assert_eq!(beat, HeartbeatOutcome::Refreshed { expires_at });
    let found = backend.list_workers(ListWorkersArgs::default()).await.unwrap().items.remove(1);
    assert_eq!((found.registered_at, found.last_heartbeat_at), (started, f.now()));
    assert_eq!((found.expires_at, found.liveness_ttl_ms), (expires_at, TTL_MS));
    let offered: BTreeSet<String> = ["cuda=12.4".to_owned(), "gpu".to_owned()].into();
    assert_eq!((found.capabilities, found.namespace), (offered, None));

    let changed = RegisterWorkerArgs { lanes: [LaneId::new("other")].into(), ..worker("b", &[]) };
    let again = backend.register_worker(changed).await.unwrap();
    assert_eq!(again, RegisterWorkerOutcome::Refreshed { expires_at });
    let lane_id = Some(LaneId::new("other"));
    assert_eq!(listed(f, ListWorkersArgs { lane_id, ..Default::default() }).await, ["b"]);
    let page = ListWorkersArgs { limit: 1, ..Default::default() };
    assert_eq!(listed(f, page.clone()).await, ["a"]);
    let after = Some(named("a"));
    assert_eq!(listed(f, ListWorkersArgs { after, ..page }).await, ["b"]);

    assert_eq!(backend.retire_worker(&named("a")).await.unwrap(), RetireOutcome::Retired);
    assert_eq!(backend.retire_worker(&named("a")).await.unwrap(), RetireOutcome::NotRegistered);
    assert_eq!(alive(f).await, ["b"]);
    let beat = backend.heartbeat_worker(&named("a")).await.unwrap();
    assert_eq!(beat, HeartbeatOutcome::NotRegistered);
}

pub async fn silent_ones_drop_out(f: &Fixture) {
    let backend = &f.backend;
    for instance in ["quiet", "busy"] {
        backend.register_worker(worker(instance, &[])).await.unwrap();
    }
    for _ in 0..5 {
        f.advance(TTL_MS / 2).await;
        backend.heartbeat_worker(&named("busy")).await.unwrap();
    }
    assert_eq!(alive(f).await, ["busy"]);
    let beat = backend.heartbeat_worker(&named("quiet")).await.unwrap();
    assert_eq!(beat, HeartbeatOutcome::NotRegistered);
    // Before anybody has looked, the clock alone decides.
    f.clock.advance(std::time::Duration::from_millis(TTL_MS));
    assert!(alive(f).await.is_empty());
    f.advance(1).await;
    let again = backend.register_worker(worker("busy", &[])).await.unwrap();
    assert!(matches!(again, RegisterWorkerOutcome::Registered { .. }), "{again:?}");
    f.advance(TTL_MS / 2).await;
    assert_eq!(alive(f).await, ["busy"]);
    f.advance(TTL_MS).await;
    f.advance(TTL_MS).await;
    assert!(alive(f).await.is_empty());

    let mut log = backend.subscribe(EventFilter::default(), StartAt::Oldest).await.unwrap();
    let mut told = Vec::new();
    while let Some(event) = log.try_next().await.unwrap() {
        let instance = event.details["worker_instance_id"].as_str().unwrap().to_owned();
        told.push((event.event_type, instance));
    }
    let expected = [
        (EventType::WorkerRegistered, "quiet"),
        (EventType::WorkerRegistered, "busy"),
        (EventType::WorkerLost, "quiet"),
        (EventType::WorkerLost, "busy"),
        (EventType::WorkerRegistered, "busy"),
        (EventType::WorkerLost, "busy"),
    ];
    let expected = expected.map(|(what, who)| (what, who.to_owned()));
    assert_eq!(told, expected, "one event for each that comes or goes, none for signs of life");
}

pub async fn refused(f: &Fixture) {
    let good = || worker("a", &[]);
    f.backend.register_worker(good()).await.unwrap();
    let lanes = (0..65).map(|at| LaneId::new(format!("lane-{at}"))).collect();
    for (args, expected) in [
        (RegisterWorkerArgs { worker_id: WorkerId::new("other"), ..good() }, "invalid_input"),
        (RegisterWorkerArgs { worker_id: WorkerId::new(""), ..good() }, "invalid_input"),
        (worker("", &[]), "invalid_input"),
        (RegisterWorkerArgs { liveness_ttl_ms: 0, ..good() }, "invalid_input"),
        (RegisterWorkerArgs { liveness_ttl_ms: u64::MAX, ..good() }, "invalid_input"),
        (RegisterWorkerArgs { lanes: BTreeSet::new(), ..good() }, "invalid_input"),
        (RegisterWorkerArgs { lanes, ..good() }, "invalid_input"),
        (worker("a", &["cuda>=12"]), "invalid_capabilities"),
        (worker("a", &["a b"]), "invalid_capabilities"),
    ] {
        assert_eq!(code(&f.backend.register_worker(args).await), expected);
    }
    let found = f.backend.list_workers(ListWorkersArgs::default()).await.unwrap();
    assert_eq!((found.len(), found[0].worker_id.as_str()), (1, "program"));
    let many = ListWorkersArgs { limit: 1_001, ..Default::default() };
    assert_eq!(code(&f.backend.list_workers(many).await), "invalid_input");
    // Once it is silent, its name is free.
    f.advance(TTL_MS).await;
    let other = RegisterWorkerArgs { worker_id: WorkerId::new("other"), ..good() };
    f.backend.register_worker(other).await.unwrap();
}

pub async fn explained(f: &Fixture) {
    let id = f.submit(requires(&["gpu", "cuda>=12", "region=eu"])).await;
    let explain = || async { f.backend.explain(&id).await.unwrap() };
    assert_eq!(explain().await.rule, "waiting_for_worker", "nobody is known");
    for (instance, offered) in
        [("far", &[][..]), ("near", &["gpu=a100", "cuda=11.8", "region=eu"]), ("mid", &["gpu"])]
    {
        f.backend.register_worker(worker(instance, offered)).await.unwrap();
    }
    let elsewhere = RegisterWorkerArgs {
        lanes: [LaneId::new("elsewhere")].into(),
        ..worker("elsewhere", &["gpu", "cuda=12", "region=eu"])
    };
    f.backend.register_worker(elsewhere).await.unwrap();
    let found = explain().await;
    assert_eq!(found.rule, "missing_capability");
    assert!(found.words.contains("near comes nearest and lacks cuda>=12"), "{}", found.words);
    assert_eq!(found.details["nearest_worker"], "near");
    assert_eq!(found.details["missing_capabilities"], serde_json::json!(["cuda>=12"]));
    let able = worker("able", &["gpu", "cuda=12.4", "region=eu"]);
    f.backend.register_worker(able).await.unwrap();
    let found = explain().await;
    assert_eq!(found.rule, "waiting_for_worker");
    assert_eq!(found.details["nearest_worker"], "able");
    f.advance(TTL_MS).await;
    assert_eq!(explain().await.details["nearest_worker"], serde_json::Value::Null);
}

/// What is required is compared with what is offered, and stands in nobody's way.
pub async fn comparisons(f: &Fixture) {
    let wanted = f.submit(requires(&["cuda>=12", "gpu"]).priority(9)).await;
    let plain = f.submit(item()).await;
    let offering = |tokens: &[&str]| ClaimArgs {
        capabilities: CapabilitySet::new(tokens.iter().copied()),
        ..claim_args()
    };
    let first = f.backend.claim_many(offering(&["gpu", "cuda=11.8"])).await.unwrap();
    assert_eq!(first[0].execution_id, plain, "what it cannot do stood in its way");
    assert!(f.backend.claim_many(offering(&["gpu", "cuda=11.8"])).await.unwrap().is_empty());
    let able = f.backend.claim_many(offering(&["gpu=a100", "cuda=12.4"])).await.unwrap();
    assert_eq!(able[0].execution_id, wanted);
    let refused = f.backend.claim_many(offering(&["cuda>=12"])).await;
    assert_eq!(code(&refused), "invalid_capabilities");
    for bad in ["cuda>=new", "cuda>", "=eu", "cuda!=12"] {
        let outcome = f.offer(requires(&[bad])).await;
        assert!(outcome.execution_id().is_none(), "{bad}: {outcome:?}");
    }
}

pub async fn confined(f: &Fixture) {
    let me = Namespaced::new(f.backend.clone(), Namespace::new("mine"));
    me.register_worker(worker("own", &["gpu"])).await.unwrap();
    let namespace = Some(Namespace::new("theirs"));
    let theirs = RegisterWorkerArgs { namespace: namespace.clone(), ..worker("own", &["x"]) };
    assert_eq!(code(&me.register_worker(theirs.clone()).await), "invalid_input");
    f.backend.register_worker(theirs).await.unwrap();
    f.backend.register_worker(worker("shared", &[])).await.unwrap();
    let mine = me.list_workers(ListWorkersArgs::default()).await.unwrap();
    assert_eq!((mine.len(), mine[0].namespace.clone()), (1, Some(Namespace::new("mine"))));
    assert_eq!(alive(f).await, ["shared", "own", "own"]);
    let asked = ListWorkersArgs { namespace: namespace.clone(), ..Default::default() };
    assert_eq!(code(&me.list_workers(asked.clone()).await), "invalid_input");
    assert_eq!(listed(f, asked).await, ["own"]);
    me.retire_worker(&named("own")).await.unwrap();
    assert_eq!(alive(f).await, ["shared", "own"], "only its own went");
    let foreign = WorkerRef { namespace, ..named("own") };
    assert_eq!(code(&me.heartbeat_worker(&foreign).await), "invalid_input");
}
