//! Sleeps until the next timer is due, fires what is due, and sleeps again.
//!
//! An idle engine therefore reads a few times a minute and writes nothing.

use std::sync::Weak;
use std::time::Duration;

use super::Engine;
use crate::engine_error::EngineError;
use crate::store::Query;
use crate::types::TimestampMs;

/// How long to wait when something is due and another engine on the same database has it in hand.
const REST_AFTER_NOTHING: Duration = Duration::from_millis(50);
/// How long to wait after a failure, so that a broken store is not hammered.
const REST_AFTER_ERROR: Duration = Duration::from_millis(500);

pub(super) async fn sweep(engine: Weak<Engine>) {
    loop {
        let Some(rest) = look(&engine).await else {
            return;
        };
        let Some((store, mut timers, mut alive)) = engine.upgrade().map(|engine| {
            let timers = engine.store.listen().timers();
            (engine.store.clone(), timers, engine.alive.subscribe())
        }) else {
            return;
        };
        let sooner = async {
            let due = rest.map_or(TimestampMs(i64::MAX), |rest| rest);
            let _ = timers.wait_for(|armed| armed.is_some_and(|at| at < due)).await;
        };
        let due = async {
            match rest {
                Some(at) => store.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Nothing is ever sent: an engine that goes takes its store with it at once.
            _ = alive.changed() => return,
            () = sooner => {}
            () = due => {}
            // Bells are hints, so it looks from time to time anyway.
            () = tokio::time::sleep(store.patience()) => {}
        }
    }
}

/// Fires what is due and says when to come back; nothing if the engine is gone or closed.
async fn look(engine: &Weak<Engine>) -> Option<Option<TimestampMs>> {
    let engine = engine.upgrade()?;
    engine.store.listen().clear_timers();
    let scan = engine.config.retention.scan(1);
    let next_due = match engine.query(Query::NextDue(scan)).await {
        Ok(rows) => rows.next_due,
        Err(error) => return after_error(&engine, &error),
    };
    if next_due.is_none_or(|due| due > engine.store.now()) {
        return Some(next_due);
    }
    match engine.sweep().await {
        Ok(0) => Some(Some(engine.store.now().after(REST_AFTER_NOTHING))),
        Ok(_) => Some(Some(engine.store.now())),
        Err(error) => after_error(&engine, &error),
    }
}

/// When to try again; never, if the store has been closed: that is how an engine ends.
fn after_error(engine: &Engine, error: &EngineError) -> Option<Option<TimestampMs>> {
    if error.is_closed() {
        return None;
    }
    tracing::warn!(%error, "the sweeper could not work; it will try again");
    Some(Some(engine.store.now().after(REST_AFTER_ERROR)))
}
