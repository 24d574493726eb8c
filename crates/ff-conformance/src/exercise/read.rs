//! What can be asked about executions.

use std::time::Duration;

use ff_core::contracts::{
    EventType, FailureClass, ListExecutionsArgs, ListOrder, PauseLaneArgs, Submission,
};
use ff_core::state::{LaneState, PublicState};
use ff_core::types::{ExecutionId, LaneId, Namespace};

use super::{Fixture, LANE, claim_from, failure, item, retries};

pub async fn describe(f: &Fixture) {
    let (id, handle) = f.start(item().policy(retries(1, 10)).tag("a.b", "c")).await;
    f.backend.progress(&handle, Some(50), Some("half".into())).await.unwrap();
    f.backend.progress(&handle, None, Some("more".into())).await.unwrap();
    let seen = f.snapshot(&id).await;
    let progress = seen.progress.unwrap();
    assert_eq!((progress.percent, progress.message.as_deref()), (Some(50), Some("more")));
    assert_eq!(seen.version, 2, "progress is not a transition");
    f.backend.fail(&handle, failure(FailureClass::Retryable)).await.unwrap();
    f.advance(10).await;
    let claimed = f.claim().await;
    f.backend.complete(&claimed.handle, None).await.unwrap();
    let seen = f.snapshot(&id).await;
    let attempts: Vec<_> = seen.attempts.iter().map(|attempt| attempt.attempt_index).collect();
    assert_eq!(attempts, [0, 1]);
    assert_eq!(seen.attempts[0].failure_reason.as_deref(), Some("it broke"));
    assert_eq!(seen.attempts[1].worker_id.as_deref(), Some("worker"));
    assert_eq!(seen.namespace, Namespace::new("default"));
    assert_eq!((seen.lane_id.as_str(), seen.execution_kind.as_str()), (LANE, "kind"));
}

async fn list(f: &Fixture, args: ListExecutionsArgs) -> Vec<ExecutionId> {
    let page = f.backend.list_executions(args).await.unwrap();
    page.executions.into_iter().map(|one| one.execution_id).collect()
}

pub async fn list_filters(f: &Fixture) {
    let a = f.submit(item().tag("team.name", "blue")).await;
    f.advance(10).await;
    let b = f.submit(Submission::new("other", "kind").tag("team.name", "red")).await;
    f.advance(10).await;
    let c = f.submit(Submission::new(LANE, "special").namespace("mine")).await;
    f.cancel_execution(&c).await.unwrap();
    let all = ListExecutionsArgs { order: ListOrder::OldestFirst, ..Default::default() };
    let tag = |value: &str| Some(("team.name".to_owned(), value.to_owned()));
    let at = f.snapshot(&b).await.created_at;
    let cases = [
        (all.clone(), vec![&a, &b, &c]),
        (ListExecutionsArgs { order: ListOrder::NewestFirst, ..all.clone() }, vec![&c, &b, &a]),
        (ListExecutionsArgs { lane_id: Some(LaneId::new(LANE)), ..all.clone() }, vec![&a, &c]),
        (ListExecutionsArgs { lane_id: Some(LaneId::new("none")), ..all.clone() }, vec![]),
        (ListExecutionsArgs { namespace: Some(Namespace::new("mine")), ..all.clone() }, vec![&c]),
        (ListExecutionsArgs { execution_kind: Some("special".into()), ..all.clone() }, vec![&c]),
        (ListExecutionsArgs { states: vec![PublicState::Waiting], ..all.clone() }, vec![&a, &b]),
        (
            ListExecutionsArgs {
                states: vec![PublicState::Cancelled, PublicState::Active],
                ..all.clone()
            },
            vec![&c],
        ),
        (ListExecutionsArgs { tag: tag("blue"), ..all.clone() }, vec![&a]),
        (ListExecutionsArgs { tag: tag("green"), ..all.clone() }, vec![]),
        (ListExecutionsArgs { created_from: Some(at), ..all.clone() }, vec![&b, &c]),
        (ListExecutionsArgs { created_before: Some(at), ..all.clone() }, vec![&a]),
        (
            ListExecutionsArgs { flow_id: Some(ff_core::types::FlowId::new()), ..all.clone() },
            vec![],
        ),
        (
            ListExecutionsArgs {
                lane_id: Some(LaneId::new("other")),
                tag: tag("red"),
                created_from: Some(at),
                ..all
            },
            vec![&b],
        ),
    ];
    for (args, expected) in cases {
        let found = list(f, args.clone()).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{args:?}");
    }
}

pub async fn list_pages(f: &Fixture) {
    // Several at one instant, so that the position must be more than a time.
    for _ in 0..5 {
        f.backend.submit((0..5).map(|_| item()).collect()).await.unwrap();
        f.advance(1).await;
    }
    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
        let whole = list(f, ListExecutionsArgs { order, ..Default::default() }).await;
        assert_eq!(whole.len(), 25);
        for limit in [1, 3, 24, 25] {
            let mut args = ListExecutionsArgs { order, limit, ..Default::default() };
            let mut found = Vec::new();
            loop {
                let page = f.backend.list_executions(args.clone()).await.unwrap();
                assert!(page.executions.len() <= limit);
                found.extend(page.executions.into_iter().map(|one| one.execution_id));
                args.cursor = page.next_cursor;
                if args.cursor.is_none() {
                    break;
                }
            }
            assert_eq!(found, whole, "pages of {limit} differ from the whole");
        }
    }
}

