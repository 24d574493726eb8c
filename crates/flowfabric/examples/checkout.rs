//! An order is paid and sent in steps. The warehouse fails twice, the handler begins again each
//! time, and the customer is charged once: what a step has done is recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::ensure;
use flowfabric::sdk::{Client, Ctx, Failure, Input, Outcome, Retry, State, Task, Worker};
use flowfabric::sqlite::SqliteBackend;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    email: String,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    charge: String,
    parcel: String,
    attempts: u32,
}

const CHECKOUT: Task<Order, Receipt> = Task::new("checkout")
    .lane("orders")
    .retry(Retry::exponential(Duration::from_millis(10), Duration::from_millis(50)).max(5));

/// The services that a checkout needs, and how often they were asked.
#[derive(Clone, Default)]
struct Services {
    charges: Arc<AtomicU32>,
    parcels: Arc<AtomicU32>,
}

impl Services {
    /// A real one would be given the key, so that even a crash between the charge and its record
    /// cannot charge twice.
    fn charge(&self, key: &str) -> String {
        let number = self.charges.fetch_add(1, Ordering::Relaxed) + 1;
        println!("charging ({number}) under the key {key}");
        format!("charge-{number}")
    }

    fn send(&self, order: u64) -> anyhow::Result<String> {
        let tries = self.parcels.fetch_add(1, Ordering::Relaxed) + 1;
        ensure!(tries > 2, "the warehouse does not answer");
        Ok(format!("parcel-{order}"))
    }
}

async fn checkout(
    ctx: Ctx,
    State(services): State<Services>,
    Input(order): Input<Order>,
) -> Outcome<Receipt> {
    if order.email.is_empty() {
        return Err(Failure::fatal("no_email", format!("order {} has no e-mail", order.id)));
    }
    let key = format!("{}-charge", ctx.id());
    let charge = ctx.step("charge", || async { Ok(services.charge(&key)) }).await?;
    println!("attempt {}: {charge}", ctx.attempt() + 1);
    ctx.sleep("cool-off", Duration::from_millis(20)).await?;
    let parcel = ctx.step("send", || async { Ok(services.send(order.id)?) }).await?;
    Ok(Receipt { charge, parcel, attempts: ctx.attempt() + 1 })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = SqliteBackend::new(":memory:").await?;
    let client = Client::embedded(engine.clone());
    let services = Services::default();
    let worker =
        Worker::new(client.clone()).lane("orders").state(services.clone()).task(CHECKOUT, checkout);
    let running = tokio::spawn(worker.run_until(std::future::pending()));

    let order = Order { id: 7, email: "ada@example.org".into() };
    let run = client.start(CHECKOUT, &order).idempotency_key("order-7").await?;
    let Receipt { charge, parcel, attempts } = run.result().await?;
    ensure!(services.charges.load(Ordering::Relaxed) == 1, "charged more than once");
    running.abort();
    engine.close().await;
    println!("{charge} and {parcel} after {attempts} attempts, charged once");
    Ok(())
}
