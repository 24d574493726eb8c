//! An operator takes a lease back; the execution waits for the next worker.

use super::requeue::make_ready;
use super::{ending, transition};
use crate::contracts::{EventType, RevokeLeaseArgs, RevokeLeaseResult};
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{AttemptRow, EventRow};
use crate::state::{AttemptState, LifecyclePhase, PublicState};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct RevokeLease {
    pub args: RevokeLeaseArgs,
}

impl Operation for RevokeLease {
    type Reply = RevokeLeaseResult;

    const NAME: &'static str = "revoke_lease";

    fn needs(&self, needs: &mut Needs) {
        needs.execution(self.args.execution_id.key());
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        ending::more(world, needs, self.args.execution_id.key());
    }

    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError> {
        let args = &self.args;
        let mut change = Change::default();
        let row = world.existing(args.execution_id.key())?;
        let satisfied =
            |reason: &str| RevokeLeaseResult::AlreadySatisfied { reason: reason.into() };
        let Some(attempt) = world.leased_attempt(row) else {
            return Ok((satisfied("no_active_lease"), change));
        };
        let wanted = args.worker_instance_id.as_str();
        if !wanted.is_empty() && attempt.holder() != Some(wanted) {
            return Ok((satisfied("different_worker_instance_id"), change));
        }
        let lease_id = lease_id(world.lease_prefix, attempt);
        let expected = args.expected_lease_id.as_deref().filter(|id| !id.is_empty());
        // Ids with the store's full name were handed out before, and name the same lease.
        let names_it = |id: &str| id == lease_id || id == self::lease_id(world.store, attempt);
        if expected.is_some_and(|expected| !names_it(expected)) {
            return Ok((satisfied("lease_id_mismatch"), change));
        }

        let mut revoked = attempt.clone();
        revoked.worker_instance_id = None;
        revoked.lease_expires_at = None;
        revoked.lease_epoch += 1;
        let epoch = revoked.lease_epoch;
        change.attempts.push(Write::Update(revoked));
        let mut after = row.clone();
        after.lease_epoch = epoch;
        if row.phase == LifecyclePhase::Active {
            make_ready(&mut after);
            after.attempt_state = AttemptState::AttemptInterrupted;
            after.public_state = PublicState::Waiting;
            after.set_raw("last_mutation_at", world.now.0.to_string().into());
        }
        let details = serde_json::json!({
            "reason": args.reason,
            "lease_id": lease_id,
            "holder": attempt.holder(),
        });
        transition(&mut change, row, after, EventType::LeaseRevoked, world.now, |event| EventRow {
            lease_ended: true,
            ..event.details(&details)
        });
        let lease_epoch = epoch.to_string();
        Ok((RevokeLeaseResult::Revoked { lease_id, lease_epoch }, change))
    }
}

/// A printable name for a lease. None is stored; this one is made from what identifies it.
fn lease_id(prefix: &str, attempt: &AttemptRow) -> String {
    let id = attempt.key.execution.id.hyphenated();
    format!("{prefix}:{id}:{}:{}", attempt.key.index, attempt.lease_epoch)
}
