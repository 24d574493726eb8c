//! An article waits for its editor, who has a link. While it waits it takes no slot, no thread and
//! no memory of the worker; it would survive a restart of everything.

use std::time::Duration;

use anyhow::Context as _;
use flowfabric::sdk::{Client, Ctx, Input, Outcome, State, Task, Worker};
use flowfabric::sqlite::{SqliteBackend, SqliteOptions};
use flowfabric::token::{Secret, WaitpointSecret, WaitpointSecrets, WaitpointToken};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
struct Decision {
    approved: bool,
    by: String,
}

const PUBLISH: Task<String, String> = Task::new("publish");
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Where letters to the editor go.
type Letters = mpsc::UnboundedSender<WaitpointToken>;

async fn publish(
    ctx: Ctx,
    State(letters): State<Letters>,
    Input(title): Input<String>,
) -> Outcome<String> {
    // A step, so that the editor gets one letter however often the handler begins again.
    ctx.step("ask", || async {
        let waitpoint = ctx.waitpoint("approval", WEEK).await?;
        let token = waitpoint.token.context("the engine has no secret to make tokens with")?;
        Ok(letters.send(token)?)
    })
    .await?;
    let decision: Option<Decision> = ctx.wait_for_signal_within("approval", WEEK).await?;
    Ok(match decision {
        Some(Decision { approved: true, by }) => format!("{title:?} is published, says {by}"),
        Some(Decision { approved: false, by }) => format!("{title:?} is not published, says {by}"),
        None => format!("{title:?} was forgotten"),
    })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut options = SqliteOptions::new(":memory:");
    // A real one comes from the configuration and is kept.
    let secret = Secret::new(std::array::from_fn::<u8, 32, _>(|_| fastrand::u8(..)));
    let secret = WaitpointSecret::new("example", secret)?;
    options.engine.waitpoint_secrets = WaitpointSecrets::new([secret])?;
    let engine = SqliteBackend::open(options).await?;
    let client = Client::embedded(engine.clone());

    let (letters, mut inbox) = mpsc::unbounded_channel();
    let worker = Worker::new(client.clone()).state(letters).task(PUBLISH, publish);
    let running = tokio::spawn(worker.run_until(std::future::pending()));
    let run = client.start(PUBLISH, &"On leases".to_owned()).await?;

    let token = inbox.recv().await.context("no letter came")?;
    println!("The editor got a link and follows it.");
    let decision = Decision { approved: true, by: "Ada".into() };
    client.signal_by_token(token, "approval", &decision).await?;
    let result = run.result().await?;
    running.abort();
    engine.close().await;
    println!("{result}");
    Ok(())
}
