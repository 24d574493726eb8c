//! An agent thinks, uses a tool and thinks again until it has an answer. Each thought is a step, so
//! that a model is not paid twice for what it has said; its words are streamed as they come.

use flowfabric::sdk::{Client, Ctx, Failure, Input, Outcome, Task, Worker};
use flowfabric::sqlite::SqliteBackend;
use serde::{Deserialize, Serialize};

const ASK: Task<String, Answer> = Task::new("ask");
const TOKENS: usize = 40;
const WORD: &str = "word";

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

/// Stands in for a model: it multiplies by adding, and looks twice.
fn think(question: &str, notes: &[String]) -> Thought {
    match notes.len() {
        0 => Thought::UseTool("6 7".to_owned()),
        1 => Thought::UseTool("42 1".to_owned()),
        _ if question.contains("six times seven") => Thought::Answer("forty-two.".to_owned()),
        _ => Thought::Answer("nobody knows.".to_owned()),
    }
}

fn multiply(arguments: &str) -> anyhow::Result<String> {
    let factors = arguments.split(' ').map(str::parse::<u64>);
    Ok(factors.product::<Result<u64, _>>()?.to_string())
}

async fn ask(ctx: Ctx, Input(question): Input<String>) -> Outcome<Answer> {
    let (mut notes, mut tokens) = (Vec::new(), question.split(' ').count());
    loop {
        let number = notes.len() + 1;
        let thought = ctx.step(format!("thought-{number}"), || async {
            let thought = think(&question, &notes);
            let (Thought::UseTool(text) | Thought::Answer(text)) = &thought;
            for word in text.split(' ') {
                ctx.stream(WORD, word).await?;
            }
            Ok(thought)
        });
        match thought.await? {
            Thought::Answer(text) => return Ok(Answer { text, thoughts: number }),
            Thought::UseTool(arguments) => {
                tokens += arguments.split(' ').count();
                let name = format!("tool-{number}");
                notes.push(ctx.step(name, || async { Ok(multiply(&arguments)?) }).await?);
            }
        }
        if tokens > TOKENS {
            return Err(Failure::fatal(
                "budget",
                format!("{tokens} tokens, the limit is {TOKENS}"),
            ));
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = SqliteBackend::new(":memory:").await?;
    let client = Client::embedded(engine.clone());
    let worker = Worker::new(client.clone()).task(ASK, ask);
    let running = tokio::spawn(worker.run_until(std::future::pending()));

    let question = "What is six times seven?".to_owned();
    let run = client.start(ASK, &question).await?;
    let mut frames = client.follow(run.id());
    while let Some(frame) = frames.next().await? {
        println!("  {}", String::from_utf8_lossy(&frame.payload));
    }
    let Answer { text, thoughts } = run.result().await?;
    running.abort();
    engine.close().await;
    println!("The answer after {thoughts} thoughts: {text}");
    Ok(())
}
