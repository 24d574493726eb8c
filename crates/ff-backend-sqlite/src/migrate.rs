//! Creates the schema, and refuses a database that a newer program wrote.

use std::time::Instant;

use rusqlite::Connection;
use uuid::Uuid;

use crate::SqliteError;
use crate::config::BUSY_TIMEOUT;
use crate::error::is_busy;

/// Stored as SQLite's `user_version`.
const SCHEMA_VERSION: i64 = 1;

const SCHEMA: &str = include_str!("sql/schema.sql");

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
    if found > SCHEMA_VERSION {
        return Err(SqliteError::NewerSchema { found, known: SCHEMA_VERSION });
    }
    if found < SCHEMA_VERSION {
        let tables = "version 0, but it has tables already".to_owned();
        return Err(SqliteError::ForeignTables(tables));
    }
    Ok(())
}

/// Creates everything in an empty database; leaves any other alone.
fn try_apply(connection: &Connection) -> Result<(), rusqlite::Error> {
    if version(connection)? != 0 {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let created = create(connection);
    connection.execute_batch(if created.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    created
}

fn create(connection: &Connection) -> Result<(), rusqlite::Error> {
    let count = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'ff\\_%' ESCAPE '\\'";
    let tables: i64 = connection.query_row(count, [], |row| row.get(0))?;
    if version(connection)? != 0 || tables > 0 {
        return Ok(());
    }
    connection.execute_batch(SCHEMA)?;
    let insert = "INSERT INTO ff_meta (name, value) VALUES ('history_id', ?1), ('log_floor', 1)";
    connection.execute(insert, [Uuid::new_v4().as_bytes()])?;
    connection.execute_batch(&format!("PRAGMA user_version = {SCHEMA_VERSION}"))
}

fn version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}
