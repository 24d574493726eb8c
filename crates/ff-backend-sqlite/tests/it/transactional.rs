//! Submitting in one transaction with the caller's own rows.

use ff_backend_sqlite::SqliteBackend;
use ff_backend_sqlite::rusqlite::Error;
use ff_core::contracts::{Submission, SubmitOutcome};
use ff_core::engine_backend::EngineBackend;

async fn orders(backend: &SqliteBackend) -> i64 {
    let sql = "SELECT count(*) FROM orders";
    sqlx::query_scalar(sql).fetch_one(backend.pool_for_test()).await.unwrap()
}

async fn with_orders() -> std::sync::Arc<SqliteBackend> {
    let backend = SqliteBackend::new(":memory:").await.unwrap();
    let create = |db: &ff_backend_sqlite::rusqlite::Connection| {
        db.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")?;
        Ok(((), vec![]))
    };
    backend.submit_with(create).await.unwrap();
    backend
}

#[tokio::test]
async fn both_are_kept_or_neither() {
    let backend = with_orders().await;
    let (order, outcomes) = backend
        .submit_with(|db| {
            db.execute("INSERT INTO orders DEFAULT VALUES", [])?;
            let order = db.last_insert_rowid();
            Ok((order, vec![Submission::new("orders", "ship").payload(order.to_string())]))
        })
        .await
        .expect("both");
    assert_eq!(order, 1);
    assert!(matches!(outcomes[0], SubmitOutcome::Created { .. }));
    assert_eq!(orders(&backend).await, 1);

    let failed = backend
        .submit_with::<(), _>(|db| {
            db.execute("INSERT INTO orders DEFAULT VALUES", [])?;
            Err(Error::QueryReturnedNoRows)
        })
        .await;
    assert!(failed.is_err());
    assert_eq!(orders(&backend).await, 1, "the caller's row was taken back");
    assert_eq!(backend.counts().await.unwrap()[0].counts.values().sum::<u64>(), 1);
}

#[tokio::test]
async fn a_closure_may_neither_commit_nor_panic_its_way_out() {
    let backend = with_orders().await;
    let sneaky = backend
        .submit_with(|db| {
            db.execute_batch("INSERT INTO orders DEFAULT VALUES; ROLLBACK")?;
            Ok(((), vec![Submission::new("orders", "ship")]))
        })
        .await;
    assert!(sneaky.is_err());
    let panicked = backend.submit_with::<(), _>(|_| panic!("a bug in the caller")).await;
    assert!(panicked.is_err());
    let (_, outcomes) = backend
        .submit_with(|_| Ok(((), vec![Submission::new("orders", "ship")])))
        .await
        .expect("the writer goes on");
    assert_eq!(outcomes.len(), 1);
    assert_eq!(orders(&backend).await, 0);
}
