//! The connection that writes: one transaction per batch, one flush per transaction.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ff_core::contracts::{Submission, SubmitOutcome};
use ff_core::engine::{Engine, QUIET, message_of, prepare_submit};
use ff_core::engine_error::{EngineError, StoreError};
use ff_core::store::cells::Words;
use ff_core::store::{Batch, Bells, Change, Job, Store, World};
use ff_core::types::TimestampMs;
use rusqlite::Connection as Sqlite;
use rusqlite::config::DbConfig;
use tokio::sync::oneshot;

use crate::config::{BUSY_TIMEOUT, Location, Synchronous};
use crate::error::store_error;
use crate::files::{Fault, Files};
use crate::held::Held;
use crate::load::{Loader, Places};
use crate::open::{Opened, open, read_log};
use crate::write::{Log, Writing};
use crate::{SqliteError, SqliteStore, cells, statements};

/// Pages in the write-ahead log before they are folded back into the file (32 MiB).
const CHECKPOINT_PAGES: u64 = 8 * 1024;
/// Events since the last folding that make it worth while before the log is full, once nobody has
/// come for [`QUIET`]; before that there must be more of them, because the next caller may be on
/// its way and would have to wait.
const FOLD_EVENTS: i64 = 4 * 1024;
const FOLD_EVENTS_SOON: i64 = 2 * FOLD_EVENTS;
/// The extended result code of a flush that the disk refused.
const IOERR_FSYNC: i32 = 1034;
const FLUSH_REFUSED: &str =
    "the disk refused to flush the database; nothing more is written until it is opened again";

pub(crate) struct Connection {
    sqlite: Sqlite,
    words: Words,
    places: Places,
    reading: statements::Statements,
    writing: cells::Statements,
    log: Log,
    /// The head of the log when the write-ahead log was last folded back while nobody waited.
    folded: i64,
    held: Held,
    /// What was committed last, until it is taken over into what is held.
    unlearned: Option<Change>,
    /// The last transaction met rows that should not be there: the next one looks twice.
    careful: bool,
    /// Absent for a database in memory.
    files: Option<Arc<Files>>,
}

impl Connection {
    pub fn open(
        location: &Location,
        synchronous: Synchronous,
        migrate: bool,
    ) -> Result<Self, SqliteError> {
        let Opened { sqlite, log, files } = open(location, synchronous, migrate)?;
        Ok(Self {
            sqlite,
            words: Words::default(),
            places: Places::default(),
            reading: statements::Statements::default(),
            writing: cells::Statements::default(),
            log,
            folded: log.head,
            held: Held::default(),
            unlearned: None,
            careful: false,
            files,
        })
    }

    pub fn files(&self) -> Option<Arc<Files>> {
        self.files.clone()
    }

    /// Runs a batch. An error means that nothing was written, unless it says otherwise.
    pub fn transact(
        &mut self,
        batch: &mut Batch,
        now: TimestampMs,
        bells: &Bells,
    ) -> Result<(), StoreError> {
        let change = self.patiently(|connection| {
            connection.in_transaction(|connection| {
                let change = connection.decide_and_write(batch, now, bells)?;
                // Whoever is woken now queues up behind this commit and finds the work there.
                bells.ring_work(&change);
                Ok(change)
            })
        })?;
        bells.ring_log(&change);
        self.unlearned = Some(change);
        Ok(())
    }

    /// Takes over what was committed last.
    pub fn learn(&mut self) {
        if let Some(change) = self.unlearned.take() {
            self.held.learn(change, &self.places);
        }
    }

    /// Something panicked: what is kept of earlier transactions is read again.
    pub fn distrust_memory(&mut self) {
        (self.unlearned, self.careful) = (None, true);
        self.held.forget();
        if let Err(error) = self.read_log()
            && let Some(files) = &self.files
        {
            files.give_up(Fault::Lost(format!("the event log cannot be read: {error}")));
        }
    }

    /// Folds the write-ahead log into the file if there is much in it and nobody has come for some
    /// time, so that mostly no commit has to while somebody waits for it.
    pub fn fold(&mut self, quiet: Duration) {
        let least = if quiet < QUIET { FOLD_EVENTS_SOON } else { FOLD_EVENTS };
        if self.log.head - self.folded >= least && self.healthy().is_ok() {
            self.checkpoint();
        }
    }

