//! Rows that were damaged by SQL are shown, and hide nothing.

use ff_backend_sqlite::SqliteBackend;
use ff_conformance::damaged::rows_are_shown;
use ff_conformance::damaged_records::records_are_named;
use ff_core::contracts::ListExecutionsArgs;
use ff_core::engine_backend::EngineBackend;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_rows_are_shown_as_unreadable() {
    let backend = SqliteBackend::new("file:damaged?mode=memory&cache=shared").await.expect("open");
    let pool = backend.pool_for_test();
    let sql = async |sql: String| {
        sqlx::query(&sql).execute(pool).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    };
    rows_are_shown(&*backend, &sql).await;
    // Only here a column can hold a value of another type.
    sql("UPDATE ff_lane SET paused_at_ms = 'odd' WHERE lane_id = 'flow'".to_owned()).await;
    let lanes = backend.list_lanes().await.expect("lanes");
    let damaged: Vec<_> = lanes.iter().filter(|lane| lane.unreadable.is_some()).collect();
    assert!(damaged.len() == 1 && lanes.len() > 1, "{lanes:?}");
    let why = damaged[0].unreadable.as_deref().unwrap_or_default();
    assert!(why.starts_with("paused_at_ms cannot be read"), "{why}");
    sql("UPDATE ff_exec_core SET created_at_ms = 'odd' WHERE lane_id = 'fourth'".to_owned()).await;
    let page = backend.list_executions(ListExecutionsArgs::default()).await.expect("list");
    assert!(page.executions.iter().any(|row| row.unreadable.is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_records_are_named_by_their_lists() {
    let uri = "file:damaged-records?mode=memory&cache=shared";
    let backend = SqliteBackend::new(uri).await.expect("open");
    let pool = backend.pool_for_test();
    let sql = async |sql: String| {
        sqlx::query(&sql).execute(pool).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    };
    records_are_named(&*backend, &sql).await;
}
