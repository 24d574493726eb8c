//! Tells the log of executions that were put into their table with SQL, inside somebody's own
//! transaction, where nobody could take a place in the log.

use std::collections::HashSet;

use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::operations::execution::announce;
use crate::rows::LaneRow;
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct Announce {
    /// At most this many executions in one transaction.
    pub limit: usize,
}

impl Operation for Announce {
    /// How many were announced.
    type Reply = usize;

    const NAME: &'static str = "announce";

    fn needs(&self, needs: &mut Needs) {
        needs.unannounced = needs.unannounced.max(self.limit);
    }

    fn decide(&self, world: &World) -> Result<(usize, Change), EngineError> {
        let mut change = Change::default();
        let mut lanes = HashSet::new();
        let mut count = 0;
        // Another operation of this batch may have announced it by moving it.
        let rows = world.unannounced.iter().filter_map(|key| world.execution(*key));
        for row in rows.filter(|row| row.version == 0) {
            let mut after = row.clone();
            after.version = 1;
            announce(&mut change, row, &mut after, world.now);
            if world.lanes.get(&row.lane).is_none() && lanes.insert(row.lane.clone()) {
                change.lanes.push(Write::Insert(LaneRow::active(row.lane.clone())));
            }
            change.executions.push(Write::Update(after));
            count += 1;
        }
        Ok((count, change))
    }
}
