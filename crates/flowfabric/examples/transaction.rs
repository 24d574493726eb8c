//! An order and the letter about it are one transaction on PostgreSQL: there is never an order
//! without its letter, nor a letter without its order. `DATABASE_URL` names the database.

use anyhow::Context as _;
use flowfabric::postgres::{PostgresBackend, PostgresOptions};
use flowfabric::sdk::{Client, Input, Outcome, Task, Worker};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

const LETTER: Task<i64, String> = Task::new("letter").lane("letters");
const SCHEMA: &str = "flowfabric_example";

async fn letter(Input(order): Input<i64>) -> Outcome<String> {
    Ok(format!("Thank you for order {order}."))
}

/// The program's own pool. Connections that submit must find the engine's tables.
async fn pool(url: &str) -> anyhow::Result<PgPool> {
    let options: PgConnectOptions = url.parse()?;
    let options = options.options([("search_path", SCHEMA)]);
    Ok(PgPoolOptions::new().max_connections(2).connect_with(options).await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL names no database")?;
    let options = PostgresOptions { schema: Some(SCHEMA.to_owned()), ..PostgresOptions::new(&url) };
    let engine = PostgresBackend::open(options).await?;
    let client = Client::embedded(engine.clone());
    let pool = pool(&url).await?;
    let table = "CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, item text NOT NULL)";
    sqlx::query(table).execute(&pool).await?;

    let mut letters = Vec::new();
    for paid in [false, true] {
        let mut transaction = pool.begin().await?;
        let insert = "INSERT INTO orders (item) VALUES ('tea') RETURNING id";
        let order: i64 = sqlx::query_scalar(insert).fetch_one(&mut *transaction).await?;
        let work = client.start(LETTER, &order).into_submission()?;
        let outcomes = engine.submit_in(&mut transaction, vec![work]).await?;
        let id = outcomes[0].execution_id().context("the letter is refused")?.clone();
        match paid {
            true => transaction.commit().await?,
            false => transaction.rollback().await?,
        }
        let found = client.describe(&id).await?.is_some();
        println!("  order {order}, paid: {paid}; its letter exists: {found}");
        letters.extend(found.then_some((order, id)));
    }

    let worker = Worker::new(client.clone()).lane("letters").task(LETTER, letter);
    let running = tokio::spawn(worker.run_until(std::future::pending()));
    let [(order, id)] = &letters[..] else { anyhow::bail!("{} letters", letters.len()) };
    let text = client.run::<String>(id.clone()).result().await?;
    anyhow::ensure!(text == format!("Thank you for order {order}."), "{text}");
    running.abort();
    engine.close().await;
    pool.close().await;
    println!("One order, one letter: Thank you.");
    Ok(())
}