    /// Checkpoints a write-ahead log that has grown to its usual size. SQLite would do so by itself
    /// in a commit, but it would keep a flush that fails there to itself.
    pub fn checkpoint_if_full(&mut self) {
        let Some(files) = self.files.as_ref().filter(|files| files.healthy().is_ok()) else {
            return;
        };
        match files.log_has(CHECKPOINT_PAGES) {
            Ok(false) => {}
            Ok(true) => self.checkpoint(),
            Err(error) => tracing::warn!(%error, "the write-ahead log cannot be looked at"),
        }
    }

    fn checkpoint(&mut self) {
        self.folded = self.log.head;
        let done = self.sqlite.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)");
        if let Err(error) = done.and_then(|mut sql| sql.query_row([], |_| Ok(()))) {
            self.distrust(&error);
            tracing::warn!(%error, "the write-ahead log could not be checkpointed");
        }
    }

    /// Checkpoints the log, so that the next start has nothing to recover.
    pub fn close(self) {
        let fault = self.files.as_ref().and_then(|files| files.fault());
        if fault.is_some() {
            // SQLite would remove the log by its name, which may be another file's by now.
            let kept = self.sqlite.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            if let Err(error) = kept {
                tracing::warn!(%error, "the write-ahead log may be removed");
            }
        }
        // A checkpoint trusts what it finds in the log; after a flush that failed only the checks
        // of the next start can tell what is whole.
        if matches!(fault, Some(Fault::Flush(_))) {
            return;
        }
        let done = self.sqlite.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if let Err(error) = done {
            tracing::warn!(%error, "the write-ahead log stays; the next start will read it");
        }
    }

    fn decide_and_write(
        &mut self,
        batch: &mut Batch,
        now: TimestampMs,
        bells: &Bells,
    ) -> Result<Change, StoreError> {
        self.places.clear();
        let mut loader = Loader {
            connection: &self.sqlite,
            words: &mut self.words,
            places: &mut self.places,
            statements: &self.reading,
            held: &mut self.held,
            log_floor: self.log.floor,
            careful: self.careful,
        };
        let mut world = World::new(now, "sqlite");
        let mut asked = batch.needs();
        loader.load(&mut world, &asked)?;
        while let Some(more) = batch.more(&mut world, &mut asked) {
            loader.load(&mut world, &more)?;
        }
        let change = batch.decide(world, bells);
        let mut writing = Writing {
            connection: &self.sqlite,
            places: &mut self.places,
            log: &mut self.log,
            statements: &self.writing,
        };
        writing.write(&change).map_err(|error| store_error(&error))?;
        Ok(change)
    }

    /// Begins, works, commits; takes everything back if anything fails.
    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.healthy()?;
        self.learn();
        // A transaction that could not be taken back would be in everybody's way.
        if !self.sqlite.is_autocommit() {
            self.execute("ROLLBACK")?;
        }
        self.execute("BEGIN IMMEDIATE")?;
        // A panic must not leave the transaction open for whoever comes next.
        let worked = catch_unwind(AssertUnwindSafe(|| {
            if self.held.check(self.data_version()?) {
                self.read_log()?;
            }
            work(self)
        }));
        let why = |panic: Box<dyn Any + Send>| format!("panicked: {}", message_of(&*panic));
        let panicked = |panic| Err(StoreError::Panicked(why(panic)));
        let done = worked.unwrap_or_else(panicked).and_then(|done| {
            self.files.as_ref().map_or(Ok(()), |files| files.check())?;
            self.commit()?;
            Ok(done)
        });
        self.careful = matches!(done, Err(StoreError::Conflict(_)));
        if done.is_err() {
            self.held.distrust();
            if !self.sqlite.is_autocommit()
                && let Err(error) = self.execute("ROLLBACK")
            {
                tracing::error!(%error, "a transaction could not be taken back");
            }
        }
        done
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let committed = self.sqlite.prepare_cached("COMMIT").and_then(|mut sql| sql.execute([]));
        let Err(error) = committed else { return Ok(()) };
        match self.distrust(&error) {
            true => Err(StoreError::Unknown(FLUSH_REFUSED.to_owned())),
            false => Err(store_error(&error)),
        }
    }

    /// Writes nothing more if the disk has refused a flush, and says whether it has.
    fn distrust(&self, error: &rusqlite::Error) -> bool {
        let extended = error.sqlite_error().map(|error| error.extended_code);
        let refused = extended == Some(IOERR_FSYNC);
        if let Some(files) = self.files.as_ref().filter(|_| refused) {
            files.give_up(Fault::Flush(FLUSH_REFUSED.to_owned()));
        }
        refused
    }

    fn healthy(&self) -> Result<(), StoreError> {
        self.files.as_ref().map_or(Ok(()), |files| files.healthy())
    }

    /// Reads where the log of events stands.
    fn read_log(&mut self) -> Result<(), StoreError> {
        self.log = read_log(&self.sqlite).map_err(|error| store_error(&error))?;
        Ok(())
    }

    /// Other connections of this process may hold a lock for a moment; the file has no other
    /// users, so it comes free.
    fn patiently<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let give_up = Instant::now() + BUSY_TIMEOUT;
        loop {
            match attempt(self) {
                Err(StoreError::Retry(_)) if Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                outcome => return outcome,
            }
        }
    }

    /// A number that SQLite changes whenever another connection has written.
    fn data_version(&self) -> Result<i64, StoreError> {
        let read = self.sqlite.prepare_cached("PRAGMA data_version");
        let read = read.and_then(|mut sql| sql.query_row([], |row| row.get(0)));
        read.map_err(|error| store_error(&error))
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        let run = self.sqlite.prepare_cached(sql).and_then(|mut sql| sql.execute([]));
        run.map(|_| ()).map_err(|error| store_error(&error))
    }
}

