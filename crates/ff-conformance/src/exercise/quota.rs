//! Quotas: exact windows, permits that come back whatever ends a lease, and nobody in the way.

use std::collections::BTreeMap;
use std::time::Duration;

use ff_core::contracts::{
    ClaimArgs, ClaimedExecution, EventType, FailureClass, PutQuotaArgs, QuotaKey, QuotaUsage,
    RateLimit, Submission,
};
use ff_core::engine_backend::{CounterOperations, LimitOperations, SuspensionOperations};
use ff_core::rows::{
    LimitKind, LimitStateRow, LimitWaitKey, LimitWaitRow, Permits, Record, Standing, limit_id,
    quota_state_id,
};
use ff_core::state::PublicState;
use ff_core::store::{Change, Query, Scan};
use ff_core::types::{LaneId, Namespace, QuotaId};

use super::counter::ByHand;
use super::waits::{gate, put};
use super::{Fixture, LANE, LEASE_MS, claim_args, claim_from, code, failure, item, retries};

pub(super) fn quota(id: &str) -> PutQuotaArgs {
    PutQuotaArgs {
        quota_id: QuotaId::new(id),
        lane_id: Some(LaneId::new(LANE)),
        ..PutQuotaArgs::default()
    }
}

pub(super) fn rate(limit: u32, window_ms: u64) -> PutQuotaArgs {
    PutQuotaArgs { rate: Some(RateLimit { limit, window_ms }), ..quota("rate") }
}

fn concurrency(cap: u32) -> PutQuotaArgs {
    PutQuotaArgs { concurrency: Some(cap), ..quota("cap") }
}

pub(super) fn tenant(name: &str) -> Submission {
    item().tag("tenant.name", name)
}

async fn usage(f: &Fixture, id: &str) -> Vec<QuotaUsage> {
    let nobody = Namespace::default();
    f.backend.get_quota(&nobody, &QuotaId::new(id)).await.unwrap().usage
}

async fn in_use(f: &Fixture, id: &str) -> u64 {
    usage(f, id).await.iter().map(|usage| usage.in_use).sum()
}

/// Waits, in the clock of the host, for what the sweeper brings.
async fn claim_waiting(f: &Fixture) -> ClaimedExecution {
    let args = ClaimArgs { wait: Duration::from_secs(20), ..claim_args() };
    f.backend.claim_many(args).await.unwrap().pop().expect("work comes")
}

pub async fn window_edges(f: &Fixture) {
    f.backend.put_quota(rate(2, 1_000)).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(f.submit(item()).await);
    }
    let mut admitted = Vec::new();
    for step in [0, 400, 599, 1, 399, 1, 599, 1, 400] {
        f.advance(step).await;
        while let Some(claimed) = f.try_claim().await {
            admitted.push(f.now().0);
            f.backend.complete(&claimed.handle, None).await.unwrap();
            // The second of a pair starts later, so that the two leave the window apart.
            if admitted.len() == 1 {
                break;
            }
        }
    }
    let start = admitted[0];
    let at: Vec<_> = admitted.iter().map(|at| at - start).collect();
    assert_eq!(at, [0, 400, 1_000, 1_400, 2_000]);
    for id in &ids {
        assert_eq!(f.state(id).await, PublicState::Completed);
    }
}

pub async fn rate_limited_work_says_so(f: &Fixture) {
    f.backend.put_quota(rate(1, 1_000)).await.unwrap();
    f.submit(item()).await;
    let waiting = f.submit(item()).await;
    f.claim().await;
    assert!(f.try_claim().await.is_none());
    assert_eq!(f.state(&waiting).await, PublicState::RateLimited);
    let why = f.backend.explain(&waiting).await.unwrap();
    assert_eq!(why.rule, "quota_rate", "{why:?}");
    assert_eq!(why.next_change_at, Some(f.now().after_ms(1_000)));
    assert_eq!(why.details["in_window"], 1);
    f.advance(1_000).await;
    assert_eq!(f.state(&waiting).await, PublicState::Waiting);
    assert_eq!(f.claim().await.execution_id, waiting);
    let events = [EventType::Submitted, EventType::Limited, EventType::Ready, EventType::Claimed];
    assert_eq!(f.events(&waiting).await, events);
}

