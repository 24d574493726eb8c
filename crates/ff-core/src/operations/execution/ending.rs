//! What must be seen before an execution can be put down or ended, whoever does it.

use crate::operations::flow::cascade;
use crate::operations::suspension;
use crate::rows::{ExecutionRow, FlowKey};
use crate::store::{Needs, World};
use crate::types::ExecutionKey;

/// Asks for what hangs on an execution that is about to lose its lease or to end. Every operation
/// that can do either calls this from its `more`.
pub(crate) fn more(world: &World, needs: &mut Needs, key: ExecutionKey) {
    let Some(row) = world.executions.get(&key).filter(|row| !row.is_finished()) else { return };
    match world.may_write_flow_of(row) {
        true => suspension::needs_to_end(needs, row),
        false => more_alone(needs, row),
    }
    cascade::more(world, needs, row);
}

/// The same without what its flow has behind it: if the whole flow is cancelled, the end of one
/// member causes nothing in the others.
pub(crate) fn more_alone(needs: &mut Needs, row: &ExecutionRow) {
    if let Some(id) = row.flow_id {
        needs.flows.insert(FlowKey { partition: row.key.partition, id });
    }
    suspension::needs_to_end(needs, row);
}
