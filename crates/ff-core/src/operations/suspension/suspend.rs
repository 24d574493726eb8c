//! The holder puts its execution down until a condition is met. The same attempt goes on then.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::end::{close_waitpoint, remember, timer};
use super::keys::{self, KnownKeys};
use super::{buffered, open_waitpoints, put, signals_of, suspension, waitpoint};
use crate::backend::Handle;
use crate::condition::{Progress, SignalFacts, Verdict};
use crate::contracts::{
    EventType, SignalEffect, SuspendArgs, TokenTerms, WaitEnd, WaitpointBinding, WaitpointState,
};
use crate::engine_error::{ConflictKind, EngineError, StateKind};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::operations::Operation;
use crate::operations::execution::{fence, transition};
use crate::rows::{
    EventRow, ExecutionRow, Json, SignalRow, SuspensionKey, SuspensionOutcomeKey,
    SuspensionOutcomeRow, SuspensionRow, WaitpointKey, WaitpointRow, Word,
};
use crate::state::{AttemptState, EligibilityState, LifecyclePhase, OwnershipState, PublicState};
use crate::store::{Change, Needs, World, Write};
use crate::token::NONCE_BYTES;
use crate::types::WaitpointId;

#[derive(Debug)]
pub struct Suspend {
    pub handle: Handle,
    pub args: SuspendArgs,
    pub keys: KnownKeys,
    pub nonce: [u8; NONCE_BYTES],
}

/// The answer, as rows.
#[derive(Debug)]
pub enum Suspended {
    /// The suspension and its waitpoints, in the order in which they were asked for.
    Put(Box<SuspensionRow>, Vec<WaitpointRow>),
    /// The lease stands: which suspension it was, and what it got.
    AtOnce(uuid::Uuid, Vec<SignalRow>),
}

impl Operation for Suspend {
    type Reply = Suspended;

    const NAME: &'static str = "suspend";

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
        let execution = self.handle.key();
        super::needs_of(needs, execution);
        if let Some(key) = self.named() {
            needs.record::<SuspensionOutcomeRow>(&key);
        }
        for binding in &self.args.waitpoints {
            let waitpoint_id = binding.id().0;
            needs.record::<WaitpointRow>(&WaitpointKey { execution, waitpoint_id });
            match binding {
                WaitpointBinding::Fresh { .. } => {}
                WaitpointBinding::UsePending { .. } => {
                    needs.scan(&buffered(execution, waitpoint_id));
                }
            }
        }
        if self.wants_token() {
            keys::needs(needs);
        }
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        let execution = self.handle.key();
        if let Some(known) = self.outcome(world) {
            needs.scan(&signals_of(execution, known.number));
        }
        if let Some(wait) = suspension(world, execution).filter(|wait| self.is_repeat(wait)) {
            needs.scan(&signals_of(execution, wait.number));
            for waitpoint_id in wait.waitpoints.0 {
                needs.record::<WaitpointRow>(&WaitpointKey { execution, waitpoint_id });
            }
        }
    }

    fn decide(&self, world: &World) -> Result<(Suspended, Change), EngineError> {
        let mut change = Change::default();
        let execution = self.handle.key();
        let row = world.existing(execution)?;
        let before = suspension(world, execution);
        if let Some(wait) = before.as_ref().filter(|wait| self.is_repeat(wait)) {
            return Ok((self.again(world, wait), change));
        }
        if row.phase == LifecyclePhase::Suspended {
            return Err(EngineError::State(StateKind::AlreadySuspended));
        }
        let held = fence::held(world, &self.handle)?;
        if let Some(known) = self.outcome(world)
            && known.generation == row.replay_count()
            && known.end.0.is_resumed()
        {
            let signals = world.scan::<SignalRow>(&signals_of(execution, known.number));
            return Ok((Suspended::AtOnce(known.suspension_id, signals), change));
        }
        let by = held.attempt.worker_instance_id.clone();
        let mut wait = self.wait(world, row, before.as_ref(), by.clone().unwrap_or_default());
        let mut bound = self.bind(world, &mut change, row, wait.number)?;
        let counted = self.take_buffered(world, &mut wait, &bound);
        if wait.progress.0.meets(&wait.condition.0) {
            // Nothing that was made for waiting is needed.
            let mut change = Change::default();
            wait.at_once = true;
            wait.timeout_at = None;
            wait.closed_at = Some(world.now);
            wait.end = Some(Word(WaitEnd::Satisfied));
            wait.waitpoints.0.clear();
            for waitpoint in bound.iter_mut().filter(|one| one.activated_at.is_none()) {
                close_waitpoint(&mut change, waitpoint, WaitEnd::Satisfied, world.now);
            }
            put(&mut change, &wait, before.is_some());
            remember(world, &mut change, &wait, WaitEnd::Satisfied);
            counted.iter().for_each(|signal| change.update(signal));
            change.executions.push(Write::Update(row.clone()));
            return Ok((Suspended::AtOnce(wait.suspension_id, counted), change));
        }
        for waitpoint in &mut bound {
            let fresh = waitpoint.activated_at.is_some();
            waitpoint.activated_at = Some(world.now);
            put(&mut change, waitpoint, !fresh);
        }
        put(&mut change, &wait, before.is_some());
        counted.iter().for_each(|signal| change.update(signal));
        let mut attempt = held.attempt.clone();
        attempt.lease_expires_at = None;
        attempt.worker_instance_id = None;
        change.attempts.push(Write::Update(attempt));
        self.put_down(world, &mut change, row, &wait, by);
        Ok((Suspended::Put(Box::new(wait), bound), change))
    }
}

