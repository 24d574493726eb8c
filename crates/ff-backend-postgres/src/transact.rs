//! The connections that write: one transaction per batch, owned by the engine's own tasks.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ff_core::engine_error::StoreError;
use ff_core::rows::EventRow;
use ff_core::store::cells::Words;
use ff_core::store::{Batch, Change, Needs};
use ff_core::types::TimestampMs;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, Row};

use crate::alone::Backend;
use crate::cache::{Cache, ServerStart, server_start};
use crate::columns::narrow;
use crate::config::{BEGIN, BEGIN_ALONE};
use crate::error::store_error;
use crate::graphs::Writers;
use crate::held::Unlocked;
use crate::load::Loader;
use crate::write::{Appended, Writing, is_together};
use crate::{Identity, PostgresStore};

/// How long a writer tries to reach a server that is away before callers are told.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long it tries to find out what became of a commit whose answer was lost.
pub(crate) const RESOLVE_PATIENCE: Duration = Duration::from_secs(10);
pub(crate) const CONNECT_REST: Duration = Duration::from_millis(50);
/// Longer than any statement may take by the server's own limits.
const TRANSACTION_PATIENCE: Duration = Duration::from_secs(60);
/// How long a flush may take.
pub(crate) const COMMIT_PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const SILENT: &str = "the server does not answer";
/// A transaction that lost against another waits about so long before it is run again.
const REST: Duration = Duration::from_millis(5);
/// Who waited longer than this for a lock asks for the time again.
const STALE: Duration = Duration::from_millis(20);

/// A connection that writes, and what it remembers between transactions.
pub(crate) struct Writer {
    pub connection: PgConnection,
    /// What serves the connection, if it is known.
    pub backend: Option<Backend>,
    /// The run of the server that the connection was made to.
    pub server: ServerStart,
    words: Words,
    /// It has served before, so the server may have gone since.
    used: bool,
    /// The last transaction met rows that should not be there: the next one looks twice.
    careful: bool,
    /// The answer to a commit did not come.
    pub lost: bool,
    /// It is in a transaction, as far as is known.
    open: bool,
}

/// A batch that is decided.
enum Prepared {
    /// Nothing is to be kept.
    Nothing,
    /// The transaction only has to be committed.
    Written(Change, Appended, Unlocked),
    /// There is no transaction yet: one statement is enough.
    Alone(Change, Unlocked),
}

impl PostgresStore {
    pub(crate) async fn run(&self, batch: &mut Batch) -> Result<Change, StoreError> {
        let _working = self.working.read().await;
        let mut tries = 1;
        loop {
            let mut writer = self.writer().await?;
            let used = std::mem::replace(&mut writer.used, true);
            let done = self.attempt(&mut writer, batch).await;
            writer.careful = matches!(done, Err(StoreError::Conflict(_)));
            match &done {
                // The connection is not used again.
                _ if writer.lost => {}
                Err(StoreError::Unavailable(_)) => {}
                Err(_) if !rolled_back(&mut writer).await => {}
                _ => self.keep(writer),
            }
            match done {
                // Nothing was written, and a server that was started anew is there again.
                Err(StoreError::Unavailable(_)) if used || tries == 1 => tries += 1,
                Err(StoreError::Retry(why)) => {
                    tokio::time::sleep(REST.mul_f64(1.0 + fastrand::f64())).await;
                    return Err(StoreError::Retry(why));
                }
                done => return done,
            }
        }
    }

    async fn attempt(&self, writer: &mut Writer, batch: &mut Batch) -> Result<Change, StoreError> {
        let identity = self.identity(&mut writer.connection).await?;
        self.settle_partitions(&mut writer.connection).await?;
        let cache = self.caches.of(writer.server);
        let needs = batch.needs();
        let careful = self.pooled || writer.careful;
        let turn = match !careful && Self::touches_known_rows(&cache, &needs) {
            true => self.turns.take(batch.len()).await,
            false => self.turns.take_beside().await,
        };
        // Until the commit is sent, a server that does not answer has written nothing.
        let prepared = self.prepare(writer, &cache, batch, needs, (identity, turn.is_alone()));
        let prepared = tokio::time::timeout(TRANSACTION_PATIENCE, prepared).await;
        let prepared = prepared.map_err(|_| StoreError::Unavailable(SILENT.to_owned()));
        let done = match prepared.flatten() {
            Ok(Prepared::Nothing) => return Ok(Change::default()),
            Ok(Prepared::Written(change, appended, unlocked)) => {
                let shards = identity.shards;
                let done = self.commit_prepared(writer, &cache, change, appended, shards).await;
                done.map(|done| (done, unlocked))
            }
            Ok(Prepared::Alone(change, unlocked)) => {
                let done = self.write_alone(writer, change, &unlocked, identity.shards).await;
                if let Err(StoreError::Conflict(_) | StoreError::Retry(_)) = &done {
                    self.turns.meet_somebody();
                }
                if let Ok((change, writer)) = &done {
                    cache.young.learn(change, &Writers::default(), writer.as_ref());
                }
                done.map(|done| (done, unlocked))
            }
            Err(error) => Err(error),
        };
        let ((change, written_by), unlocked) = done?;
        if let Some(writer) = written_by {
            cache.held.learn(&change, &unlocked, &writer);
        }
        Ok(change)
    }

