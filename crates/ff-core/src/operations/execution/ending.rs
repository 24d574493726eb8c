//! What must be seen before an execution can be put down or ended, whoever does it.

use crate::operations::suspension;
use crate::rows::FlowKey;
use crate::store::{Needs, World};
use crate::types::ExecutionKey;

/// Asks for what hangs on an execution that is about to lose its lease or to end. Every operation
/// that can do either calls this from its `more`.
pub(crate) fn more(world: &World, needs: &mut Needs, key: ExecutionKey) {
    let Some(row) = world.executions.get(&key).filter(|row| !row.is_finished()) else { return };
    if let Some(id) = row.flow_id {
        needs.flows.insert(FlowKey { partition: key.partition, id });
    }
    suspension::needs_to_end(needs, row);
}
