//! Brings the schema up to date: numbered files, each applied once, in one transaction for all.
//! Refuses a database that a newer program wrote.

use std::time::Instant;

use rusqlite::Connection;
use uuid::Uuid;

use crate::SqliteError;
use crate::config::BUSY_TIMEOUT;
use crate::error::is_busy;

/// In order; the number of the last one applied is SQLite's `user_version`. A file that has been
/// released is never changed.
const MIGRATIONS: &[(i64, &str)] = &[
    (1, include_str!("sql/schema.sql")),
    (3, include_str!("sql/flow.sql")),
    (4, include_str!("sql/suspension.sql")),
    (5, include_str!("sql/streams.sql")),
    (6, include_str!("sql/limit.sql")),
    (7, include_str!("sql/schedules.sql")),
    (8, include_str!("sql/tokens.sql")),
    (11, include_str!("sql/webhooks.sql")),
    (13, include_str!("sql/event_views.sql")),
    (14, include_str!("sql/leases.sql")),
    (15, include_str!("sql/log.sql")),
];

fn known() -> i64 {
    MIGRATIONS.iter().map(|(version, _)| *version).max().unwrap_or(0)
}

/// Refuses a database whose schema would have to be brought up to date.
pub(crate) fn check(connection: &Connection) -> Result<(), SqliteError> {
    let found = version(connection).map_err(|error| SqliteError::Open(error.to_string()))?;
    let known = known();
    if found < known { Err(SqliteError::OlderSchema { found, known }) } else { Ok(()) }
}

pub(crate) fn apply(connection: &Connection) -> Result<(), SqliteError> {
    let failed = |error: rusqlite::Error| SqliteError::Open(error.to_string());
    let give_up = Instant::now() + BUSY_TIMEOUT;
    loop {
        match try_apply(connection) {
            // Another connection to the same shared memory is creating the schema.
            Err(error) if is_busy(&error) && Instant::now() < give_up => std::thread::yield_now(),
            outcome => break outcome.map_err(failed)?,
        }
    }
    let found = version(connection).map_err(failed)?;
    let known = known();
    if found > known {
        return Err(SqliteError::NewerSchema { found, known });
    }
    if found < known {
        let tables = "version 0, but it has tables already".to_owned();
        return Err(SqliteError::ForeignTables(tables));
    }
    Ok(())
}

/// Applies what is missing; leaves a database that has tables of other makers alone.
fn try_apply(connection: &Connection) -> Result<(), rusqlite::Error> {
    if version(connection)? >= known() {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let created = migrate(connection);
    connection.execute_batch(if created.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    created
}

fn migrate(connection: &Connection) -> Result<(), rusqlite::Error> {
    let applied = version(connection)?;
    let count = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'ff\\_%' ESCAPE '\\'";
    let tables: i64 = connection.query_row(count, [], |row| row.get(0))?;
    if applied == 0 && tables > 0 {
        return Ok(());
    }
    for (version, sql) in MIGRATIONS.iter().filter(|(version, _)| *version > applied) {
        connection.execute_batch(sql)?;
        if *version == 1 {
            let insert =
                "INSERT INTO ff_meta (name, value) VALUES ('history_id', ?1), ('log_floor', 1)";
            connection.execute(insert, [Uuid::new_v4().as_bytes()])?;
        }
        connection.execute_batch(&format!("PRAGMA user_version = {version}"))?;
    }
    Ok(())
}

fn version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the last one stands for all before it.
    #[test]
    fn migrations_stand_in_their_order() {
        assert!(MIGRATIONS.is_sorted_by(|before, after| before.0 < after.0));
    }
}