    async fn commit_prepared(
        &self,
        writer: &mut Writer,
        cache: &Cache,
        change: Change,
        appended: Appended,
        shards: u16,
    ) -> Result<(Change, Option<Arc<str>>), StoreError> {
        let committed = self.commit(&mut writer.connection).await;
        writer.open = false;
        if committed.is_err() {
            cache.young.forget();
        }
        match committed {
            Err(StoreError::Unknown(why)) => {
                let first = appended.places.first().and_then(|(shard, base)| {
                    let of_shard = |event: &&EventRow| {
                        self.shard_of(shards, event.execution, event.flow_id).0 == *shard
                    };
                    Some((*shard, base + 1, change.events.iter().find(of_shard)?))
                });
                // Whatever comes of it, this connection may still be waiting for its answer.
                writer.lost = true;
                self.resolve(first, why).await?;
            }
            outcome => outcome?,
        }
        Ok((change, appended.writer))
    }

    /// Everything up to the commit.
    async fn prepare(
        &self,
        writer: &mut Writer,
        cache: &Cache,
        batch: &mut Batch,
        needs: Needs,
        (identity, alone): (Identity, bool),
    ) -> Result<Prepared, StoreError> {
        let begun = Instant::now();
        let fresh = self.time.fresh().filter(|_| alone);
        let now = match fresh {
            Some(now) => now,
            None => {
                writer.open = true;
                let (now, server) = self.begin(&mut writer.connection).await?;
                cache.check(server)?;
                now
            }
        };
        let mut loader = Loader {
            connection: &mut writer.connection,
            words: &mut writer.words,
            statements: &self.statements,
            cache,
            unlocked: Unlocked::default(),
            locked_flows: HashSet::new(),
            flow_writers: Writers::default(),
            sweep_lock: identity.sweep_lock,
            careful: writer.careful,
            keeps: !self.pooled,
            locking: fresh.is_none(),
            begun: &mut writer.open,
        };
        let (mut world, mut asked) = loader.load(batch, needs, now).await?;
        if begun.elapsed() > STALE {
            world.now = self.time.observe(ask_time(loader.connection).await?);
            // What is due by now may need more than what was due then.
            loader.load_more(batch, &mut world, &mut asked).await?;
        }
        let change = batch.decide(world, &self.bells);
        if !loader.unlocked.is_confirmed_by(&change) {
            return Err(StoreError::Conflict("a decision rests on rows not read".to_owned()));
        }
        if is_empty(&change) {
            if *loader.begun {
                // Nothing to keep: the locks are given back without a flush.
                self.end(loader.connection, "ROLLBACK").await?;
                *loader.begun = false;
            }
            return Ok(Prepared::Nothing);
        }
        let shard_of = |execution, flow| self.shard_of(identity.shards, execution, flow);
        if !*loader.begun && is_together(&change, shard_of) {
            return Ok(Prepared::Alone(change, loader.unlocked));
        }
        loader.begin().await?;
        let mut writing = Writing {
            connection: loader.connection,
            writes: &self.writes,
            unlocked: &loader.unlocked,
            keeps: !self.pooled,
        };
        let appended = writing.write_and_append(&change, shard_of).await?;
        cache.young.learn(&change, &loader.flow_writers, appended.writer.as_ref());
        Ok(Prepared::Written(change, appended, loader.unlocked))
    }

