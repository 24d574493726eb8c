//! Forgets what has been finished for long enough.
//!
//! The log is already in the order of finishing, so its old end is where to look: no index over
//! finished executions is needed, and none has to be kept up to date when work ends.

use std::collections::HashSet;

use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{EventRow, IdempotencyKey};
use crate::store::{Change, Needs, RetentionScan, World, Write};
use crate::types::ExecutionKey;

/// How long finished executions and their events are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// By age since they finished.
    pub max_age_ms: Option<u64>,
    /// By number: only the newest so many endings.
    pub max_finished: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_age_ms: Some(7 * 24 * 60 * 60 * 1000), max_finished: None }
    }
}

impl Retention {
    pub const FOREVER: Self = Self { max_age_ms: None, max_finished: None };

    pub fn scan(self, limit: usize) -> Option<RetentionScan> {
        let Self { max_age_ms, max_finished } = self;
        let bounded = max_age_ms.is_some() || max_finished.is_some();
        bounded.then_some(RetentionScan { max_age_ms, max_finished, limit })
    }
}

#[derive(Debug)]
pub struct Retain {
    pub scan: RetentionScan,
}

impl Operation for Retain {
    /// How many events were looked at.
    type Reply = usize;

    const NAME: &'static str = "retain";

    fn needs(&self, needs: &mut Needs) {
        needs.retention = Some(self.scan);
    }

    fn decide(&self, world: &World) -> Result<(usize, Change), EngineError> {
        let mut change = Change::default();
        let mut purged = HashSet::new();
        for event in &world.retired_events {
            if let Some(purge) = self.purge(world, &mut change, event)
                && purged.insert(purge)
            {
                change.executions.push(Write::Delete(purge));
            }
        }
        change.log_floor = world.retired_events.last().map(|event| (event.shard, event.seq + 1));
        Ok((world.retired_events.len(), change))
    }
}

impl Retain {
    /// The execution whose last event this is, if it has finished.
    fn purge(&self, world: &World, change: &mut Change, event: &EventRow) -> Option<ExecutionKey> {
        let row = world.executions.get(&event.execution?)?;
        if !row.is_finished() || row.version != event.version {
            return None;
        }
        if let Some(key) = &row.idempotency_key {
            let key = IdempotencyKey { namespace: row.namespace.clone(), key: key.clone() };
            let own = world.idempotency.get(&key).is_some_and(|known| known.execution == row.key);
            if own {
                change.idempotency.push(Write::Delete(key));
            }
        }
        Some(row.key)
    }
}