/// Every way in which a lease ends gives its permit back, once.
pub async fn every_ending_gives_back(f: &Fixture) {
    f.backend.put_quota(concurrency(1)).await.unwrap();
    let backend = &f.backend;
    for ending in [
        "complete", "fail", "retry", "expire", "revoke", "cancel", "give up", "delay", "deadline",
        "suspend",
    ] {
        let mut work = item().policy(retries(1, 10));
        if ending == "deadline" {
            work = Submission { deadline: Some(Duration::from_millis(50)), ..work };
        }
        let (id, handle) = f.start(work).await;
        assert_eq!(in_use(f, "cap").await, 1, "{ending}");
        let other = f.submit(item()).await;
        assert!(f.try_claim().await.is_none(), "{ending}: above the cap");
        assert_eq!(f.state(&other).await, PublicState::RateLimited);
        match ending {
            "complete" => backend.complete(&handle, None).await.unwrap(),
            "fail" => drop(backend.fail(&handle, failure(FailureClass::Fatal)).await.unwrap()),
            "retry" => drop(backend.fail(&handle, failure(FailureClass::Retryable)).await.unwrap()),
            "expire" => f.advance(u64::from(LEASE_MS)).await,
            "revoke" => f.revoke(&id).await.unwrap(),
            "cancel" => f.cancel_execution(&id).await.unwrap(),
            "give up" => backend.cancel(&handle, "enough").await.unwrap(),
            "suspend" => drop(put(backend.suspend(&handle, gate()).await)),
            "delay" => drop(backend.delay(&handle, Duration::from_secs(5)).await.unwrap()),
            _ => f.advance(50).await,
        }
        assert_eq!(in_use(f, "cap").await, 0, "{ending}: a permit leaked");
        // Repeating it gives nothing back a second time.
        let _ = backend.complete(&handle, None).await;
        f.advance(0).await;
        assert_ne!(f.state(&other).await, PublicState::RateLimited, "{ending}: nobody woke it");
        for done in [&id, &other] {
            let _ = f.cancel_execution(done).await;
        }
        assert_eq!(in_use(f, "cap").await, 0, "{ending}");
    }
}

