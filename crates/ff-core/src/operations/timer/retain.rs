//! Forgets what has been finished for long enough.
//!
//! The log is already in the order of finishing, so its old end is where to look: no index over
//! finished executions is needed, and none has to be kept up to date when work ends. The members of
//! a flow are kept as long as it lives, and the last of them takes the flow along.

use std::collections::HashSet;

use crate::engine_error::EngineError;
use crate::operations::{Operation, flow};
use crate::rows::{EventRow, ExecutionRow, FlowKey, IdempotencyKey};
use crate::store::{Change, LogFloor, Needs, RetentionScan, World, Write};

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

    fn more(&self, world: &World, needs: &mut Needs) {
        for (row, _) in ended(world) {
            if let Some(id) = row.flow_id {
                flow::more_to_forget(needs, FlowKey { partition: row.key.partition, id });
            }
        }
    }

    fn decide(&self, world: &World) -> Result<(usize, Change), EngineError> {
        let mut change = Change::default();
        let mut flows = HashSet::new();
        for (row, event) in ended(world) {
            let flow = world.flow_of(row);
            // Nobody counted the members of a flow that was inserted by hand, so it may never end.
            if flow.is_some_and(|flow| flow.nodes > 0 && !flow.state.is_finished()) {
                continue;
            }
            if row.is_held() && flow.is_none() {
                continue;
            }
            forget_execution(world, &mut change, row);
            let at = event.at.max(row.terminal_at.unwrap_or(event.at));
            if let Some(flow) = flow
                && flow.terminal_at.is_some_and(|ended| ended <= at)
                && flows.insert(flow.key)
            {
                flow::forget(world, &mut change, flow, at);
            }
        }
        change.log_floor = world.retired_events.last().map(|event| LogFloor {
            shard: event.shard,
            floor: event.seq + 1,
            mark: event.mark(),
        });
        Ok((world.retired_events.len(), change))
    }
}

/// The executions that have finished or are held for good, each with the event that was its last.
fn ended(world: &World) -> impl Iterator<Item = (&ExecutionRow, &EventRow)> {
    world.retired_events.iter().filter_map(|event| {
        let row = world.executions.get(&event.execution?)?;
        let is_over = row.is_finished() || row.is_held();
        (is_over && row.version == event.version).then_some((row, event))
    })
}

/// Takes an execution out of its table, and the key that it was submitted with.
pub(crate) fn forget_execution(world: &World, change: &mut Change, row: &ExecutionRow) {
    if let Some(key) = idempotency_key(row) {
        let own = world.idempotency.get(&key).is_some_and(|known| known.execution == row.key);
        if own {
            change.idempotency.push(Write::Delete(key));
        }
    }
    change.executions.push(Write::Delete(row.key));
}

pub(crate) fn idempotency_key(row: &ExecutionRow) -> Option<IdempotencyKey> {
    let key = row.idempotency_key.clone()?;
    Some(IdempotencyKey { namespace: row.namespace.clone(), key })
}
