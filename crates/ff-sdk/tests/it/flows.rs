//! Graphs of tasks and what they use of their budgets, in the same process and through a server;
//! and a whole flow in the test kit.

use std::collections::BTreeMap;
use std::time::Duration;

use ff_core::backend::CancelFlowPolicy;
use ff_core::contracts::{DimensionLimits, EventType, FlowStatus, PutBudgetArgs, UsageOutcome};
use ff_core::engine_backend::LimitOperations;
use ff_core::state::PublicState;
use ff_core::types::{BudgetId, Namespace};
use ff_sdk::testing::TestKit;
use ff_sdk::{Ctx, Failure, Input, Needs, Outcome, Retry, Task, Worker};

use crate::bed::Running;
use crate::place::{Place, both_ways};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const COUNT: Task<String, usize> = Task::new("count");
const SUM: Task<(), usize> = Task::new("sum");
const ASK: Task<String, String> = Task::new("ask").retry(Retry::never());
const PICK: Task<(), String> = Task::new("pick");
const SPLIT: Task<u32, usize> = Task::new("split");
const SPEND: Task<u64, Vec<String>> = Task::new("spend").retry(Retry::never());
const LATER: Task<u64, u64> = Task::new("later");

both_ways!(
    a_graph_runs_in_its_order,
    the_first_good_answer_wins,
    what_cannot_have_its_quorum_is_skipped,
    a_graph_that_makes_no_sense_is_refused,
    members_add_to_their_flow_and_wait,
    a_flow_is_cancelled,
    usage_is_counted_once_and_not_beyond_the_limit,
);

async fn count(Input(text): Input<String>) -> Outcome<usize> {
    Ok(text.len())
}

async fn sum(ctx: Ctx, Input(()): Input<()>) -> Outcome<usize> {
    let counts = ctx.parent_results::<usize>().await?;
    Ok(counts.into_iter().map(|(_, count)| count).sum())
}

/// Knows, fails or waits for ever.
async fn ask(ctx: Ctx, Input(whom): Input<String>) -> Outcome<String> {
    match whom.as_str() {
        "nobody" => Err(Failure::fatal("absent", "nobody answers")),
        "silent" => ctx.wait_for_signal("answer").await,
        name => Ok(format!("{name} knows")),
    }
}

async fn pick(ctx: Ctx, Input(()): Input<()>) -> Outcome<String> {
    let answers = ctx.parent_results::<String>().await?;
    let answers: Vec<String> = answers.into_iter().map(|(_, answer)| answer).collect();
    Ok(answers.join(", "))
}

/// Adds nodes to its own flow, waits for them and reads what they say.
async fn split(ctx: Ctx, Input(parts): Input<u32>) -> Outcome<usize> {
    let mut growth = ctx.grow();
    let part = |n: u32| (format!("part-{n}"), ctx.client().start(COUNT, &"x".repeat(n as usize)));
    let nodes: Vec<_> =
        (0..parts).map(part).map(|(name, start)| growth.node(name, start)).collect();
    let added = growth.add().await?;
    ctx.wait_children().await?;
    let mut total = 0;
    for node in &nodes {
        total += added.run(node)?.result().await?;
    }
    Ok(total)
}

async fn spend(ctx: Ctx, Input(tokens): Input<u64>) -> Outcome<Vec<String>> {
    let mut said = Vec::new();
    for name in ["first", "first", "second"] {
        let outcome = ctx.usage("tokens", name, [("tokens", tokens)]).await?;
        said.push(match outcome {
            UsageOutcome::Applied => "applied".to_owned(),
            UsageOutcome::AlreadyApplied => "already".to_owned(),
            other => format!("{other:?}"),
        });
    }
    Ok(said)
}

fn worker(worker: Worker) -> Worker {
    let worker = worker.task(COUNT, count).task(SUM, sum).task(ASK, ask).task(PICK, pick);
    worker.task(SPLIT, split).task(SPEND, spend)
}

