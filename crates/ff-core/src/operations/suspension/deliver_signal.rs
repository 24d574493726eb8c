//! Somebody outside says something to an execution that waits, or that will.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::end::{Resumption, resume};
use super::keys::{self, KnownKeys};
use super::suspend::facts;
use super::{more_to_resume, needs_of, put, suspension, waitpoint};
use crate::condition::Verdict;
use crate::contracts::{EventType, SignalEffect, SignalOutcome, WaitEnd, WaitpointState};
use crate::engine_error::{EngineError, StateKind, ValidationKind};
use crate::limits;
use crate::operations::Operation;
use crate::operations::execution::transition;
use crate::rows::{
    ExecutionRow, SignalCountKey, SignalCountRow, SignalKey, SignalRow, SuspensionRow,
    WaitpointKey, WaitpointKeyRow, WaitpointRow, Word,
};
use crate::state::LifecyclePhase;
use crate::store::{Change, Needs, World};
use crate::token::{self, VerifiedToken};
use crate::types::{ExecutionKey, SignalId};

#[derive(Debug)]
pub struct DeliverSignal {
    pub authority: SignalAuthority,
    /// As it will be stored, its number and its effect apart.
    pub signal: SignalRow,
    pub keys: KnownKeys,
}

/// By what right somebody signals.
#[derive(Clone, Debug)]
pub enum SignalAuthority {
    /// A token whose MAC is right.
    Token(VerifiedToken),
    /// The embedding program or an operator says so.
    Operator,
}

impl Operation for DeliverSignal {
    type Reply = SignalOutcome;

    const NAME: &'static str = "deliver_signal";
    // Whoever waits has no lease.
    const MAY_END_LEASES: bool = false;

    fn needs(&self, needs: &mut Needs) {
        let SignalKey { execution, waitpoint_id, .. } = self.signal.key;
        needs.execution(execution);
        needs_of(needs, execution);
        needs.record::<WaitpointRow>(&WaitpointKey { execution, waitpoint_id });
        needs.record::<SignalRow>(&self.signal.key);
        needs.record::<SignalCountRow>(&SignalCountKey { execution });
        if matches!(self.authority, SignalAuthority::Token(_)) {
            keys::needs(needs);
        }
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        more_to_resume(world, needs, self.signal.key.execution);
    }

    fn decide(&self, world: &World) -> Result<(SignalOutcome, Change), EngineError> {
        let mut change = Change::default();
        let SignalKey { execution, waitpoint_id, .. } = self.signal.key;
        let row = world.existing(execution)?;
        let target = waitpoint(world, execution, waitpoint_id);
        let target = target.ok_or(EngineError::NotFound { entity: "waitpoint" })?;
        if let SignalAuthority::Token(token) = &self.authority {
            self.check_token(world, token, row, &target)?;
        }
        // Before the state is looked at: the first call may be what has moved it.
        if let Some(known) = world.record::<SignalRow>(&self.signal.key) {
            let existing_signal_id = SignalId(known.signal_id);
            let effect = known.effect.0;
            return Ok((SignalOutcome::Duplicate { existing_signal_id, effect }, change));
        }
        if row.is_finished() {
            return Err(EngineError::State(StateKind::TargetNotSignalable));
        }
        if !target.is_alive(world.now) || target.generation != row.replay_count() {
            return Err(EngineError::State(StateKind::WaitpointClosed));
        }
        let count = count_signal(world, &mut change, execution, &target)?;
        let mut signal = SignalRow {
            number: count,
            waitpoint_key: target.waitpoint_key.clone(),
            accepted_at: world.now,
            ..self.signal.clone()
        };
        let met = match target.state() {
            WaitpointState::Pending => {
                signal.effect = Word(SignalEffect::BufferedForPendingWaitpoint);
                None
            }
            WaitpointState::Active | WaitpointState::Closed => {
                let wait = suspension(world, execution).filter(SuspensionRow::is_open);
                let wait = wait.filter(|wait| wait.number == target.suspension);
                let wait = wait.filter(|_| row.phase == LifecyclePhase::Suspended);
                let wait = wait.ok_or(EngineError::State(StateKind::WaitpointClosed))?;
                judge(&mut change, wait, &mut signal)
            }
        };
        change.insert(&signal);
        change.update(&WaitpointRow { signal_count: target.signal_count + 1, ..target });
        let told = tell(world, &mut change, row, &signal);
        if let Some(wait) = met {
            let mut how = Resumption::new(WaitEnd::Satisfied, wait.resume_delay_ms);
            how.by = source(&signal);
            resume(world, &mut change, &told, wait, how);
        }
        let signal_id = SignalId(signal.signal_id);
        Ok((SignalOutcome::Accepted { signal_id, effect: signal.effect.0 }, change))
    }
}

