//! A report is due every Monday at seven in Berlin, summer and winter. The program moves the clock
//! itself, so that three weeks take no time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use flowfabric::ScheduleOperations;
use flowfabric::contracts::{
    EventFilter, EventType, PutScheduleArgs, ScheduleId, ScheduleTemplate, Timing,
};
use flowfabric::engine::StartAt;
use flowfabric::engine::clock::ManualClock;
use flowfabric::sdk::{Client, Input, Outcome, Tags, Task, Worker};
use flowfabric::sqlite::{SqliteBackend, SqliteOptions};

const REPORT: Task<(), String> = Task::new("report").lane("reports");
/// 19 March 2027, a Friday; the clocks change on the 28th.
const START_MS: i64 = 1_805_443_200_000;
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Each run knows when it was due, however late it runs.
async fn report(Tags(tags): Tags, Input(()): Input<()>) -> Outcome<String> {
    let due = tags.get("schedule.due_at").context("nobody scheduled this")?;
    Ok(format!("the week before {due}"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let clock = Arc::new(ManualClock::new(START_MS));
    let options = SqliteOptions { clock: clock.clone(), ..SqliteOptions::new(":memory:") };
    let engine = SqliteBackend::open(options).await?;
    let template = ScheduleTemplate {
        input_payload: b"null".to_vec(),
        ..ScheduleTemplate::new("reports", REPORT.kind())
    };
    let schedule = PutScheduleArgs::new(
        ScheduleId::new("default", "weekly-report"),
        Timing::cron("0 7 * * MON", "Europe/Berlin"),
        template,
    );
    engine.put_schedule(schedule).await?;

    let client = Client::embedded(engine.clone());
    let worker = Worker::new(client.clone()).lane("reports").task(REPORT, report);
    let running = tokio::spawn(worker.run_until(std::future::pending()));
    let completed =
        EventFilter { event_types: vec![EventType::Completed], ..EventFilter::default() };
    let mut events = client.events(completed, StartAt::Latest).await?;
    let mut reports = 0;
    for _ in 0..3 {
        clock.advance(WEEK);
        let id = events.next().await?.execution_id.context("an execution")?;
        println!("  {}", client.run::<String>(id).result().await?);
        reports += 1;
    }
    running.abort();
    engine.close().await;
    println!("{reports} reports in three weeks");
    Ok(())
}