impl Suspend {
    fn named(&self) -> Option<SuspensionOutcomeKey> {
        let idempotency_key = self.args.idempotency_key.as_deref()?.into();
        Some(SuspensionOutcomeKey { execution: self.handle.key(), idempotency_key })
    }

    fn wants_token(&self) -> bool {
        let wants =
            |one: &WaitpointBinding| matches!(one, WaitpointBinding::Fresh { token: Some(_), .. });
        self.args.waitpoints.iter().any(wants)
    }

    fn outcome(&self, world: &World) -> Option<SuspensionOutcomeRow> {
        world.record::<SuspensionOutcomeRow>(&self.named()?)
    }

    /// The first call may have been committed without its answer arriving.
    fn is_repeat(&self, wait: &SuspensionRow) -> bool {
        wait.suspension_id == self.args.suspension_id.0
            && wait.attempt_index == self.handle.attempt_index()
            && wait.lease_epoch == self.handle.lease_epoch().0
    }

    fn again(&self, world: &World, wait: &SuspensionRow) -> Suspended {
        let execution = self.handle.key();
        if wait.at_once {
            let signals = world.scan::<SignalRow>(&signals_of(execution, wait.number));
            return Suspended::AtOnce(wait.suspension_id, signals);
        }
        let bound = wait.waitpoints.0.iter().filter_map(|id| waitpoint(world, execution, *id));
        Suspended::Put(Box::new(wait.clone()), bound.collect())
    }

    fn wait(
        &self,
        world: &World,
        row: &ExecutionRow,
        before: Option<&SuspensionRow>,
        by: Arc<str>,
    ) -> SuspensionRow {
        let args = &self.args;
        SuspensionRow {
            key: SuspensionKey { execution: row.key },
            suspension_id: args.suspension_id.0,
            number: before.map_or(0, |before| before.number) + 1,
            generation: row.replay_count(),
            attempt_index: self.handle.attempt_index(),
            lease_epoch: self.handle.lease_epoch().0,
            reason: Word(args.reason),
            condition: Json(args.condition.clone()),
            progress: Json(Progress::default()),
            waitpoints: Json(args.waitpoints.iter().map(|one| one.id().0).collect()),
            suspended_by: by,
            suspended_at: world.now,
            timeout_at: args.timeout_ms.map(|ms| world.now.after_ms(ms)),
            timeout_behavior: Word(args.timeout_behavior),
            resume_delay_ms: args.resume_delay_ms,
            continuation: args.continuation.as_deref().map(Into::into),
            idempotency_key: args.idempotency_key.as_deref().map(Into::into),
            at_once: false,
            closed_at: None,
            end: None,
        }
    }

