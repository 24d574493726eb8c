//! Tells the log of executions that were put into their table with SQL, inside somebody's own
//! transaction, where nobody could take a place in the log.

use std::collections::HashSet;

use super::expected;
use crate::engine_error::EngineError;
use crate::operations::execution::announce;
use crate::operations::{Note, Operation};
use crate::rows::{ExecutionRow, LaneRow};
use crate::store::{Change, Needs, World, Write};

/// What came of an announcement.
#[derive(Clone, Debug, Default)]
pub struct Announced {
    /// How many were announced.
    pub executions: usize,
    /// What an operator should hear of.
    pub notes: Vec<Note>,
}

#[derive(Debug)]
pub struct Announce {
    /// At most this many executions in one transaction.
    pub limit: usize,
}

impl Operation for Announce {
    type Reply = Announced;

    const NAME: &'static str = "announce";

    fn needs(&self, needs: &mut Needs) {
        needs.unannounced = needs.unannounced.max(self.limit);
    }

    fn decide(&self, world: &World) -> Result<(Announced, Change), EngineError> {
        let mut change = Change::default();
        let mut lanes = HashSet::new();
        let mut announced = Announced::default();
        // Another operation of this batch may have announced it by moving it.
        let rows = world.unannounced.iter().filter_map(|key| world.execution(*key));
        for row in rows.filter(|row| row.version == 0) {
            let mut after = row.clone();
            after.version = 1;
            announce(&mut change, row, &mut after, world.now);
            if world.lanes.get(&row.lane).is_none() && lanes.insert(row.lane.clone()) {
                change.lanes.push(Write::Insert(LaneRow::active(row.lane.clone())));
            }
            let attempt = world.current_attempt(row);
            let timeout = attempt.and_then(|it| expected::of_attempt(row, it, world.now));
            change.timers.extend(timeout.map(Write::Update));
            change.executions.push(Write::Update(after));
            announced.executions += 1;
            announced.notes.extend(unread_policy(row));
        }
        Ok((announced, change))
    }
}

/// Parts of a policy that were written by hand and mean nothing here.
fn unread_policy(row: &ExecutionRow) -> Option<Note> {
    let unread = row.unread_policy();
    (!unread.is_empty()).then(|| Note {
        subject: row.key.execution_id().to_string(),
        what: "parts of a stored policy cannot be read; they are kept and have no effect",
        why: unread.join(", "),
    })
}
