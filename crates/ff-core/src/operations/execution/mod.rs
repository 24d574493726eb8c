//! The life of one execution. `fence` and `finish` are shared by the verbs around them.

mod cancel_execution;
mod cancel_held;
mod change_priority;
mod claim;
mod complete;
mod create;
mod delay;
pub(crate) mod ending;
mod fail;
pub(crate) mod fence;
pub(crate) mod finish;
mod progress;
mod renew;
pub(crate) mod replay;
mod replay_execution;
pub(crate) mod requeue;
mod reschedule;
pub(crate) mod resubmit;
mod revoke_lease;
mod set_tags;
pub(crate) mod submit;
pub(crate) mod unique_key;

pub use cancel_execution::CancelExecution;
pub(crate) use cancel_execution::cancel;
pub use cancel_held::CancelHeld;
pub use change_priority::ChangePriority;
pub(crate) use change_priority::reprioritise;
pub use claim::{Claim, Claimed, Grant};
pub(crate) use claim::{hold, hold_back};
pub use complete::Complete;
pub use create::CreateExecution;
pub use delay::Delay;
pub(crate) use delay::{already_put_down, put_down};
pub use fail::Fail;
pub use progress::Progress;
pub use renew::Renew;
pub use replay_execution::ReplayExecution;
pub(crate) use replay_execution::{replay, replay_more};
pub use reschedule::Reschedule;
pub use resubmit::Resubmit;
pub use revoke_lease::RevokeLease;
pub use set_tags::SetTags;
pub(crate) use set_tags::retag;
pub(crate) use submit::{Accepted, accept, needs_of};
pub use submit::{PreparedSubmission, Refusal, Submit};

use crate::contracts::EventType;
use crate::operations::timer::expected;
use crate::rows::{EventRow, ExecutionRow};
use crate::store::{Change, Write};
use crate::types::TimestampMs;

/// Tells of an execution that came into its table by another way than through the engine, with the
/// event that it would have begun with. Whoever wrote it may add an attempt at any time, so it does
/// not count as one that was never leased: its first epoch is burnt.
pub(crate) fn announce(
    change: &mut Change,
    row: &ExecutionRow,
    after: &mut ExecutionRow,
    now: TimestampMs,
) {
    after.lease_epoch = after.lease_epoch.max(1);
    let mut event = EventRow::about(row, EventType::Submitted, now);
    event.version = 1;
    change.events.push(event.by(Some(row.creator.clone()).filter(|creator| !creator.is_empty())));
    // No timer was armed for what it waits for, unless its writer knew of timers.
    if !after.is_finished() {
        let timers = expected::of_execution(row, now);
        change.timers.extend(timers.into_iter().map(Write::Update));
    }
}

/// Writes an accepted transition: the row with its next version, and the one event for it.
pub(crate) fn transition(
    change: &mut Change,
    before: &ExecutionRow,
    mut after: ExecutionRow,
    event_type: EventType,
    now: TimestampMs,
    describe: impl FnOnce(EventRow) -> EventRow,
) {
    if before.version == 0 {
        announce(change, before, &mut after, now);
    }
    after.version = before.version.max(1) + 1;
    after.rewritten = before.rewritten.max(after.rewriting(before));
    let mut event = EventRow::about(&after, event_type, now);
    event.from = Some(before.public_state);
    // Most changes are of one execution, and a vector that grows makes room for four.
    if change.executions.capacity() == 0 {
        change.executions.reserve_exact(1);
        change.events.reserve_exact(1);
    }
    change.events.push(describe(event));
    change.executions.push(Write::Update(after));
}
