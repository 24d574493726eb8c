//! What is done to one execution: the same as the single operations do.

use crate::contracts::BulkAction;
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::execution::{cancel, ending, replay, replay_more, reprioritise, retag};
use crate::rows::ExecutionRow;
use crate::store::{Change, Needs, World};

/// Asks for what the action will look at.
pub(super) fn more(world: &World, needs: &mut Needs, row: &ExecutionRow, action: &BulkAction) {
    match action {
        BulkAction::Cancel { .. } => ending::more(world, needs, row.key),
        BulkAction::Replay => replay_more(world, needs, row),
        BulkAction::ChangePriority { .. } | BulkAction::SetTags { .. } => {}
    }
}

/// Does it, and says whether anything changed. A refusal writes nothing.
pub(super) fn act(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    action: &BulkAction,
) -> Result<bool, EngineError> {
    match action {
        BulkAction::Cancel { reason } => cancel(world, change, row, reason, "bulk", world.now),
        BulkAction::Replay => replay(world, change, row, world.now).map(|_| true),
        BulkAction::ChangePriority { new_priority } => {
            let same = (*new_priority).clamp(limits::PRIORITY_MIN, limits::PRIORITY_MAX);
            if row.priority == same {
                return Ok(false);
            }
            reprioritise(world, change, row, *new_priority, world.now).map(|()| true)
        }
        BulkAction::SetTags { tags } => retag(world, change, row, tags),
    }
}
