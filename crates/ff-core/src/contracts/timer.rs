//! What waits for a time, and has nothing that would look at it then.

use serde::Serialize;

use crate::types::{ExecutionId, TimestampMs};

/// What a check of all timers has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimerCheck {
    /// How many things wait for a time.
    pub waits: u64,
    /// Those among them that have no timer, and would wait for ever.
    pub missing: Vec<MissingTimer>,
    /// Executions with policies that have no effect in part, a thousand of them at most.
    pub policies: Vec<UnreadPolicy>,
}

/// Something that waits for a time and has no timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingTimer {
    /// What the timer would be for: `ready`, `deadline`, `lease` and so on.
    pub kind: String,
    /// What waits.
    pub subject: String,
    /// When it has to be looked at.
    pub due_at: TimestampMs,
}

/// A stored policy with parts that cannot be read. They are kept, and have no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreadPolicy {
    pub execution_id: ExecutionId,
    pub parts: Vec<String>,
}