pub async fn never_above_the_cap(f: &Fixture) {
    f.backend.put_quota(concurrency(5)).await.unwrap();
    for _ in 0..40 {
        f.submit(item()).await;
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
    assert_eq!(held.len(), 5);
    let mut done = 0;
    while let Some(one) = held.pop() {
        assert!(in_use(f, "cap").await <= 5);
        f.backend.complete(&one.handle, None).await.unwrap();
        done += 1;
        if done <= 35 {
            held.push(claim_waiting(f).await);
        }
    }
    assert_eq!(done, 40);
    assert_eq!(in_use(f, "cap").await, 0);
    assert!(f.try_claim().await.is_none());
}

pub async fn blocked_work_is_in_nobodys_way(f: &Fixture) {
    let key = QuotaKey::Tag("tenant.name".into());
    f.backend.put_quota(PutQuotaArgs { key, ..concurrency(1) }).await.unwrap();
    for _ in 0..30 {
        f.submit(tenant("busy").priority(9)).await;
    }
    let other = f.submit(tenant("calm")).await;
    let without = f.submit(item()).await;
    assert_eq!(f.claim().await.tags["tenant.name"], "busy");
    assert_eq!(f.claim().await.execution_id, other);
    assert_eq!(f.claim().await.execution_id, without);
    assert!(f.try_claim().await.is_none());
    let keys: BTreeMap<_, _> =
        usage(f, "cap").await.into_iter().map(|usage| (usage.key, usage.in_use)).collect();
    let expected = [("", 1), ("busy", 1), ("calm", 1)];
    assert_eq!(keys, expected.map(|(key, count)| (key.to_owned(), count)).into());
}

pub async fn waiting_claims_hear_of_room(f: &Fixture) {
    f.backend.put_quota(concurrency(1)).await.unwrap();
    let (_, handle) = f.start(item()).await;
    let next = f.submit(item()).await;
    let fixture = f.clone();
    let claim = tokio::spawn(async move { claim_waiting(&fixture).await });
    tokio::task::yield_now().await;
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(claim.await.unwrap().execution_id, next);
}

/// A limit that is raised lets those go who wait; one that is taken away lets all of them go.
pub async fn declared_anew(f: &Fixture) {
    f.backend.put_quota(concurrency(1)).await.unwrap();
    for _ in 0..6 {
        f.submit(item()).await;
    }
    f.claim().await;
    assert!(f.try_claim().await.is_none());
    f.backend.put_quota(concurrency(3)).await.unwrap();
    f.advance(0).await;
    f.claim().await;
    f.claim().await;
    assert!(f.try_claim().await.is_none());
    f.backend.put_quota(quota("cap")).await.unwrap();
    f.advance(0).await;
    for _ in 0..3 {
        f.claim().await;
    }
}

pub async fn over_all_lanes(f: &Fixture) {
    let args = PutQuotaArgs { lane_id: None, key: QuotaKey::Kind, ..concurrency(1) };
    f.backend.put_quota(args).await.unwrap();
    let lanes = ["one", "two"];
    for lane in lanes {
        f.submit(Submission::new(lane, "kind")).await;
        f.submit(Submission::new(lane, "another")).await;
    }
    let mut kinds = Vec::new();
    for lane in lanes {
        while let Some(one) = f.backend.claim_many(claim_from(lane)).await.unwrap().pop() {
            kinds.push((lane, one.execution_kind));
        }
    }
    kinds.sort();
    assert_eq!(kinds, [("one", "another".to_owned()), ("one", "kind".to_owned())]);
    assert!(f.backend.list_lanes().await.unwrap().iter().all(|lane| !lane.lane_id.0.is_empty()));
}

/// Two tenants with weights 3 and 1 get three turns and one, though one of them queued first.
pub async fn fair_shares(f: &Fixture) {
    let key = QuotaKey::Tag("tenant.name".into());
    let weights = BTreeMap::from([("large".to_owned(), 3), ("small".to_owned(), 1)]);
    let args = PutQuotaArgs { key, fair: true, weights, ..quota("turns") };
    f.backend.put_quota(args).await.unwrap();
    for name in ["large", "small"] {
        let items = (0..200).map(|_| tenant(name)).collect();
        f.backend.submit(items).await.unwrap();
        f.advance(1).await;
    }
    let mut served = Vec::new();
    for _ in 0..400 {
        let claimed = claim_waiting(f).await;
        served.push(claimed.tags["tenant.name"].clone());
        f.backend.complete(&claimed.handle, None).await.unwrap();
    }
    let large = |part: &[String]| part.iter().filter(|name| *name == "large").count();
    // The first claims see only those who queued first, until these have been spread.
    let settled = &served[8..168];
    let share = large(settled);
    assert!((110..=130).contains(&share), "{share} of 160 turns: {settled:?}");
    assert_eq!(large(&served), 200);
    assert!(f.try_claim().await.is_none());
}

pub async fn refusals(f: &Fixture) {
    let bad = [
        PutQuotaArgs { quota_id: QuotaId::new(""), ..concurrency(1) },
        concurrency(0),
        rate(0, 1_000),
        rate(1, 0),
        PutQuotaArgs { key: QuotaKey::Tag("no tag".into()), ..concurrency(1) },
        PutQuotaArgs { weights: BTreeMap::from([("a".into(), 0)]), ..concurrency(1) },
    ];
    for args in bad {
        let outcome = f.backend.put_quota(args.clone()).await;
        assert!(matches!(code(&outcome), "invalid_input" | "invalid_tag_key"), "{args:?}");
    }
    let missing = f.backend.get_quota(&Namespace::default(), &QuotaId::new("cap")).await;
    assert_eq!(code(&missing), "not_found");
}

/// Whoever waits for a quota goes on when it is deleted, and leases that hold a permit end as ever.
pub async fn deleted_quotas_let_go(f: &Fixture) {
    let key = QuotaKey::Tag("tenant.name".into());
    f.backend.put_quota(PutQuotaArgs { key, ..concurrency(1) }).await.unwrap();
    let nobody = Namespace::default();
    let id = QuotaId::new("cap");
    let mut held = Vec::new();
    for name in ["large", "small"] {
        // More than the sweeper lets go at once.
        f.backend.submit((0..80).map(|_| tenant(name)).collect()).await.unwrap();
    }
    while let Some(claimed) = f.try_claim().await {
        held.push(claimed);
    }
    assert_eq!(held.len(), 2);
    f.backend.delete_quota(&nobody, &id).await.unwrap();
    assert_eq!(code(&f.backend.get_quota(&nobody, &id).await), "not_found");
    assert_eq!(code(&f.backend.delete_quota(&nobody, &id).await), "not_found");
    for _ in 0..8 {
        f.advance(2).await;
    }
    for _ in 0..158 {
        held.push(f.claim().await);
    }
    for claimed in held.drain(..) {
        f.backend.complete(&claimed.handle, None).await.unwrap();
    }
    // Declared again, it counts from nothing.
    f.backend.put_quota(concurrency(1)).await.unwrap();
    assert_eq!(in_use(f, "cap").await, 0);
    f.submit(item()).await;
    f.submit(item()).await;
    f.claim().await;
    assert!(f.try_claim().await.is_none());
    assert_eq!(in_use(f, "cap").await, 1);
}

/// Everything that can be handed out at this moment.
async fn claim_everything(f: &Fixture) -> Vec<ClaimedExecution> {
    let mut held = Vec::new();
    loop {
        let args = ClaimArgs { max: 200, ..claim_args() };
        let claimed = f.backend.claim_many(args).await.unwrap();
        if claimed.is_empty() {
            return held;
        }
        held.extend(claimed);
    }
}

/// Each of many keys hears of a raised cap, though all of them have more work than it lets through;
/// and then there is nothing left to look at.
pub async fn raised_for_many_keys(f: &Fixture) {
    const KEYS: usize = 260;
    let key = QuotaKey::Tag("tenant.name".into());
    let capped = |cap| PutQuotaArgs { key: key.clone(), ..concurrency(cap) };
    f.backend.put_quota(capped(1)).await.unwrap();
    let names = (0..4 * KEYS).map(|at| format!("tenant-{}", at % KEYS));
    f.backend.submit(names.map(|name| tenant(&name)).collect()).await.unwrap();
    assert_eq!(claim_everything(f).await.len(), KEYS);
    // Declared anew while the keys are gone over, it begins again with the first.
    for cap in [1, 2] {
        f.backend.put_quota(capped(cap)).await.unwrap();
        f.advance(0).await;
    }
    let mut claimed = 0;
    for _ in 0..4 {
        claimed += claim_everything(f).await.len();
        f.advance(1).await;
    }
    assert_eq!(claimed, KEYS);
    for _ in 0..20 {
        f.clock.advance(Duration::from_millis(1));
        assert_eq!(f.backend.engine().sweep().await.unwrap(), 0, "it is looked at again and again");
    }
}

/// Two quotas that let keys take turns put an execution aside once.
pub async fn fair_twice(f: &Fixture) {
    let key = QuotaKey::Tag("tenant.name".into());
    let turns = PutQuotaArgs { key, fair: true, ..quota("turns") };
    let everywhere = PutQuotaArgs { lane_id: None, quota_id: QuotaId::new("all"), ..turns.clone() };
    f.backend.put_quota(turns).await.unwrap();
    f.backend.put_quota(everywhere).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..150 {
        ids.push(f.submit(tenant("busy")).await);
    }
    for _ in 0..4 {
        f.claim().await;
    }
    let mut waiting = 0;
    for id in &ids {
        waiting += usize::from(f.state(id).await == PublicState::RateLimited);
        let versions: Vec<_> = f.history(id).await.iter().map(|event| event.version).collect();
        let expected: Vec<_> = (1..=versions.len() as u64).collect();
        assert_eq!(versions, expected, "{:?}", f.events(id).await);
    }
    assert!(waiting > 0, "a claim cannot see all of them");
    assert_eq!(waits(f).await, waiting);
}

async fn waits(f: &Fixture) -> usize {
    let scans = vec![Scan::of::<LimitWaitRow>(Vec::new())];
    let query = Query::Records { keys: Vec::new(), scans };
    f.backend.engine().query(query).await.unwrap().records::<LimitWaitRow>().unwrap().len()
}

/// Of more keys than one claim looks at, each has its work called back, though none runs dry. Each
/// is planted with more waits than there are, so that it goes on waiting once it was looked at.
pub async fn everybody_is_called_back(f: &Fixture) {
    let args = PutQuotaArgs { key: QuotaKey::Kind, fair: true, ..quota("turns") };
    f.backend.put_quota(args).await.unwrap();
    let limit = limit_id(LimitKind::Quota, "", "turns");
    let (mut change, mut keys) = (Change::default(), Vec::new());
    for at in 0..600 {
        let value = format!("kind-{at}");
        let state = quota_state_id(limit, &value);
        let standing = Standing::Quota(Permits::default());
        let mut row = LimitStateRow::new(state, limit, value.into(), standing);
        row.set_waiting(1_000);
        let execution = super::new_id().key();
        let key = LimitWaitKey { state, rank: 0, execution, ticket: 1 };
        let wait = LimitWaitRow { key, since: f.now() };
        keys.extend([LimitStateRow::erase_key(&row.key), LimitWaitRow::erase_key(&wait.key)]);
        change.insert(&row);
        change.insert(&wait);
    }
    let by_hand = ByHand { flows: Vec::new(), change, keys };
    f.backend.engine().run(None, by_hand).await.unwrap();
    for _ in 0..5 {
        f.start(item()).await;
        f.advance(1).await;
    }
    assert_eq!(waits(f).await, 0, "some were never looked at");
    f.backend.recount_limits(true).await.unwrap();
}
