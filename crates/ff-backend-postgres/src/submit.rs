//! Submitting inside the caller's own transaction.
//!
//! Such a transaction may stay open for as long as its owner likes, so it must hold nothing that
//! others need: no place in the log and no row of a lane. The executions are written as rows that
//! no event has told of; the engine announces them when it sees them.

use std::collections::HashSet;

use ff_core::contracts::{Submission, SubmitOutcome};
use ff_core::engine::{Engine, prepare_submit};
use ff_core::engine_error::{EngineError, StoreError};
use ff_core::store::cells::Words;
use ff_core::store::{Batch, Bells, Change, Job, Store, Write};
use ff_core::types::LaneId;
use sqlx::{Executor, PgConnection, Row};
use tokio::sync::oneshot;

use crate::PostgresStore;
use crate::config::CLOCK;
use crate::error::store_error;
use crate::graphs::Writers;
use crate::held::Unlocked;
use crate::load::Loader;
use crate::write::Writing;

/// How often the submissions are decided anew when somebody else came first with a key.
const TRIES: u32 = 3;

pub(crate) async fn submit_in(
    store: &PostgresStore,
    engine: &Engine,
    connection: &mut PgConnection,
    items: Vec<Submission>,
) -> Result<Vec<SubmitOutcome>, EngineError> {
    let partition = |lane: &LaneId| store.solo_partition(lane);
    let submit = prepare_submit(items, &engine.config().limits, None, partition)?;
    let (reply, mut answer) = oneshot::channel();
    let mut batch = Batch::new(vec![Job::new(submit, None, reply)]);
    let refuse = |error: StoreError| error.into_engine_error("postgres");
    let mut tries = 1;
    loop {
        // A conflict must not take the caller's transaction down with it.
        run(connection, "SAVEPOINT flowfabric").await.map_err(refuse)?;
        match write(store, connection, &mut batch).await {
            Ok(()) => break,
            Err(error) => {
                let back = "ROLLBACK TO SAVEPOINT flowfabric; RELEASE SAVEPOINT flowfabric";
                run(connection, back).await.map_err(refuse)?;
                match error {
                    StoreError::Conflict(_) if tries < TRIES => tries += 1,
                    error => return Err(refuse(error)),
                }
            }
        }
    }
    run(connection, "RELEASE SAVEPOINT flowfabric").await.map_err(refuse)?;
    batch.answer();
    answer.try_recv().map_err(|_| refuse(StoreError::Closed))?
}

async fn write(
    store: &PostgresStore,
    connection: &mut PgConnection,
    batch: &mut Batch,
) -> Result<(), StoreError> {
    let identity = store.identity(connection).await?;
    let clock = connection.fetch_one(CLOCK).await.map_err(|error| store_error(&error))?;
    let now = store.time.observe(clock.try_get(0).map_err(|error| store_error(&error))?);
    let cache = store.caches.current();
    let mut loader = Loader {
        connection,
        words: &mut Words::default(),
        statements: &store.statements,
        cache: &cache,
        unlocked: Unlocked::default(),
        locked_flows: HashSet::new(),
        flow_writers: Writers::default(),
        sweep_lock: identity.sweep_lock,
        careful: true,
        keeps: !store.pooled,
        locking: false,
        begun: &mut true,
    };
    let needs = batch.needs();
    let (world, _) = loader.load(batch, needs, now).await?;
    // No waiting claim is taken along: it must not share the fate of the caller's own work.
    let mut change = batch.decide(world, &Bells::default());
    unannounced(&mut change);
    let unlocked = Unlocked::default();
    Writing { connection, writes: &store.writes, unlocked: &unlocked, keeps: !store.pooled }
        .write(&change)
        .await?;
    let lanes = change.executions.iter().filter_map(|write| match write {
        Write::Insert(row) => Some(&*row.lane),
        Write::Update(_) | Write::Delete(_) => None,
    });
    let mut lanes: Vec<&str> = lanes.collect();
    lanes.sort_unstable();
    lanes.dedup();
    let notify = sqlx::query("SELECT ff_announce(lane) FROM unnest($1::text[]) AS l(lane)");
    let notified = notify.persistent(!store.pooled).bind(lanes).execute(connection).await;
    notified.map(|_| ()).map_err(|error| store_error(&error))
}

/// What may not be written in somebody else's transaction is left for the announcement.
fn unannounced(change: &mut Change) {
    change.events.clear();
    change.lanes.clear();
    for write in &mut change.executions {
        if let Write::Insert(row) = write {
            row.version = 0;
        }
    }
}

async fn run(connection: &mut PgConnection, sql: &str) -> Result<(), StoreError> {
    connection.execute(sql).await.map(|_| ()).map_err(|error| store_error(&error))
}