    /// The waitpoints that the suspension will listen to: those that it makes are marked as
    /// activated, those that were there are not yet.
    fn bind(
        &self,
        world: &World,
        change: &mut Change,
        row: &ExecutionRow,
        number: u32,
    ) -> Result<Vec<WaitpointRow>, EngineError> {
        let open = world.scan::<WaitpointRow>(&open_waitpoints(row.key));
        let kid = match self.wants_token() {
            true => Some(self.keys.active(world, change)?),
            false => None,
        };
        let mut made = 0;
        let mut bound: Vec<WaitpointRow> = Vec::with_capacity(self.args.waitpoints.len());
        for binding in &self.args.waitpoints {
            let mut next = match binding {
                WaitpointBinding::UsePending { waitpoint_id } => {
                    pending(world, row, *waitpoint_id)?
                }
                WaitpointBinding::Fresh { waitpoint_id, waitpoint_key, token } => {
                    let mut fresh = fresh(world, row, *waitpoint_id, waitpoint_key)?;
                    let taken = |one: &WaitpointRow| one.waitpoint_key == fresh.waitpoint_key;
                    if open.iter().any(|one| taken(one) && one.is_alive(world.now)) {
                        return Err(EngineError::Conflict(ConflictKind::WaitpointAlreadyExists));
                    }
                    let names = self.args.condition.signal_names(waitpoint_key);
                    let names = names.into_iter().flatten().map(str::to_owned);
                    fresh.signal_names = Json(names.collect());
                    fresh.activated_at = Some(world.now);
                    if let Some((terms, kid)) = token.as_ref().zip(kid.clone()) {
                        give_token(world, &mut fresh, terms, kid, &self.nonce);
                    }
                    made += 1;
                    fresh
                }
            };
            next.suspension = number;
            bound.push(next);
        }
        check_room(open.len() + made)?;
        check_keys(&self.args, &bound)?;
        Ok(bound)
    }

    /// Counts what was signalled before anybody waited; the signals that count.
    fn take_buffered(
        &self,
        world: &World,
        wait: &mut SuspensionRow,
        bound: &[WaitpointRow],
    ) -> Vec<SignalRow> {
        if mutants::active(Mutant::SignalLost) {
            return Vec::new();
        }
        let mut early: Vec<SignalRow> = Vec::new();
        for waitpoint in bound.iter().filter(|one| one.activated_at.is_none()) {
            let key = &waitpoint.key;
            early.extend(world.scan::<SignalRow>(&buffered(key.execution, key.waitpoint_id)));
        }
        early.sort_by_key(|signal| signal.number);
        early.retain_mut(|signal| {
            let counts = wait.progress.0.count(&wait.condition.0, &facts(signal));
            signal.suspension = wait.number;
            signal.effect = Word(SignalEffect::AppendedToWaitpoint);
            counts == Verdict::Counted
        });
        early
    }

    fn put_down(
        &self,
        world: &World,
        change: &mut Change,
        row: &ExecutionRow,
        wait: &SuspensionRow,
        by: Option<Arc<str>>,
    ) {
        if let Some(at) = wait.timeout_at {
            change.timers.push(Write::Update(timer(row, at)));
        }
        let mut after = row.clone();
        after.phase = LifecyclePhase::Suspended;
        after.ownership = OwnershipState::Unowned;
        after.eligibility = EligibilityState::NotApplicable;
        after.public_state = PublicState::Suspended;
        after.attempt_state = AttemptState::AttemptInterrupted;
        after.blocking = self.args.reason.blocking_reason();
        after.not_before = None;
        let details = json!({
            "suspension_id": wait.suspension_id,
            "reason": self.args.reason,
            "waitpoint_ids": &wait.waitpoints.0,
            "timeout_at": wait.timeout_at.map(|at| at.0),
        });
        transition(change, row, after, EventType::Suspended, world.now, |event| EventRow {
            lease_ended: true,
            ..event.by(by).details(&details)
        });
    }
}

