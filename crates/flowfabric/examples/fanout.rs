//! Four models are asked the same question at once. As soon as two have answered the verdict is
//! made, and whoever is still thinking is cancelled; one that fails is not waited for.

use std::time::Duration;

use flowfabric::sdk::{Client, Ctx, Failure, Input, Needs, Outcome, Retry, Task, Worker};
use flowfabric::sqlite::SqliteBackend;

const ASK: Task<String, u64> = Task::new("ask").retry(Retry::never());
const VERDICT: Task<(), String> = Task::new("verdict");
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Stands in for four models of different worth.
async fn ask(ctx: Ctx, Input(model): Input<String>) -> Outcome<u64> {
    match model.as_str() {
        "broken" => Err(Failure::fatal("no_answer", "the model talks nonsense")),
        "slow" => ctx.sleep("think", HOUR).await.map(|()| 42),
        _ => Ok(6 * 7),
    }
}

/// Begins when enough answers are there, and reads those.
async fn verdict(ctx: Ctx, Input(()): Input<()>) -> Outcome<String> {
    let mut answers = ctx.parent_results::<u64>().await?;
    answers.sort();
    let (names, numbers): (Vec<String>, Vec<u64>) = answers.into_iter().unzip();
    if numbers.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(Failure::fatal("disagreement", format!("{names:?} say {numbers:?}")));
    }
    Ok(format!("{} say {}", names.join(" and "), numbers[0]))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = SqliteBackend::new(":memory:").await?;
    let client = Client::embedded(engine.clone());
    let worker = Worker::new(client.clone()).task(ASK, ask).task(VERDICT, verdict);
    let running = tokio::spawn(worker.run_until(std::future::pending()));

    let mut flow = client.flow("panel");
    let asked = ["broken", "slow", "quick", "sure"]
        .map(|model| flow.node(model, client.start(ASK, &model.to_owned())));
    let two = Needs::quorum(2, &asked).cancel_remaining();
    let verdict = flow.node_after(two, "verdict", client.start(VERDICT, &()));
    let flow = flow.submit().await?;

    let said = flow.run(&verdict)?.result().await?;
    for node in &asked {
        let end = flow.run(node)?.finished().await?;
        println!("  {}: {}", node.name(), end.public_state.as_str());
    }
    running.abort();
    engine.close().await;
    println!("{said}");
    Ok(())
}
