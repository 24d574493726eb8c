//! Transactions that are one statement.
//!
//! A small batch that only moves executions which are held and takes work needs no locks while
//! nobody else is at work on the same rows: what it has found is compared by the statement that
//! writes it, and if somebody came between, the statement fails as a whole. That saves the round
//! trips that begin and commit, and a lock on every row. Whoever meets somebody locks for a while,
//! because then it would happen again.
//!
//! Records that an execution guards are read without a lock, too: as long as it has not changed
//! they have not.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ff_core::engine_error::StoreError;
use ff_core::rows::EventRow;
use ff_core::store::{Change, Needs};
use sqlx::{Executor, PgConnection, Row};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::PostgresStore;
use crate::cache::Cache;
use crate::error::store_error;
use crate::held::Unlocked;
use crate::load::needs_no_locks;
use crate::transact::{
    COMMIT_PATIENCE, CONNECT_PATIENCE, CONNECT_REST, RESOLVE_PATIENCE, SILENT, Writer,
};
use crate::write::Writing;

/// A larger batch is one of two that run side by side.
const SMALL: usize = 32;
/// How long rows are locked after somebody else was met.
const CROWDED: Duration = Duration::from_secs(10);

/// Whether a batch of this engine runs alone, or beside others.
#[derive(Default)]
pub(crate) struct Turns {
    running: RwLock<()>,
    crowded_until: Mutex<Option<Instant>>,
}

/// Held until the batch is committed.
pub(crate) enum Turn<'t> {
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'t, ()>),
    Beside(#[expect(dead_code, reason = "held")] RwLockReadGuard<'t, ()>),
}

impl Turn<'_> {
    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Alone(_))
    }
}

impl Turns {
    /// For a batch of so many operations.
    pub async fn take(&self, many: usize) -> Turn<'_> {
        if many <= SMALL
            && !self.is_crowded()
            && let Ok(alone) = self.running.try_write()
        {
            return Turn::Alone(alone);
        }
        self.take_beside().await
    }

    pub async fn take_beside(&self) -> Turn<'_> {
        Turn::Beside(self.running.read().await)
    }

    fn is_crowded(&self) -> bool {
        let until = *self.crowded_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// A batch has found its rows in other hands.
    pub fn meet_somebody(&self) {
        let mut until = self.crowded_until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = Some(Instant::now() + CROWDED);
    }
}

/// The server's process behind a connection. Its number alone may be given to another one.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    number: i32,
    since: String,
}

impl Backend {
    pub async fn of(connection: &mut PgConnection) -> Result<Self, StoreError> {
        let sql = "SELECT pid, backend_start::text FROM pg_stat_activity \
                   WHERE pid = pg_backend_pid()";
        let row = connection.fetch_one(sql).await.map_err(|error| store_error(&error))?;
        let number = row.try_get(0).map_err(|error| store_error(&error))?;
        let since = row.try_get(1).map_err(|error| store_error(&error))?;
        Ok(Self { number, since })
    }
}

impl PostgresStore {
    /// Whether a batch moves executions whose rows are held, or takes work, and does nothing else.
    pub(crate) fn touches_known_rows(cache: &Cache, needs: &Needs) -> bool {
        needs_no_locks(needs)
            && !(needs.executions.is_empty() && needs.claimable.is_empty())
            && needs.unwritten.is_empty()
            && cache.held.has_all(needs.executions.iter())
    }

    /// Writes and commits with one statement. The name that the transaction has in its rows comes
    /// back if the answer does.
    pub(crate) async fn write_alone(
        &self,
        writer: &mut Writer,
        change: Change,
        unlocked: &Unlocked,
        shards: u16,
    ) -> Result<(Change, Option<Arc<str>>), StoreError> {
        let connection = &mut writer.connection;
        let mut writing = Writing { connection, writes: &self.writes, unlocked, keeps: true };
        let shard_of = |execution, flow| self.shard_of(shards, execution, flow);
        let written = writing.write_alone(&change, writer.server, shard_of);
        let why = match tokio::time::timeout(COMMIT_PATIENCE, written).await {
            Ok(Ok(appended)) => return Ok((change, appended.writer)),
            Ok(Err(StoreError::Unavailable(why))) => why,
            Ok(Err(error)) => return Err(error),
            Err(_) => SILENT.to_owned(),
        };
        // Whatever comes of it, this connection may still be waiting for its answer.
        writer.lost = true;
        let first = change.events.first();
        self.resolve_alone(writer.backend.clone(), first, why).await?;
        Ok((change, None))
    }

    /// Looks whether the statement has been carried out. The server's process that was to do it is
    /// ended first: it may not do it afterwards.
    async fn resolve_alone(
        &self,
        backend: Option<Backend>,
        first: Option<&EventRow>,
        why: String,
    ) -> Result<(), StoreError> {
        let (Some(backend), Some(event)) = (backend, first) else {
            return Err(StoreError::Unknown(why));
        };
        let give_up = Instant::now() + RESOLVE_PATIENCE;
        while Instant::now() < give_up {
            let looking = self.end_and_look(&backend, event);
            match tokio::time::timeout(CONNECT_PATIENCE * 2, looking).await {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => return Err(StoreError::Retry(why)),
                Ok(Err(_)) | Err(_) => {}
            }
            tokio::time::sleep(CONNECT_REST).await;
        }
        Err(StoreError::Unknown(why))
    }

    async fn end_and_look(&self, backend: &Backend, event: &EventRow) -> Result<bool, StoreError> {
        let mut writer = self.connect().await?;
        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                   WHERE pid = $1 AND backend_start::text = $2";
        let ended: Option<bool> = sqlx::query_scalar(end)
            .persistent(false)
            .bind(backend.number)
            .bind(&backend.since)
            .fetch_optional(&mut writer.connection)
            .await
            .map_err(|error| store_error(&error))?;
        if ended == Some(false) {
            return Err(StoreError::Unavailable("the lost statement still runs".to_owned()));
        }
        // The lease and the version together happen once in the life of an execution.
        let look = "SELECT EXISTS (SELECT FROM ff_event WHERE execution_id = $1 AND version = $2 \
                    AND at_ms = $3 AND event_type = $4 AND lease_epoch = $5 \
                    AND by_whom IS NOT DISTINCT FROM $6)";
        let found = sqlx::query_scalar(look)
            .persistent(false)
            .bind(event.execution.map(|key| key.id))
            .bind(event.version as i64)
            .bind(event.at.0)
            .bind(event.event_type.as_str())
            .bind(event.lease_epoch as i64)
            .bind(event.by.as_deref())
            .fetch_one(&mut writer.connection)
            .await;
        let found = found.map_err(|error| store_error(&error))?;
        self.keep(writer);
        Ok(found)
    }
}
