//! The schema is brought up to date by anybody, at any time, and by many at once.

use ff_backend_postgres::{
    MigrationError, PostgresBackend, PostgresError, PostgresOptions, apply_migrations,
};
use ff_core::contracts::Submission;
use ff_core::engine_backend::EngineBackend;
use ff_core::partition::PartitionConfig;
use sqlx::PgPool;
use tokio::task::JoinSet;

use crate::database::{Database, options, pool};

async fn tables(pool: &PgPool) -> Vec<String> {
    let sql = "SELECT table_name::text FROM information_schema.tables \
               WHERE table_schema = 'public' ORDER BY 1";
    sqlx::query_scalar(sql).fetch_all(pool).await.expect("tables")
}

#[tokio::test]
async fn the_second_time_changes_nothing() {
    let database = Database::create().await;
    // One connection must be enough.
    let pool = pool(&database.url(), 1).await;
    assert!(tables(&pool).await.is_empty());
    apply_migrations(&pool).await.expect("the first time");
    let after = tables(&pool).await;
    for name in ["ff_exec_core", "ff_attempt", "ff_flow_core", "ff_edge", "ff_edge_group"] {
        assert!(after.iter().any(|table| table == name), "{name} is missing from {after:?}");
    }
    let stamp = "INSERT INTO ff_flow_core (partition_key, flow_id, graph_revision, \
                 public_flow_state, created_at_ms) VALUES (0, gen_random_uuid(), 0, 'open', 1)";
    sqlx::query(stamp).execute(&pool).await.expect("a row");
    apply_migrations(&pool).await.expect("the second time");
    assert_eq!(tables(&pool).await, after);
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM ff_flow_core")
        .fetch_one(&pool)
        .await
        .expect("count");
    assert_eq!(rows, 1);
    pool.close().await;
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_agree() {
    for _ in 0..5 {
        let database = Database::create().await;
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let pool = pool(&database.url(), 1).await;
            tasks.spawn(async move {
                apply_migrations(&pool).await.expect("migrate");
                let tables = tables(&pool).await;
                pool.close().await;
                tables
            });
        }
        let seen = tasks.join_all().await;
        assert!(!seen[0].is_empty());
        assert!(seen.iter().all(|tables| *tables == seen[0]), "{seen:?}");
        database.drop().await;
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let database = Database::create().await;
    let pool = pool(&database.url(), 1).await;
    apply_migrations(&pool).await.expect("migrate");
    let newer = "INSERT INTO ff_migration (version, name) VALUES (9999, 'from the future')";
    sqlx::query(newer).execute(&pool).await.expect("record");
    let refused = apply_migrations(&pool).await.unwrap_err();
    let is_newer = |error: &MigrationError| match error {
        MigrationError::NewerSchema { found, known } => *found == 9999 && *known < 9999,
        _ => false,
    };
    assert!(is_newer(&refused), "{refused:?}");
    for migrate in [true, false] {
        let options = PostgresOptions { migrate, ..options(&database.url()) };
        match PostgresBackend::open(options).await {
            Err(PostgresError::Migration(error)) => assert!(is_newer(&error), "{error:?}"),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it was opened"),
        }
    }
    pool.close().await;
    database.drop().await;
}

#[tokio::test]
async fn a_schema_that_nobody_made_is_missed() {
    let database = Database::create().await;
    let options = PostgresOptions { migrate: false, ..options(&database.url()) };
    match PostgresBackend::open(options).await {
        Err(PostgresError::Migration(MigrationError::Missing { .. })) => {}
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was opened"),
    }
    database.drop().await;
}

/// Two engines with different numbers would look for the same flow in different places.
#[tokio::test]
async fn another_number_of_partitions_is_refused() {
    let database = Database::create().await;
    let first = PostgresBackend::open(options(&database.url())).await.expect("the first engine");
    first.close().await;
    let partitions = PartitionConfig { num_flow_partitions: 64, ..PartitionConfig::default() };
    let refused = PostgresBackend::open(PostgresOptions { partitions, ..options(&database.url()) });
    let told = refused.await.err().expect("64 is not 256").to_string();
    assert!(told.contains("num_flow_partitions` to 256"), "{told}");
    let pool = pool(&database.url(), 4).await;
    let other = PostgresBackend::from_pool(pool.clone(), partitions);
    let written = other.submit(vec![Submission::new("lane", "kind")]).await.unwrap_err();
    let read = other.list_lanes().await.unwrap_err();
    for told in [written.to_string(), read.to_string()] {
        assert!(told.contains("num_flow_partitions` to 256"), "{told}");
    }
    other.close().await;
    let same = PostgresBackend::from_pool(
        self::pool(&database.url(), 4).await,
        PartitionConfig::default(),
    );
    same.submit(vec![Submission::new("lane", "kind")]).await.expect("the same number");
    same.close().await;
    database.drop().await;
}

/// The first engine's number is kept, whichever it is and whichever way it comes.
#[tokio::test]
async fn the_first_engine_says_how_many_partitions_there_are() {
    let database = Database::create().await;
    let pool = pool(&database.url(), 4).await;
    apply_migrations(&pool).await.expect("migrate");
    let partitions = PartitionConfig { num_flow_partitions: 64, ..PartitionConfig::default() };
    let first = PostgresBackend::from_pool(pool, partitions);
    first.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    first.close().await;
    let refused = PostgresBackend::open(options(&database.url())).await;
    let told = refused.err().expect("256 is not 64").to_string();
    assert!(told.contains("num_flow_partitions` to 64"), "{told}");
    database.drop().await;
}
