//! The one check that every write of a worker passes.

use crate::backend::Handle;
use crate::engine_error::{ContentionKind, EngineError, StateKind};
use crate::mutants::{self, Mutant};
use crate::rows::{AttemptRow, ExecutionRow};
use crate::state::LifecyclePhase;
use crate::store::{Change, Needs, World, Write};
use crate::types::TimestampMs;

/// A lease that stands: the rows it stands on.
pub(crate) struct Held<'w> {
    pub row: &'w ExecutionRow,
    pub attempt: &'w AttemptRow,
}

impl Held<'_> {
    /// Keeps the lease with a write that goes beyond it, and says how long it lasts. The execution
    /// is written too, whether or not it differs: a store that decides from rows it remembers
    /// learns so that they are true.
    pub fn keep(
        &self,
        change: &mut Change,
        handle: &Handle,
        after: ExecutionRow,
        now: TimestampMs,
    ) -> TimestampMs {
        let (attempt, expires_at) = extended(self.attempt, handle, now);
        change.attempts.push(Write::Update(attempt));
        let rewritten = self.row.rewritten.max(after.rewriting(self.row));
        change.executions.push(Write::Update(ExecutionRow { rewritten, ..after }));
        expires_at
    }
}

/// The attempt with a lease that is counted from now.
pub(crate) fn extended(
    attempt: &AttemptRow,
    handle: &Handle,
    now: TimestampMs,
) -> (AttemptRow, TimestampMs) {
    let expires_at = now.after_ms(u64::from(handle.lease_ttl_ms()));
    // A clock that went back must not shorten a lease.
    let expires_at = attempt.lease_expires_at.max(Some(expires_at)).unwrap_or(expires_at);
    (AttemptRow { lease_expires_at: Some(expires_at), ..attempt.clone() }, expires_at)
}

pub(crate) fn needs(needs: &mut Needs, handle: &Handle) {
    needs.execution(handle.key());
    // After a retry the current attempt is another one; the old one tells what became of it.
    needs.attempt(handle.key(), handle.attempt_index());
}

/// The same for an operation that moves at most the attempt.
pub(crate) fn needs_unwritten(needs: &mut Needs, handle: &Handle) {
    needs.unwritten_execution(handle.key());
    needs.attempt(handle.key(), handle.attempt_index());
}

/// Refuses a handle unless it is the current attempt's, of the current lease, and not expired by
/// the store's clock.
pub(crate) fn held<'w>(world: &'w World, handle: &Handle) -> Result<Held<'w>, EngineError> {
    let row = world.existing(handle.key())?;
    if mutants::active(Mutant::CancelNotFinal) && row.phase == LifecyclePhase::Cancelled {
        let attempt = world.attempt(row.key, handle.attempt_index());
        return attempt
            .map(|attempt| Held { row, attempt })
            .ok_or(EngineError::State(StateKind::StaleLease));
    }
    if row.phase != LifecyclePhase::Active {
        return Err(EngineError::Contention(ContentionKind::ExecutionNotActive));
    }
    let attempt = world.current_attempt(row).ok_or(EngineError::State(StateKind::StaleLease))?;
    if mutants::active(Mutant::NoFence) {
        return Ok(Held { row, attempt });
    }
    let same_fence = attempt.is_fenced_by(handle)
        && attempt.holder() == Some(handle.worker_instance_id().as_str());
    if !same_fence {
        return Err(EngineError::State(StateKind::StaleLease));
    }
    match attempt.lease_expires_at {
        Some(expires_at) if expires_at > world.now => Ok(Held { row, attempt }),
        _ => Err(EngineError::State(StateKind::LeaseExpired)),
    }
}

/// The handle's own attempt, if it has ended under exactly this fence: the mark of a repeated call.
pub(crate) fn ended_under<'w>(world: &'w World, handle: &Handle) -> Option<&'w AttemptRow> {
    world.execution(handle.key())?;
    let attempt = world.attempt(handle.key(), handle.attempt_index())?;
    (attempt.is_fenced_by(handle) && attempt.outcome.is_some()).then_some(attempt)
}