async fn a_graph_runs_in_its_order(place: Place) {
    let client = &place.client;
    let build = || {
        let mut flow = client.flow("words").idempotency_key("once").tag("app.by", "ada");
        let one = flow.node("one", client.start(COUNT, &"one".to_owned()));
        let three = flow.node("three", client.start(COUNT, &"three".to_owned()));
        let needs = Needs::all_of([&one]).and(&three);
        let sum = flow.node_after(needs, "sum", client.start(SUM, &()));
        (flow, sum)
    };
    let (flow, sum) = build();
    let flow = flow.submit().await.unwrap();
    assert!(flow.created());
    let blocked = flow.run(&sum).unwrap().describe().await.unwrap().public_state;
    assert_eq!(blocked, PublicState::WaitingChildren);
    let running = Running::start(worker(place.worker()));
    let end = flow.finished().await.unwrap();
    running.stop().await;
    assert_eq!((end.status, end.node_count, end.edge_count), (FlowStatus::Completed, 3, 2));
    assert_eq!((&*end.flow_kind, &*end.tags["app.by"]), ("words", "ada"));
    assert_eq!(flow.run(&sum).unwrap().result().await.unwrap(), 8);
    let again = build().0.submit().await.unwrap();
    assert_eq!((again.id(), again.created()), (flow.id(), false));
}

async fn the_first_good_answer_wins(place: Place) {
    let client = &place.client;
    let mut flow = client.flow("answers");
    let asked = ["nobody", "silent", "ada"]
        .map(|whom| flow.node(whom, client.start(ASK, &whom.to_owned())));
    let needs = Needs::any_of(&asked).cancel_remaining();
    let pick = flow.node_after(needs, "pick", client.start(PICK, &()));
    let flow = flow.submit().await.unwrap();
    let running = Running::start(worker(place.worker()));
    assert_eq!(flow.run(&pick).unwrap().result().await.unwrap(), "ada knows");
    let silent = flow.run(&asked[1]).unwrap().finished().await.unwrap();
    assert_eq!(silent.public_state, PublicState::Cancelled);
    running.stop().await;
    assert!(flow.finished().await.unwrap().status.is_finished());
}

async fn what_cannot_have_its_quorum_is_skipped(place: Place) {
    let client = &place.client;
    let mut flow = client.flow("quorum");
    let ask = |whom: &str| client.start(ASK, &whom.to_owned());
    let asked =
        [("a", "nobody"), ("b", "nobody"), ("c", "ada")].map(|(n, whom)| flow.node(n, ask(whom)));
    let pick = flow.node_after(Needs::quorum(2, &asked), "pick", client.start(PICK, &()));
    let flow = flow.submit().await.unwrap();
    let running = Running::start(worker(place.worker()));
    let end = flow.run(&pick).unwrap().finished().await.unwrap();
    assert_eq!(end.public_state, PublicState::Skipped);
    assert_eq!(flow.finished().await.unwrap().status, FlowStatus::Failed);
    running.stop().await;
}

async fn a_graph_that_makes_no_sense_is_refused(place: Place) {
    let client = &place.client;
    let mut flow = client.flow("twice");
    let one = flow.node("one", client.start(SUM, &()));
    flow.node_after(Needs::all_of([&one]), "one", client.start(SUM, &()));
    let refused = flow.submit().await.unwrap_err();
    assert_eq!((refused.code(), refused.retryable()), ("invalid_graph", false));
    let mut other = client.flow("other");
    let node = other.node("sum", client.start(SUM, &()));
    let flow = other.submit().await.unwrap();
    assert!(flow.run(&node).is_ok());
    assert_eq!(flow.run(&one).unwrap_err().code(), "not_found");
}

async fn members_add_to_their_flow_and_wait(place: Place) {
    let client = &place.client;
    let mut flow = client.flow("split");
    let split = flow.node("split", client.start(SPLIT, &4));
    let flow = flow.submit().await.unwrap();
    // One slot is enough, because whoever waits for its children holds none.
    let running = Running::start(worker(place.worker().concurrency(1)));
    assert_eq!(flow.run(&split).unwrap().result().await.unwrap(), 6);
    running.stop().await;
    assert_eq!(flow.describe().await.unwrap().node_count, 5);
}