    /// Begins a transaction and reads the clock and the server's start, in one round trip.
    async fn begin(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(TimestampMs, ServerStart), StoreError> {
        let begin = if self.pooled { BEGIN } else { BEGIN_ALONE };
        let row = connection.fetch_one(begin).await.map_err(|error| store_error(&error))?;
        let now: i64 = row.try_get(0).map_err(|error| store_error(&error))?;
        let server = row.try_get(1).map_err(|error| store_error(&error))?;
        Ok((self.time.observe(now), server))
    }

    /// A commit whose answer does not come is neither kept nor lost until somebody looks.
    async fn commit(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let committed = connection.execute("COMMIT");
        match tokio::time::timeout(COMMIT_PATIENCE, committed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(match store_error(&error) {
                StoreError::Unavailable(why) => StoreError::Unknown(why),
                known => known,
            }),
            Err(_) => Err(StoreError::Unknown(SILENT.to_owned())),
        }
    }

    pub(crate) async fn end(
        &self,
        connection: &mut PgConnection,
        how: &str,
    ) -> Result<(), StoreError> {
        connection.execute(how).await.map(|_| ()).map_err(|error| store_error(&error))
    }

    /// Looks whether the first event of a transaction is at its place in the log. The shard's
    /// counter is locked first: whoever may still be committing holds that lock.
    async fn resolve(
        &self,
        first: Option<(u16, u64, &EventRow)>,
        why: String,
    ) -> Result<(), StoreError> {
        let Some((shard, seq, event)) = first else { return Err(StoreError::Unknown(why)) };
        let give_up = Instant::now() + RESOLVE_PATIENCE;
        while Instant::now() < give_up {
            let looking = self.look_for(shard, seq, event);
            match tokio::time::timeout(CONNECT_PATIENCE, looking).await {
                Ok(Ok(Some(true))) => return Ok(()),
                Ok(Ok(Some(false))) => return Err(StoreError::Retry(why)),
                Ok(Ok(None)) => return Err(StoreError::Unknown(why)),
                Ok(Err(_)) | Err(_) => {}
            }
            tokio::time::sleep(CONNECT_REST).await;
        }
        Err(StoreError::Unknown(why))
    }

    /// Nothing, if what was at the place has been forgotten since.
    async fn look_for(
        &self,
        shard: u16,
        seq: u64,
        event: &EventRow,
    ) -> Result<Option<bool>, StoreError> {
        let mut writer = self.connect().await?;
        self.begin(&mut writer.connection).await?;
        let lock = sqlx::query("SELECT head FROM ff_event_shard WHERE shard = $1 FOR UPDATE");
        let lock = lock.persistent(false).bind(narrow(shard)).execute(&mut writer.connection).await;
        lock.map_err(|error| store_error(&error))?;
        let sql = "SELECT (SELECT at_ms = $3 AND event_type = $4 AND version = $5 \
                     AND execution_id IS NOT DISTINCT FROM $6 AND by_whom IS NOT DISTINCT FROM $7 \
                     FROM ff_event WHERE shard = $1 AND seq = $2), \
                   (SELECT head < $2 FROM ff_event_shard WHERE shard = $1)";
        let found = sqlx::query_as(sql)
            .persistent(false)
            .bind(narrow(shard))
            .bind(seq as i64)
            .bind(event.at.0)
            .bind(event.event_type.as_str())
            .bind(event.version as i64)
            .bind(event.execution.map(|key| key.id))
            .bind(event.by.as_deref())
            .fetch_one(&mut writer.connection);
        let found: (Option<bool>, bool) = found.await.map_err(|error| store_error(&error))?;
        self.end(&mut writer.connection, "ROLLBACK").await?;
        self.keep(writer);
        Ok(match found {
            (Some(same), _) => Some(same),
            (None, true) => Some(false),
            (None, false) => None,
        })
    }

    async fn writer(&self) -> Result<Writer, StoreError> {
        if self.is_closed() {
            return Err(StoreError::Closed);
        }
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(writer) = kept {
            return Ok(writer);
        }
        let give_up = Instant::now() + CONNECT_PATIENCE;
        loop {
            match self.connect().await {
                Err(StoreError::Unavailable(_)) if Instant::now() < give_up => {
                    tokio::time::sleep(CONNECT_REST).await;
                }
                outcome => return outcome,
            }
        }
    }

    pub(crate) async fn connect(&self) -> Result<Writer, StoreError> {
        let connecting = tokio::time::timeout(CONNECT_PATIENCE, self.connecting.connect()).await;
        let connection = connecting.map_err(|_| StoreError::Unavailable(SILENT.to_owned()))?;
        let mut connection = connection.map_err(|error| match store_error(&error) {
            StoreError::Failed(why) => StoreError::Unavailable(why),
            other => other,
        })?;
        let server = server_start(&mut connection).await?;
        self.caches.reset(server);
        if !self.pooled {
            let set = connection.execute(crate::config::SESSION).await;
            set.map_err(|error| store_error(&error))?;
        }
        let backend = match self.pooled {
            true => None,
            false => Some(Backend::of(&mut connection).await?),
        };
        let words = Words::default();
        let (used, careful, lost) = (false, false, false);
        Ok(Writer { connection, backend, server, words, used, careful, lost, open: false })
    }

    pub(crate) fn keep(&self, writer: Writer) {
        if !self.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(writer);
        }
    }

    pub(crate) async fn close_writers(&self) {
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for writer in idle {
            let _ = writer.connection.close().await;
        }
    }
}

/// Whether the connection is good for another transaction.
async fn rolled_back(writer: &mut Writer) -> bool {
    // The server warns of a rollback without a transaction.
    if !std::mem::take(&mut writer.open) {
        return true;
    }
    let ended = writer.connection.execute("ROLLBACK");
    matches!(tokio::time::timeout(CONNECT_PATIENCE, ended).await, Ok(Ok(_)))
}

async fn ask_time(connection: &mut PgConnection) -> Result<i64, StoreError> {
    let row = connection.fetch_one(crate::config::CLOCK).await;
    let row = row.map_err(|error| store_error(&error))?;
    row.try_get(0).map_err(|error| store_error(&error))
}

fn is_empty(change: &Change) -> bool {
    change.executions.is_empty()
        && change.attempts.is_empty()
        && change.flows.is_empty()
        && change.records.is_empty()
        && change.lanes.is_empty()
        && change.timers.is_empty()
        && change.idempotency.is_empty()
        && change.events.is_empty()
        && change.log_floor.is_none()
}
