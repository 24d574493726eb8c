//! Holders keep their leases, many in one call; each is told whether it still has its own.

use super::fence;
use crate::backend::Handle;
use crate::contracts::RenewOutcome;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct Renew {
    pub handles: Vec<Handle>,
}

impl Operation for Renew {
    type Reply = Vec<RenewOutcome>;

    const NAME: &'static str = "renew";
    const MAY_END_LEASES: bool = false;

    fn weight(&self) -> usize {
        self.handles.len()
    }

    fn needs(&self, needs: &mut Needs) {
        for handle in &self.handles {
            fence::needs_unwritten(needs, handle);
        }
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let mut change = Change::default();
        let outcomes = self.handles.iter().map(|handle| match fence::held(world, handle) {
            Ok(held) => {
                let (attempt, expires_at) = fence::extended(held.attempt, handle, world.now);
                change.attempts.push(Write::Update(attempt));
                RenewOutcome::Renewed { expires_at }
            }
            Err(error) => RenewOutcome::Lost(error),
        });
        let outcomes = outcomes.collect();
        Ok((outcomes, change))
    }
}
