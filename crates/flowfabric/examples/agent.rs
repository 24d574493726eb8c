//! An agent thinks, uses a tool and thinks again until it has an answer. Each thought is a step, so
//! that a model is not paid twice for what it has said; its words are streamed as they come; and
//! what it uses is charged to a budget that all agents share.

use std::collections::BTreeMap;

use flowfabric::LimitOperations;
use flowfabric::contracts::{DimensionLimits, PutBudgetArgs};
use flowfabric::sdk::{Client, Ctx, Input, Outcome, Task, Worker};
use flowfabric::sqlite::SqliteBackend;
use flowfabric::types::{BudgetId, Namespace};
use serde::{Deserialize, Serialize};

const ASK: Task<String, Answer> = Task::new("ask");
const WORD: &str = "word";
/// The budget, and its one dimension.
const TOKENS: &str = "tokens";

#[derive(Serialize, Deserialize)]
struct Answer {
    text: String,
    thoughts: usize,
}

/// What the model says next, given what was said so far.
#[derive(Clone, Serialize, Deserialize)]
enum Thought {
    UseTool(String),
    Answer(String),
}

/// Stands in for a model: it multiplies by asking, and looks twice. It never has enough of riddles.
fn think(question: &str, notes: &[String]) -> Thought {
    match notes.len() {
        0 => Thought::UseTool("6 7".to_owned()),
        1 => Thought::UseTool("42 1".to_owned()),
        _ if question.contains("six times seven") => Thought::Answer("forty-two.".to_owned()),
        _ => Thought::UseTool("1 1".to_owned()),
    }
}

fn multiply(arguments: &str) -> anyhow::Result<String> {
    let factors = arguments.split(' ').map(str::parse::<u64>);
    Ok(factors.product::<Result<u64, _>>()?.to_string())
}

async fn ask(ctx: Ctx, Input(question): Input<String>) -> Outcome<Answer> {
    let mut notes = Vec::new();
    loop {
        let name = format!("thought-{}", notes.len() + 1);
        let thought = ctx.step(&name, || async {
            let thought = think(&question, &notes);
            let (Thought::UseTool(text) | Thought::Answer(text)) = &thought;
            for word in text.split(' ') {
                ctx.stream(WORD, word).await?;
            }
            Ok(thought)
        });
        let thought = thought.await?;
        let (Thought::UseTool(text) | Thought::Answer(text)) = &thought;
        let read = question.split(' ').count() + notes.len();
        let used = (read + text.split(' ').count()) as u64;
        // Charged once under its name, however often the handler begins again. Beyond the limit
        // it fails for good.
        ctx.usage(TOKENS, &name, [(TOKENS, used)]).await?;
        match thought {
            Thought::Answer(text) => return Ok(Answer { text, thoughts: notes.len() + 1 }),
            Thought::UseTool(arguments) => {
                let name = format!("tool-{}", notes.len() + 1);
                notes.push(ctx.step(name, || async { Ok(multiply(&arguments)?) }).await?);
            }
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = SqliteBackend::new(":memory:").await?;
    let limits = DimensionLimits { hard: Some(50), soft: None };
    let budget = PutBudgetArgs {
        namespace: Namespace::new("default"),
        budget_id: BudgetId::new(TOKENS),
        dimensions: BTreeMap::from([(TOKENS.to_owned(), limits)]),
        ..PutBudgetArgs::default()
    };
    engine.put_budget(budget).await?;
    let client = Client::embedded(engine.clone());
    let worker = Worker::new(client.clone()).task(ASK, ask);
    let running = tokio::spawn(worker.run_until(std::future::pending()));

    let question = "What is six times seven?".to_owned();
    let run = client.start(ASK, &question).budget(TOKENS).await?;
    let mut frames = client.follow(run.id());
    while let Some(frame) = frames.next().await? {
        println!("  {}", String::from_utf8_lossy(&frame.payload));
    }
    let Answer { text, thoughts } = run.result().await?;

    let riddle = client.start(ASK, &"Why?".to_owned()).budget(TOKENS).await?;
    let end = riddle.finished().await?;
    println!("  the riddle: {}", end.failure_reason.unwrap_or_default());
    running.abort();
    engine.close().await;
    println!("The answer after {thoughts} thoughts: {text}");
    Ok(())
}
