//! Brings the schema up to date: numbered files, each applied once, in one transaction for all.

use ff_core::limits::{self, Limits};
use ff_core::partition::PartitionConfig;
use ff_core::policy::DEFAULT_IDEMPOTENCY_TTL_MS;
use sqlx::{Connection, Executor, PgConnection, PgPool, Row};
use thiserror::Error;

/// In order. A file that has been released is never changed.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "tables", include_str!("../migrations/0001_tables.sql")),
    (2, "submit", include_str!("../migrations/0002_submit.sql")),
    (3, "flows", include_str!("../migrations/0003_flows.sql")),
    (4, "suspension", include_str!("../migrations/0004_suspension.sql")),
    (5, "streams", include_str!("../migrations/0005_streams.sql")),
    (6, "limits", include_str!("../migrations/0006_limits.sql")),
    (7, "schedules", include_str!("../migrations/0007_schedules.sql")),
    (8, "tokens", include_str!("../migrations/0008_tokens.sql")),
    (11, "webhooks", include_str!("../migrations/0011_webhooks.sql")),
    (12, "fill", include_str!("../migrations/0012_fill.sql")),
    (13, "event_views", include_str!("../migrations/0013_event_views.sql")),
    (14, "leases", include_str!("../migrations/0014_leases.sql")),
    (15, "log", include_str!("../migrations/0015_log.sql")),
    (16, "submit", include_str!("../migrations/0016_submit.sql")),
];

/// Any number will do, as long as every server uses the same.
const LOCK: i64 = 0x666c_6f77_6661_6272;

#[derive(Debug, Error)]
pub enum MigrationError {
    #[error("the schema cannot be brought up to date: {0}")]
    Database(#[from] sqlx::Error),
    #[error("the schema has migration {found}, this program knows {known}; use a newer program")]
    NewerSchema { found: i64, known: i64 },
    #[error("migration {found} of the schema is missing; run `apply_migrations` first")]
    Missing { found: i64 },
}

/// Applies what is missing. Needs one connection; may be called again and by many at once.
pub async fn apply_migrations(pool: &PgPool) -> Result<(), MigrationError> {
    let mut connection = pool.acquire().await?;
    apply(&mut connection).await
}

pub(crate) async fn apply(connection: &mut PgConnection) -> Result<(), MigrationError> {
    // Most calls find nothing to do and need no lock for it.
    if check(connection).await.is_ok() {
        return Ok(());
    }
    let mut transaction = connection.begin().await?;
    let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").persistent(false).bind(LOCK);
    lock.execute(&mut *transaction).await?;
    let create = "CREATE TABLE IF NOT EXISTS ff_migration (version bigint PRIMARY KEY, \
                  name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())";
    transaction.execute(create).await?;
    let applied = latest(&mut transaction).await?;
    newer(applied)?;
    for &(version, name, sql) in MIGRATIONS {
        if version > applied {
            transaction.execute(&*filled(sql)).await?;
            let record = "INSERT INTO ff_migration (version, name) VALUES ($1, $2)";
            sqlx::query(record)
                .persistent(false)
                .bind(version)
                .bind(name)
                .execute(&mut *transaction)
                .await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}

/// Refuses a schema that is not the one that this program knows.
pub(crate) async fn check(connection: &mut PgConnection) -> Result<(), MigrationError> {
    let exists = "SELECT to_regclass('ff_migration') IS NOT NULL";
    // As plain text: behind a pooler nothing else works outside a transaction.
    let exists: bool = connection.fetch_one(exists).await?.try_get(0)?;
    let applied = if exists { latest(connection).await? } else { 0 };
    newer(applied)?;
    if applied < known() {
        return Err(MigrationError::Missing { found: applied + 1 });
    }
    Ok(())
}

/// The text with the limits that it names in braces.
fn filled(sql: &str) -> String {
    let whole = |bytes: usize| bytes.to_string();
    let words = [
        ("{partitions}", PartitionConfig::default().num_flow_partitions.to_string()),
        ("{payload_bytes}", whole(Limits::default().payload_bytes)),
        ("{lane_bytes}", whole(limits::LANE_BYTES)),
        ("{kind_bytes}", whole(limits::KIND_BYTES)),
        ("{name_bytes}", whole(limits::NAME_BYTES)),
        ("{key_bytes}", whole(limits::IDEMPOTENCY_KEY_BYTES)),
        ("{horizon_ms}", limits::HORIZON.as_millis().to_string()),
        ("{tags}", whole(limits::TAGS)),
        ("{tag_key_bytes}", whole(limits::TAG_KEY_BYTES)),
        ("{tag_value_bytes}", whole(limits::TAG_VALUE_BYTES)),
        ("{priority_min}", limits::PRIORITY_MIN.to_string()),
        ("{priority_max}", limits::PRIORITY_MAX.to_string()),
        ("{key_ttl_ms}", DEFAULT_IDEMPOTENCY_TTL_MS.to_string()),
    ];
    words.iter().fold(sql.to_owned(), |sql, (word, value)| sql.replace(word, value))
}

fn known() -> i64 {
    MIGRATIONS.iter().map(|(version, ..)| *version).max().unwrap_or(0)
}

fn newer(found: i64) -> Result<(), MigrationError> {
    let known = known();
    if found > known { Err(MigrationError::NewerSchema { found, known }) } else { Ok(()) }
}

async fn latest(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let sql = "SELECT coalesce(max(version), 0) FROM ff_migration";
    connection.fetch_one(sql).await?.try_get(0)
}
