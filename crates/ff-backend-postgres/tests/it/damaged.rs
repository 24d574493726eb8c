//! Rows that were damaged by SQL are shown, and hide nothing.

use ff_conformance::damaged::rows_are_shown;
use ff_conformance::damaged_records::records_are_named;

use crate::database::{Schema, pool, url};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_rows_are_shown_as_unreadable() {
    let schema = Schema::new();
    let backend = schema.open().await;
    let pool = pool(&url(), 1).await;
    let own = format!("SET search_path TO {}", schema.0);
    sqlx::query(&own).execute(&pool).await.expect("search path");
    let sql = async |sql: String| {
        sqlx::query(&sql).execute(&pool).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    };
    rows_are_shown(&*backend, sql).await;
    pool.close().await;
    backend.close().await;
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_records_are_named_by_their_lists() {
    let schema = Schema::new();
    let backend = schema.open().await;
    let pool = pool(&url(), 1).await;
    let own = format!("SET search_path TO {}", schema.0);
    sqlx::query(&own).execute(&pool).await.expect("search path");
    let sql = async |sql: String| {
        sqlx::query(&sql).execute(&pool).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    };
    records_are_named(&*backend, sql).await;
    pool.close().await;
    backend.close().await;
    schema.drop().await;
}