pub async fn history(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    f.advance(5).await;
    f.backend.complete(&handle, None).await.unwrap();
    let all = f.history(&id).await;
    let versions: Vec<_> = all.iter().map(|event| event.version).collect();
    assert_eq!(versions, [1, 2, 3]);
    use PublicState::{Active, Completed, Waiting};
    let steps: Vec<_> = all.iter().map(|event| (event.from, event.to)).collect();
    let expected =
        [(None, Some(Waiting)), (Some(Waiting), Some(Active)), (Some(Active), Some(Completed))];
    assert_eq!(steps, expected);
    assert_eq!(all[2].at, f.now());
    assert!(all.iter().all(|event| event.execution_id.as_ref() == Some(&id)));
    let rest = f.backend.history(&id, 1, 1).await.unwrap();
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].event_type, EventType::Claimed);
    assert!(f.backend.history(&id, 3, 10).await.unwrap().is_empty());
}

pub async fn result(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    assert!(f.backend.result(&id).await.unwrap().is_none());
    f.backend.complete(&handle, Some(Vec::new())).await.unwrap();
    let empty = f.backend.result(&id).await.unwrap();
    assert_eq!(empty.as_deref(), Some(&[][..]), "an empty result is a result");
}

pub async fn counts_and_lanes(f: &Fixture) {
    assert!(f.backend.counts().await.unwrap().is_empty());
    f.start(item()).await;
    f.submit(item()).await;
    f.submit(item()).await;
    f.submit(item().namespace("mine").delay(Duration::from_secs(1))).await;
    f.submit(Submission::new("another", "kind")).await;
    let counts = f.backend.counts().await.unwrap();
    let shown: Vec<_> = counts
        .iter()
        .flat_map(|lane| {
            let of = format!("{}/{}", lane.namespace, lane.lane_id);
            lane.counts.iter().map(move |(state, count)| format!("{of} {} {count}", state.as_str()))
        })
        .collect();
    let expected = [
        "default/another waiting 1",
        "default/lane waiting 2",
        "default/lane active 1",
        "mine/lane delayed 1",
    ];
    assert_eq!(shown, expected);
    let lanes = f.backend.list_lanes().await.unwrap();
    let names: Vec<_> = lanes.iter().map(|lane| lane.lane_id.as_str()).collect();
    assert_eq!(names, ["another", LANE]);
    assert!(lanes.iter().all(|lane| lane.state == LaneState::Active));
}

pub async fn explain(f: &Fixture) {
    let rule = |id: ExecutionId| async move { f.backend.explain(&id).await.unwrap().rule };
    let waiting = f.submit(item()).await;
    assert_eq!(rule(waiting.clone()).await, "waiting_for_worker");
    let args = PauseLaneArgs {
        lane_id: LaneId::new(LANE),
        reason: "maintenance".into(),
        by: String::new(),
    };
    f.backend.pause_lane(args).await.unwrap();
    let paused = f.backend.explain(&waiting).await.unwrap();
    assert_eq!(paused.rule, "lane_paused");
    assert!(paused.words.contains("maintenance"), "{}", paused.words);

    let work = Submission::new("other", "kind").policy(retries(1, 4_000));
    let id = f.submit(work.delay(Duration::from_secs(2))).await;
    let delayed = f.backend.explain(&id).await.unwrap();
    assert_eq!(delayed.rule, "delay");
    assert_eq!(delayed.next_change_at, Some(f.now().after_ms(2_000)));
    assert_eq!(delayed.words, "It is delayed for another 2.0 s.");
    f.advance(2_000).await;
    let claimed = f.backend.claim_many(claim_from("other")).await.unwrap().remove(0);
    let running = f.backend.explain(&id).await.unwrap();
    assert_eq!(running.rule, "running");
    assert_eq!(running.next_change_at, Some(claimed.lease_expires_at));
    // People count attempts from 1, in every sentence.
    assert!(running.words.ends_with(" holds attempt 1."), "{}", running.words);
    f.backend.fail(&claimed.handle, failure(FailureClass::Retryable)).await.unwrap();
    let backoff = f.backend.explain(&id).await.unwrap();
    assert_eq!(backoff.rule, "retry_backoff");
    assert_eq!(backoff.next_change_at, Some(f.now().after_ms(4_000)));
    assert_eq!(backoff.details["max_retries"], 1);
    assert_eq!(backoff.words, "Attempt 1 failed; attempt 2 starts in 4.0 s.");
    f.cancel_execution(&id).await.unwrap();
    assert_eq!(rule(id).await, "finished");
}
