//! Where a limit stands, counted anew from what leases hold and who waits. Claims and ends of
//! leases move it in their own transactions, so it differs only after somebody has written to the
//! tables by hand, or because of a fault here; work would wait for room that nobody takes.

use super::drafts::Drafts;
use crate::contracts::Amounts;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{LimitStateRow, Standing};
use crate::store::{Change, Needs, World};

/// What is there to be held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Leases that hold a permit of it.
    pub in_use: u64,
    /// What leases have reserved of it.
    pub reserved: Amounts,
    /// Executions that wait for it.
    pub waiting: u64,
}

#[derive(Debug)]
pub struct RecountLimit {
    /// As it stood before somebody counted. If it stands so still, nothing has moved meanwhile.
    pub seen: LimitStateRow,
    pub counted: Counted,
}

impl Operation for RecountLimit {
    /// Whether it was mended; otherwise it has moved, and has to be counted again.
    type Reply = bool;

    const NAME: &'static str = "recount_limit";
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        needs.record::<LimitStateRow>(&self.seen.key);
    }

    fn decide(&self, world: &World) -> Result<(bool, Change), EngineError> {
        let mut change = Change::default();
        if world.record::<LimitStateRow>(&self.seen.key).as_ref() != Some(&self.seen) {
            return Ok((false, change));
        }
        let id = self.seen.key.id;
        let mut drafts = Drafts::new(world);
        if let Some(row) = drafts.change(id) {
            row.set_waiting(self.counted.waiting);
            match &mut row.standing.0 {
                Standing::Budget(account) => account.reserved = self.counted.reserved.clone(),
                Standing::Quota(permits) => permits.in_use = self.counted.in_use,
            }
        }
        drafts.arm(&mut change, id, world.now);
        drafts.write(&mut change);
        Ok((true, change))
    }
}