async fn a_flow_is_cancelled(place: Place) {
    let client = &place.client;
    let mut flow = client.flow("cancelled");
    let asked = flow.node("silent", client.start(ASK, &"silent".to_owned()));
    let pick = flow.node_after(Needs::all_of([&asked]), "pick", client.start(PICK, &()));
    let flow = flow.submit().await.unwrap();
    let running = Running::start(worker(place.worker()));
    let asked = flow.run(&asked).unwrap();
    place.happened(asked.id(), EventType::Suspended).await;
    flow.cancel(CancelFlowPolicy::CancelAll).await.unwrap();
    for run in [asked.finished().await, flow.run(&pick).unwrap().finished().await] {
        assert_eq!(run.unwrap().public_state, PublicState::Cancelled);
    }
    assert_eq!(flow.finished().await.unwrap().status, FlowStatus::Cancelled);
    running.stop().await;
}

async fn usage_is_counted_once_and_not_beyond_the_limit(place: Place) {
    let limits = DimensionLimits { hard: Some(100), soft: None };
    let budget = PutBudgetArgs {
        namespace: Namespace::new("default"),
        budget_id: BudgetId::new("tokens"),
        dimensions: BTreeMap::from([("tokens".to_owned(), limits)]),
        ..PutBudgetArgs::default()
    };
    place.engine.put_budget(budget).await.unwrap();
    let running = Running::start(worker(place.worker()));
    let start = |tokens| place.client.start(SPEND, &tokens).budget("tokens");
    let run = start(30).await.unwrap();
    assert_eq!(run.result().await.unwrap(), ["applied", "already", "applied"]);
    let failed = start(25).await.unwrap().finished().await.unwrap();
    assert_eq!(failed.failure_category.as_deref(), Some("budget_exceeded"));
    let reason = failed.failure_reason.unwrap();
    assert_eq!(reason, "the budget \"tokens\" has 85 of 100 tokens used up");
    running.stop().await;
    let (namespace, id) = (Namespace::new("default"), BudgetId::new("tokens"));
    let budget = place.engine.get_budget(&namespace, &id).await.unwrap();
    assert_eq!(budget.dimensions["tokens"].used, 85);
}

async fn later(ctx: Ctx, Input(days): Input<u64>) -> Outcome<u64> {
    ctx.sleep("rest", DAY * u32::try_from(days)?).await?;
    Ok(days)
}

#[tokio::test]
async fn a_whole_flow_runs_in_the_kit_under_a_clock_of_its_own() {
    let kit = TestKit::new(|client| worker(Worker::new(client)).task(LATER, later)).unwrap();
    let client = kit.client();
    let start = kit.now();
    let mut flow = client.flow("month");
    let first = flow.node("first", client.start(LATER, &10));
    let needs = Needs::all_of([&first]);
    let second = flow.node_after(needs, "second", client.start(LATER, &20));
    flow.node_after(Needs::all_of([&second]), "never", client.start(ASK, &"nobody".to_owned()));
    let flow = flow.submit().await.unwrap();
    kit.advance(29 * DAY).await.unwrap();
    assert_eq!(flow.run(&first).unwrap().result().await.unwrap(), 10);
    assert!(!flow.describe().await.unwrap().status.is_finished());
    kit.advance(DAY).await.unwrap();
    assert_eq!(flow.describe().await.unwrap().status, FlowStatus::Failed);
    assert_eq!(kit.now().since(start), 30 * DAY);
    let submitted = kit.submitted().await.unwrap();
    assert!(submitted.iter().all(|one| one.flow == Some(flow.id())));
    kit.assert_submitted(LATER, &20).await.unwrap();

    let mut flow = client.flow("skipped");
    let asked = flow.node("asked", client.start(ASK, &"nobody".to_owned()));
    let next = flow.node_after(Needs::all_of([&asked]), "next", client.start(SUM, &()));
    flow.node_after(Needs::all_of([&next]), "last", client.start(LATER, &5));
    let flow = flow.submit().await.unwrap();
    let end = kit.finish(&flow).await.unwrap();
    assert_eq!(end.counts[&PublicState::Skipped], 2);
}