impl DeliverSignal {
    fn check_token(
        &self,
        world: &World,
        token: &VerifiedToken,
        row: &ExecutionRow,
        target: &WaitpointRow,
    ) -> Result<(), EngineError> {
        let claims = &token.claims;
        let stored = world.scan::<WaitpointKeyRow>(&keys::all_keys());
        self.keys.check_token(&stored, token, target, world.now)?;
        let expired = claims.expires_at.is_some_and(|at| at <= world.now);
        if expired || claims.namespace != row.namespace {
            return Err(token::invalid());
        }
        let name = &*self.signal.name;
        if !claims.signal_names.is_empty() && !claims.signal_names.iter().any(|one| one == name) {
            let detail = format!("the token does not allow the signal {name:?}");
            return Err(EngineError::validation(ValidationKind::SignalNotAllowed, detail));
        }
        Ok(())
    }
}

/// The signal's number, unless there are too many.
fn count_signal(
    world: &World,
    change: &mut Change,
    execution: ExecutionKey,
    target: &WaitpointRow,
) -> Result<u32, EngineError> {
    let key = SignalCountKey { execution };
    let known = world.record::<SignalCountRow>(&key);
    let count = known.as_ref().map_or(0, |known| known.count);
    let of_waitpoint = match target.state() {
        WaitpointState::Pending => limits::SIGNALS_BUFFERED,
        WaitpointState::Active | WaitpointState::Closed => limits::SIGNALS_PER_WAITPOINT,
    };
    for (what, have, most) in [
        ("execution", count, limits::SIGNALS_PER_EXECUTION),
        ("waitpoint", target.signal_count, of_waitpoint),
    ] {
        if have >= most {
            let detail = format!("the {what} has {have} signals, the limit is {most}");
            return Err(EngineError::validation(ValidationKind::SignalLimitExceeded, detail));
        }
    }
    let counted = SignalCountRow { key, count: count + 1 };
    put(change, &counted, known.is_some());
    Ok(count + 1)
}

/// Counts the signal for the suspension that waits for it, which is returned if that was all.
fn judge(
    change: &mut Change,
    mut wait: SuspensionRow,
    signal: &mut SignalRow,
) -> Option<SuspensionRow> {
    let verdict = wait.progress.0.count(&wait.condition.0, &facts(signal));
    let met = wait.progress.0.meets(&wait.condition.0);
    signal.effect = Word(match verdict {
        Verdict::Counted if met => SignalEffect::ResumeConditionSatisfied,
        Verdict::Counted => SignalEffect::AppendedToWaitpoint,
        Verdict::Repeated => SignalEffect::AppendedToWaitpointDuplicate,
        Verdict::NotInCondition => SignalEffect::SignalIgnoredNotInCondition,
        Verdict::MatcherFailed => SignalEffect::SignalIgnoredMatcherFailed,
    });
    if verdict == Verdict::Counted {
        signal.suspension = wait.number;
        change.update(&wait);
    }
    met.then_some(wait)
}

/// Writes the event of an accepted signal; the row as it stands after it.
fn tell(
    world: &World,
    change: &mut Change,
    row: &ExecutionRow,
    signal: &SignalRow,
) -> ExecutionRow {
    let details = json!({
        "signal_id": signal.signal_id,
        "waitpoint_id": signal.key.waitpoint_id,
        "signal_name": &*signal.name,
        "source_type": &*signal.source_type,
        "source_identity": &*signal.source_identity,
        "effect": signal.effect.0,
    });
    let by = source(signal);
    transition(change, row, row.clone(), EventType::SignalDelivered, world.now, |event| {
        event.by(by).details(&details)
    });
    super::last_written(change, row)
}

fn source(signal: &SignalRow) -> Option<Arc<str>> {
    Some(signal.source_identity.clone()).filter(|source| !source.is_empty())
}

/// What makes a second signal on a waitpoint the same one.
pub(crate) fn dedup(idempotency_key: Option<&str>, signal_id: Uuid) -> Arc<str> {
    match idempotency_key {
        Some(key) => format!("key:{key}").into(),
        None => format!("id:{signal_id}").into(),
    }
}
