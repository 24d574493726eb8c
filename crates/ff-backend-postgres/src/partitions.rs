//! The number of flow partitions of a database. It decides where every flow and lane is looked for,
//! so the first engine stores its own number and every later one must have the same.

use ff_core::engine_error::StoreError;
use ff_core::partition::PartitionConfig;
use sqlx::{Executor, PgConnection, Row};

use crate::PostgresStore;
use crate::error::store_error;

/// Stores the number unless there is one, and answers what is stored. The largest payload that this
/// engine takes is stored, too: `ff_submit` goes by the engine that was started last.
pub(crate) async fn settle(
    connection: &mut PgConnection,
    config: &PartitionConfig,
    payload_bytes: usize,
) -> Result<u16, sqlx::Error> {
    let same = "SELECT EXISTS (SELECT FROM ff_meta WHERE name = 'payload_bytes' AND value = ";
    let same: bool =
        connection.fetch_one(&*format!("{same}'{payload_bytes}')")).await?.try_get(0)?;
    if !same {
        let store = format!(
            "INSERT INTO ff_meta (name, value) VALUES ('payload_bytes', '{payload_bytes}') \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        );
        connection.execute(&*store).await?;
    }
    // As plain text: behind a pooler nothing else works outside a transaction.
    if let Some(stored) = read(connection).await? {
        return Ok(stored);
    }
    let insert = format!(
        "INSERT INTO ff_meta (name, value) VALUES ('flow_partitions', '{}') ON CONFLICT DO NOTHING",
        config.num_flow_partitions
    );
    connection.execute(&*insert).await?;
    Ok(read(connection).await?.unwrap_or(config.num_flow_partitions))
}

async fn read(connection: &mut PgConnection) -> Result<Option<u16>, sqlx::Error> {
    let sql = "SELECT (SELECT value FROM ff_meta WHERE name = 'flow_partitions')";
    let stored: Option<String> = connection.fetch_one(sql).await?.try_get(0)?;
    Ok(stored.and_then(|stored| stored.parse().ok()))
}

/// What is wrong if an engine has another number than its database.
pub(crate) fn mismatch(stored: u16, config: &PartitionConfig) -> Option<String> {
    let configured = config.num_flow_partitions;
    (stored != configured).then(|| {
        format!(
            "the database has {stored} flow partitions, this engine is configured with \
             {configured} and would look for flows and lanes in the wrong place; set \
             `PartitionConfig::num_flow_partitions` to {stored}"
        )
    })
}

impl PostgresStore {
    /// Refuses to write with another number than the database's. Not called inside a caller's
    /// transaction, which may be rolled back.
    pub(crate) async fn settle_partitions(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(), StoreError> {
        let settle = async || {
            let stored = settle(connection, &self.partitions, self.payload_bytes).await;
            let stored = stored.map_err(|error| store_error(&error))?;
            mismatch(stored, &self.partitions).map_or(Ok(()), |why| Err(StoreError::Failed(why)))
        };
        self.settled.get_or_try_init(settle).await.copied()
    }
}