/// The caller's own work and its submissions in one transaction of the writer's.
pub(crate) fn submit_with<T, F>(
    store: &SqliteStore,
    engine: &Engine,
    work: F,
) -> Result<(T, Vec<SubmitOutcome>), EngineError>
where
    F: FnOnce(&Sqlite) -> Result<(T, Vec<Submission>), rusqlite::Error>,
{
    let refuse = |error: StoreError| error.into_engine_error("sqlite");
    let mut guard = store.writer();
    let connection = guard.as_mut().ok_or_else(|| refuse(StoreError::Closed))?;
    let (reply, mut answer) = oneshot::channel();
    let now = store.now();
    let mut refused = None;
    let mut too_many = |error: EngineError| {
        let why = error.to_string();
        refused = Some(error);
        StoreError::Failed(why)
    };
    let done = connection.in_transaction(|connection| {
        let worked = work(&connection.sqlite);
        let (value, items) = worked.map_err(|error| StoreError::Failed(error.to_string()))?;
        // The closure may have touched any row, and written events.
        connection.held.forget();
        connection.read_log()?;
        if connection.sqlite.is_autocommit() {
            let ended = "the closure ended the writer's transaction".to_owned();
            return Err(StoreError::Failed(ended));
        }
        // Work without submissions is fine: then the closure only uses the writer's transaction.
        let jobs = match items.is_empty() {
            true => vec![],
            false => {
                let submit = prepare_submit(items, &engine.config().limits, None, |_| 0);
                vec![Job::new(submit.map_err(&mut too_many)?, None, reply)]
            }
        };
        let mut batch = Batch::new(jobs);
        // No waiting claim is taken along: it must not share the fate of the caller's own work.
        let change = connection.decide_and_write(&mut batch, now, &Bells::default())?;
        Ok((value, batch, change))
    });
    let done = done.map_err(|error| refused.unwrap_or_else(|| refuse(error)));
    let (value, batch, change) = done?;
    connection.checkpoint_if_full();
    drop(guard);
    store.bells.ring(&change);
    if batch.is_empty() {
        return Ok((value, Vec::new()));
    }
    batch.answer();
    let outcomes = answer.try_recv().map_err(|_| refuse(StoreError::Closed))??;
    Ok((value, outcomes))
}

#[cfg(test)]
mod tests {
    use ff_core::backend::CapabilitySet;
    use ff_core::contracts::{FlowEdge, FlowNode, RevokeLeaseArgs, SubmitFlowArgs};
    use ff_core::engine::prepare_submit_flow;
    use ff_core::limits::Limits;
    use ff_core::operations::Operation;
    use ff_core::operations::execution::{Claim, Complete, Grant, RevokeLease};
    use ff_core::types::{ExecutionId, Namespace, WorkerInstanceId};
    use uuid::Uuid;

    use super::*;

    type Answer<O> = oneshot::Receiver<Result<<O as Operation>::Reply, EngineError>>;

    fn job<O: Operation>(operation: O) -> (Job, Answer<O>) {
        let (reply, answer) = oneshot::channel();
        (Job::new(operation, None, reply), answer)
    }

    fn said<O: Operation>(mut answer: Answer<O>) -> O::Reply {
        answer.try_recv().expect("an answer").expect("no refusal")
    }

    /// All of them in one transaction.
    fn commit(connection: &mut Connection, jobs: Vec<Job>) {
        let mut batch = Batch::new(jobs);
        connection.transact(&mut batch, TimestampMs(1), &Bells::default()).expect("committed");
        batch.answer();
    }