pub(super) fn facts(signal: &SignalRow) -> SignalFacts<'_> {
    SignalFacts {
        waitpoint_key: &signal.waitpoint_key,
        waitpoint: signal.key.waitpoint_id,
        signal: signal.signal_id,
        name: &signal.name,
        source_type: &signal.source_type,
        source_identity: &signal.source_identity,
    }
}

fn pending(
    world: &World,
    row: &ExecutionRow,
    id: WaitpointId,
) -> Result<WaitpointRow, EngineError> {
    let found = waitpoint(world, row.key, id.0);
    let found = found.ok_or(EngineError::NotFound { entity: "waitpoint" })?;
    let own_life = found.generation == row.replay_count();
    // Whether its timer has closed it already makes no difference.
    let never_used = found.end == Some(Word(WaitEnd::NeverUsed));
    if !never_used && (found.state() != WaitpointState::Pending || !own_life) {
        return Err(EngineError::State(StateKind::WaitpointNotPending));
    }
    if !found.is_alive(world.now) {
        return Err(EngineError::State(StateKind::PendingWaitpointExpired));
    }
    Ok(found)
}

/// A waitpoint as it begins, without a token.
pub(super) fn fresh(
    world: &World,
    row: &ExecutionRow,
    id: WaitpointId,
    waitpoint_key: &str,
) -> Result<WaitpointRow, EngineError> {
    if waitpoint(world, row.key, id.0).is_some() {
        return Err(EngineError::Conflict(ConflictKind::WaitpointAlreadyExists));
    }
    Ok(WaitpointRow {
        key: WaitpointKey { execution: row.key, waitpoint_id: id.0 },
        waitpoint_key: waitpoint_key.into(),
        namespace: row.namespace.clone(),
        open: true,
        suspension: 0,
        generation: row.replay_count(),
        signal_names: Json(Vec::new()),
        signal_count: 0,
        created_at: world.now,
        expires_at: None,
        activated_at: None,
        closed_at: None,
        end: None,
        token_kid: None,
        token_expires_at: None,
        nonce: Arc::from([]),
    })
}

/// What the token of a waitpoint will be made from.
pub(super) fn give_token(
    world: &World,
    waitpoint: &mut WaitpointRow,
    terms: &TokenTerms,
    kid: Arc<str>,
    nonce: &[u8; NONCE_BYTES],
) {
    waitpoint.token_kid = Some(kid);
    waitpoint.token_expires_at = terms.ttl_ms.map(|ms| world.now.after_ms(ms));
    waitpoint.nonce = Arc::from(*nonce);
}

pub(super) fn check_room(open: usize) -> Result<(), EngineError> {
    if open <= limits::WAITPOINTS {
        return Ok(());
    }
    let most = limits::WAITPOINTS;
    let detail = format!("the execution would have {open} open waitpoints, the limit is {most}");
    Err(EngineError::invalid(detail))
}

/// One waitpoint for every key that the condition names, and no others.
fn check_keys(args: &SuspendArgs, bound: &[WaitpointRow]) -> Result<(), EngineError> {
    let wanted = args.condition.waitpoint_keys();
    let have: BTreeSet<&str> = bound.iter().map(|one| &*one.waitpoint_key).collect();
    let refuse = |detail: String| Err(EngineError::invalid(detail));
    if let Some(missing) = wanted.difference(&have).next() {
        return refuse(format!(
            "the condition names the waitpoint {missing:?}, which is not bound"
        ));
    }
    if let Some(extra) = have.difference(&wanted).next() {
        return refuse(format!("the condition does not name the waitpoint {extra:?}"));
    }
    if have.len() < bound.len() {
        return refuse("two waitpoints have the same key".into());
    }
    Ok(())
}
