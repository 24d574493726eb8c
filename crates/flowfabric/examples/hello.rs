//! A worker and its client in one process: the smallest program that does something.

use flowfabric::sdk::{Client, Input, Outcome, Task, Worker};
use flowfabric::sqlite::SqliteBackend;

const GREET: Task<String, String> = Task::new("greet");

async fn greet(Input(name): Input<String>) -> Outcome<String> {
    Ok(format!("Hello, {name}!"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = SqliteBackend::new(":memory:").await?;
    let client = Client::embedded(engine.clone());
    let run = client.start(GREET, &"Ada".to_owned()).await?;
    let worker = Worker::new(client).task(GREET, greet);
    let running = tokio::spawn(worker.run_until(std::future::pending()));
    println!("{}", run.result().await?);
    running.abort();
    engine.close().await;
    Ok(())
}