    fn claim(max: usize, worker: &str) -> Claim {
        Claim {
            lanes: vec!["lane".into()],
            capabilities: CapabilitySet::default(),
            worker_id: worker.into(),
            worker_instance_id: worker.into(),
            lease_ttl_ms: 60_000,
            max,
            view: max,
            claim_id: Uuid::now_v7(),
        }
    }

    fn open() -> Connection {
        let location = Location::parse(":memory:").expect("a place");
        Connection::open(&location, Synchronous::Full, true).expect("opened")
    }

    fn count(connection: &Connection, sql: &str) -> i64 {
        connection.sqlite.query_row(sql, [], |row| row.get(0)).expect("counted")
    }

    fn chain(length: usize) -> impl Operation<Reply: Sized> {
        let node = |at| FlowNode::new(format!("n{at}"), Submission::new("lane", "kind"));
        let edge = |at| FlowEdge::new(format!("n{}", at - 1), format!("n{at}"));
        let args = SubmitFlowArgs {
            namespace: Namespace::new("default"),
            nodes: (0..length).map(node).collect(),
            edges: (1..length).map(edge).collect(),
            ..SubmitFlowArgs::default()
        };
        prepare_submit_flow(args, &Limits::default(), None, |_| 0).expect("a flow")
    }

    #[test]
    fn chains_go_in_waves_of_rows_that_stand_together() {
        let (flows, length) = (40, 5);
        let mut connection = open();
        commit(&mut connection, (0..flows).map(|_| job(chain(length)).0).collect());
        let sql = "SELECT group_concat(raw_fields ->> '$.node', ' ') FROM \
                   (SELECT raw_fields FROM ff_exec_core ORDER BY rowid)";
        let nodes: String = connection.sqlite.query_row(sql, [], |row| row.get(0)).expect("read");
        let by_depth: Vec<_> = (0..flows * length).map(|at| format!("n{}", at / flows)).collect();
        assert_eq!(nodes, by_depth.join(" "));

        let (first, mut claimed) = job(claim(flows, "w"));
        commit(&mut connection, vec![first]);
        for wave in 0..length {
            // What was committed is taken over when the callers are answered, or else before the
            // next transaction.
            if wave % 2 == 0 {
                connection.learn();
            }
            let grants = said::<Claim>(claimed).grants;
            assert_eq!(grants.len(), flows);
            let complete = |grant: Grant| Complete { handle: grant.handle, result: None };
            let mut jobs: Vec<Job> = grants.into_iter().map(|one| job(complete(one)).0).collect();
            let (next, answer) = job(claim(flows, "w"));
            jobs.push(next);
            commit(&mut connection, jobs);
            claimed = answer;
        }
        assert!(said::<Claim>(claimed).grants.is_empty());

        let whole = "public_flow_state = 'completed' AND completed_count = node_count";
        let sql = format!("SELECT count(*) FROM ff_flow_core WHERE {whole}");
        assert_eq!(count(&connection, &sql), flows as i64);
        // Each execution leads to its last event, and each event to the one before.
        let lost = "SELECT count(*) FROM ff_exec_core AS x WHERE last_event <> \
                    (SELECT max(seq) FROM ff_event AS e WHERE e.execution_id = x.execution_id)";
        assert_eq!(count(&connection, lost), 0);
        let foreign = "SELECT count(*) FROM ff_event AS e WHERE execution_id IS NOT NULL AND \
                       previous <> (SELECT coalesce(max(seq), 0) FROM ff_event AS b \
                       WHERE b.execution_id = e.execution_id AND b.seq < e.seq)";
        assert_eq!(count(&connection, foreign), 0);
    }

    #[test]
    fn what_is_put_back_is_claimed_again_by_the_same_transaction() {
        let mut connection = open();
        let id = ExecutionId::parse(&format!("{{fp:0}}:{}", Uuid::now_v7())).expect("an id");
        let items = vec![Submission::new("lane", "kind").id(id.clone())];
        let submit = prepare_submit(items, &Limits::default(), None, |_| 0).expect("a submission");
        let args = RevokeLeaseArgs {
            execution_id: id,
            expected_lease_id: None,
            worker_instance_id: WorkerInstanceId::new("first"),
            reason: "test".to_owned(),
        };
        let revoke = RevokeLease { args };
        let (first, taken) = job(claim(1, "first"));
        let (second, taken_again) = job(claim(1, "second"));
        commit(&mut connection, vec![job(submit).0, first, job(revoke).0, second]);
        let epoch = |answer| said::<Claim>(answer).grants[0].handle.lease_epoch().0;
        assert!(epoch(taken) < epoch(taken_again));
    }
}
