//! Bulk operations in a run: somebody changes many executions at once while all of them move, and
//! servers die in the middle of it.

use ff_core::contracts::{BulkAction, BulkFilter, StartBulkArgs};
use ff_core::operations::bulk::{CancelBulk, StartBulk};
use ff_core::rows::{BulkKey, BulkRow};
use ff_core::state::PublicState;
use ff_core::types::{LaneId, Namespace};
use uuid::Uuid;

use super::Simulation;
use super::message::{Answer, NAMESPACE, Verb};

pub(super) fn start(definition: StartBulkArgs, id: Uuid) -> StartBulk {
    StartBulk { id, definition, caller: None, matched: 0 }
}

pub(super) fn cancel(id: Uuid) -> CancelBulk {
    CancelBulk { key: BulkKey { id } }
}

pub(super) fn started(row: &BulkRow) -> Answer {
    Answer::Bulk(row.key.id)
}

impl Simulation {
    pub(super) fn draw_bulk(&mut self) -> Verb {
        if let Some(id) = self.last_bulk().filter(|_| self.rng.u32(0..4) == 0) {
            return Verb::CancelBulk(id);
        }
        let mut filter =
            BulkFilter { namespace: Some(Namespace::new(NAMESPACE)), ..BulkFilter::default() };
        if self.rng.u32(0..3) == 0 {
            filter.lane_id = Some(LaneId::new(if self.rng.bool() { "red" } else { "blue" }));
        }
        let action = match self.rng.u32(0..8) {
            // Not so many that nothing is left to do.
            0 => {
                let states = [PublicState::Delayed, PublicState::RateLimited];
                filter.states = vec![states[self.rng.usize(0..2)]];
                BulkAction::Cancel { reason: format!("bulk {}", self.rng.u64(..)) }
            }
            // What was skipped would wait for parents that nobody runs again.
            1 | 2 => {
                let states = [PublicState::Completed, PublicState::Failed, PublicState::Expired];
                filter.states = vec![states[self.rng.usize(0..3)]];
                BulkAction::Replay
            }
            3 | 4 => BulkAction::ChangePriority { new_priority: self.rng.i32(0..9) },
            _ => {
                let value = Some(self.rng.u64(..).to_string());
                BulkAction::SetTags { tags: [("sim.bulk".to_owned(), value)].into() }
            }
        };
        Verb::StartBulk(Box::new(StartBulkArgs {
            filter,
            action,
            by: "operator".into(),
            request_id: None,
        }))
    }

    /// The newest that anybody was told of.
    fn last_bulk(&self) -> Option<Uuid> {
        let acks = self.history.ops.iter().rev().flat_map(|op| &op.acked);
        let mut told = acks.filter_map(|answer| match answer {
            Answer::Bulk(id) => Some(*id),
            _ => None,
        });
        told.next()
    }
}
