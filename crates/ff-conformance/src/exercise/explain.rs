//! Every reason for which an execution does not run is told with its facts.

use std::collections::BTreeMap;

use ff_core::backend::{CancelFlowPolicy, CancelFlowWait};
use ff_core::contracts::{
    EdgePolicy, Explanation, ListExecutionsArgs, OnSatisfied, PutQuotaArgs, QuotaKey, RateLimit,
    Submission,
};
use ff_core::engine_backend::{FlowOperations, LimitOperations, SuspensionOperations};
use ff_core::state::PublicState;
use ff_core::types::ExecutionId;

use super::flow_graph::{claim_all, graph, plant, settle, take, with_policy};
use super::flow_grow::extend;
use super::quota::{quota, tenant};
use super::waits::{gate, put};
use super::{Fixture, item};

async fn why(f: &Fixture, id: &ExecutionId) -> Explanation {
    f.backend.explain(id).await.unwrap()
}

/// The names and states of those that are waited for.
fn open(why: &Explanation) -> Vec<(String, String)> {
    let open = why.details["open"].as_array().expect("a list").iter();
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let mut open: Vec<_> = open.map(|one| (text(&one["name"]), text(&one["state"]))).collect();
    open.sort_unstable();
    open
}

fn words(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, state)| (name.to_string(), state.to_string())).collect()
}

pub async fn which_parents(f: &Fixture) {
    let two = EdgePolicy::Quorum { k: 2, on_satisfied: OnSatisfied::LetRun };
    let flow = plant(f, with_policy(graph("a>d b>d c>d d>e"), "d", two)).await;
    let a = take(f, &flow, "a").await;
    let told = why(f, flow.node("d")).await;
    assert_eq!(told.rule, "dependencies");
    let all = [("a", "active"), ("b", "active"), ("c", "active")];
    assert_eq!(open(&told), words(&all), "all were handed out");
    f.backend.complete(&a, None).await.unwrap();
    let told = why(f, flow.node("d")).await;
    assert_eq!(open(&told), words(&all[1..]));
    let group = &told.details["group"];
    assert_eq!(group["policy"]["kind"], "quorum", "{group}");
    assert_eq!((&group["parents"], &group["succeeded"]), (&3.into(), &1.into()));
    let ids: Vec<_> = told.details["open"].as_array().unwrap().iter().collect();
    let b = flow.node("b").as_str();
    assert!(ids.iter().any(|one| one["execution_id"] == b), "{ids:?}");
    for part in ["2 of its 3 parents", "1 have", "b (active)", "c (active)"] {
        assert!(told.words.contains(part), "{:?} lacks {part:?}", told.words);
    }
    let told = why(f, flow.node("e")).await;
    assert_eq!(open(&told), words(&[("d", "waiting_children")]));

    // What many wait for is told in part, and those that have ended are not named.
    let names: Vec<String> = (0..30).map(|at| format!("p{at}>last")).collect();
    let wide = plant(f, graph(&names.join(" "))).await;
    for claimed in claim_all(f).await.iter().take(15) {
        f.backend.complete(&claimed.handle, None).await.unwrap();
    }
    let told = why(f, wide.node("last")).await;
    assert_eq!(open(&told).len(), 10);
    assert_eq!(told.details["open_total"], 15, "the list says that it was cut");
    assert!(open(&told).iter().all(|(_, state)| state == "active"), "{told:?}");
    assert!(told.words.contains("and 5 more"), "{:?}", told.words);
}

pub async fn which_children(f: &Fixture) {
    let flow = plant(f, graph("before>parent>after")).await;
    let before = take(f, &flow, "before").await;
    f.backend.complete(&before, None).await.unwrap();
    let parent = take(f, &flow, "parent").await;
    extend(f, &parent, "x y z", "").await;
    f.backend.wait_children(&parent).await.unwrap();
    let x = claim_all(f).await.swap_remove(0);
    f.backend.complete(&x.handle, None).await.unwrap();
    let told = why(f, flow.node("parent")).await;
    assert_eq!(told.rule, "dependencies");
    assert_eq!(open(&told).len(), 2, "{told:?}");
    assert!(open(&told).iter().all(|(name, _)| ["x", "y", "z"].contains(&name.as_str())));
    let children = &told.details["children"];
    assert_eq!((&children["added"], &children["ended"]), (&3.into(), &1.into()));
    assert!(told.words.contains("the 2 nodes that it has added"), "{:?}", told.words);
}

/// Whatever else a member waits for, it is not handed out after the end of its flow.
pub async fn ended_flow_first(f: &Fixture) {
    let flow = plant(f, graph("a")).await;
    let a = take(f, &flow, "a").await;
    let policy = CancelFlowPolicy::FlowOnly;
    f.backend.cancel_flow(&flow.id, policy, CancelFlowWait::NoWait).await.unwrap();
    assert_eq!(why(f, flow.node("a")).await.rule, "running");
    put(f.backend.suspend(&a, gate()).await);
    let told = why(f, flow.node("a")).await;
    assert_eq!((&*told.rule, told.next_change_at), ("flow_ended", None), "{told:?}");
    settle(f).await;
    assert_eq!(why(f, flow.node("a")).await.rule, "flow_ended");
}

pub async fn full_quota(f: &Fixture) {
    let args = PutQuotaArgs { concurrency: Some(1), ..quota("cap") };
    let rate = Some(RateLimit { limit: 100, window_ms: 1_000 });
    f.backend.put_quota(PutQuotaArgs { rate, ..args }).await.unwrap();
    f.start(item()).await;
    let waiting = f.submit(item()).await;
    assert!(f.try_claim().await.is_none());
    let told = why(f, &waiting).await;
    assert_eq!((&*told.rule, told.next_change_at), ("quota_concurrency", None), "{told:?}");
    for number in ["in_use", "concurrency", "waiting"] {
        assert_eq!(told.details[number], 1, "{number}");
    }
    assert!(told.words.contains("1 of 1"), "{:?}", told.words);
}

/// In a fair lane, what one key has too much of is put aside until its turn.
pub async fn another_keys_turn(f: &Fixture) {
    let key = QuotaKey::Tag("tenant.name".into());
    let weights = BTreeMap::from([("large".to_owned(), 1)]);
    let args = PutQuotaArgs { key, fair: true, weights, ..quota("turns") };
    f.backend.put_quota(args).await.unwrap();
    let items: Vec<Submission> = (0..200).map(|_| tenant("large")).collect();
    f.backend.submit(items).await.unwrap();
    f.submit(tenant("small")).await;
    // The first claim finds that the lane is limited, and those after it look further.
    for _ in 0..3 {
        f.claim().await;
    }
    let args = ListExecutionsArgs {
        states: vec![PublicState::RateLimited],
        limit: 1,
        ..Default::default()
    };
    let aside = f.backend.list_executions(args).await.unwrap().executions.pop();
    let told = why(f, &aside.expect("some are put aside").execution_id).await;
    assert_eq!((&*told.rule, &told.details["key"]), ("quota_turn", &"large".into()), "{told:?}");
}
