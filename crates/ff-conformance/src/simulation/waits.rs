//! Executions that wait, and those outside who signal them: too early, too late, twice, with tokens
//! of keys that have been rotated away.

use std::sync::OnceLock;
use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::condition::ResumeCondition;
use ff_core::contracts::{
    CreateWaitpointArgs, DeliverSignalArgs, SignalOutcome, SignalTarget, SuspendArgs,
    TimeoutBehavior, TokenTerms, WaitpointBinding,
};
use ff_core::engine::prepare_deliver_signal;
use ff_core::limits::Limits;
use ff_core::operations::suspension::{
    CreateWaitpoint, DeliverSignal, KnownKeys, Resume, RotateWaitpointSecret, Suspend, Suspended,
};
use ff_core::rows::WaitpointRow;
use ff_core::state::LifecyclePhase;
use ff_core::token::{Keyring, Secret, WaitpointSecret, WaitpointSecrets};
use ff_core::types::{ExecutionKey, SignalId, SuspensionId, WaitpointId};
use uuid::Uuid;

use super::Simulation;
use super::bus::Event;
use super::history::Actor;
use super::message::{Answer, Verb};

/// The signal that every wait of a run is for.
pub(super) const GO: &str = "go";
const KEY: &str = "gate";
const KIDS: [&str; 4] = ["k0", "k1", "k2", "k3"];

/// The secrets of every server of every run.
fn keyring() -> &'static Keyring {
    static KEYRING: OnceLock<Keyring> = OnceLock::new();
    KEYRING.get_or_init(|| {
        let secret = |(at, kid): (usize, &&str)| {
            WaitpointSecret::new(*kid, Secret::new([at as u8; 32])).expect("a good secret")
        };
        let secrets = KIDS.iter().enumerate().map(secret);
        Keyring::new(&WaitpointSecrets::new(secrets).expect("different ids"))
    })
}

fn keys() -> KnownKeys {
    KnownKeys(keyring().checks().map(|(kid, check)| (kid.clone(), check.clone())).collect())
}

pub(super) fn suspend(handle: Handle, args: SuspendArgs, nonce: u128) -> Suspend {
    Suspend { handle, args, keys: keys(), nonce: nonce.to_be_bytes() }
}

pub(super) fn create(handle: Handle, args: CreateWaitpointArgs, nonce: u128) -> CreateWaitpoint {
    CreateWaitpoint { handle, args, keys: keys(), nonce: nonce.to_be_bytes() }
}

pub(super) fn deliver(args: DeliverSignalArgs) -> DeliverSignal {
    prepare_deliver_signal(args, keyring(), &Limits::default()).expect("tokens are not forged here")
}

pub(super) fn resume(execution: ExecutionKey) -> Resume {
    Resume { execution, by: "operator".into(), reason: "".into(), delay_ms: 0 }
}

pub(super) fn rotate(kid: usize, grace_ms: u64) -> RotateWaitpointSecret {
    let kid = KIDS[kid];
    let check = keys().check_of(kid).cloned().expect("a known key");
    RotateWaitpointSecret { kid: kid.into(), check, grace_ms }
}

pub(super) fn suspended(answer: Suspended) -> Answer {
    match answer {
        Suspended::Put(_, waitpoints) => Answer::Waitpoints(waitpoints),
        Suspended::AtOnce(_, signals) => {
            Answer::AtOnce(signals.iter().map(|signal| SignalId(signal.signal_id)).collect())
        }
    }
}

pub(super) fn signalled(outcome: SignalOutcome) -> Answer {
    match outcome {
        SignalOutcome::Accepted { signal_id, .. } => Answer::Signalled(signal_id),
        SignalOutcome::Duplicate { existing_signal_id, .. } => {
            Answer::Signalled(existing_signal_id)
        }
    }
}

impl Simulation {
    /// What a worker does with work that will wait: it suspends at once, or first makes the
    /// waitpoint that others may know of before it waits.
    pub(super) fn draw_wait(&mut self, handle: Handle) -> Verb {
        let waitpoint_id = WaitpointId(self.draw_id());
        if self.rng.bool() {
            let lifetime = Duration::from_millis(self.rng.u64(200..6_000));
            let args =
                CreateWaitpointArgs { waitpoint_id, ..CreateWaitpointArgs::new(KEY, lifetime) };
            return Verb::CreateWaitpoint(handle, args);
        }
        self.signal_soon(handle.key(), waitpoint_id, 2_500);
        let token = Some(TokenTerms::default());
        let waitpoint_key = KEY.into();
        let fresh = WaitpointBinding::Fresh { waitpoint_id, waitpoint_key, token };
        let args = self.draw_suspension(fresh);
        Verb::Suspend(handle, Box::new(args))
    }

    pub(super) fn draw_id(&mut self) -> Uuid {
        Uuid::from_u128(self.rng.u128(..))
    }

    fn draw_suspension(&mut self, waitpoint: WaitpointBinding) -> SuspendArgs {
        let mut args = SuspendArgs::new(ResumeCondition::single(KEY, GO)).waitpoints([waitpoint]);
        args.suspension_id = SuspensionId(self.draw_id());
        if self.rng.bool() {
            let behavior = match self.rng.u32(0..5) {
                0 => TimeoutBehavior::Fail,
                1 => TimeoutBehavior::Cancel,
                2 => TimeoutBehavior::Expire,
                3 => TimeoutBehavior::AutoResumeWithTimeoutSignal,
                _ => TimeoutBehavior::Escalate,
            };
            args = args.timeout(Duration::from_millis(self.rng.u64(1..3_000)), behavior);
        }
        if self.rng.u32(0..4) == 0 {
            args.resume_delay_ms = self.rng.u64(1..800);
        }
        if self.rng.u32(0..3) == 0 {
            args = args.idempotency_key("wait");
        }
        args
    }

    /// Some signals that will come within a while, by people who know the waitpoint's name.
    fn signal_soon(&mut self, execution: ExecutionKey, waitpoint_id: WaitpointId, within: u64) {
        for _ in 0..self.rng.u32(0..3) {
            let execution_id = execution.execution_id();
            self.send_signal(SignalTarget::Waitpoint { execution_id, waitpoint_id }, within);
        }
    }

    fn send_signal(&mut self, target: SignalTarget, within: u64) {
        let name = if self.rng.u32(0..4) == 0 { "stop" } else { GO };
        // With a token only the names that it allows can be asked for.
        let name = if matches!(target, SignalTarget::Token(_)) { GO } else { name };
        let mut args = DeliverSignalArgs::new(target, name).source("sim", "outside");
        args.signal_id = SignalId(self.draw_id());
        if self.rng.bool() {
            args.idempotency_key = Some(format!("key {}", self.rng.u32(0..3)));
        }
        let op = self.history.invoke(Actor::Operator, Verb::Signal(Box::new(args)));
        let at = self.rng.u64(0..within);
        self.bus.after(at, Event::Timeout(op));
    }

    /// A worker hears that its waitpoint is there, and waits; or that it is suspended, and hands
    /// the token on. What it does next with the work, if anything.
    pub(super) fn waits_on(&mut self, verb: &Verb, answer: &Answer) -> Option<Verb> {
        match (verb, answer) {
            (Verb::CreateWaitpoint(handle, _), Answer::Waitpoints(made)) => {
                let waitpoint_id = WaitpointId(made.first()?.key.waitpoint_id);
                self.signal_soon(handle.key(), waitpoint_id, 120);
                let args = self.draw_suspension(WaitpointBinding::UsePending { waitpoint_id });
                Some(Verb::Suspend(handle.clone(), Box::new(args)))
            }
            (Verb::Suspend(..), Answer::Waitpoints(made)) => {
                for waitpoint in made {
                    self.hand_token_on(waitpoint);
                }
                None
            }
            (Verb::Suspend(handle, _), Answer::AtOnce(_)) => {
                let result = b"it had what it waited for".as_slice().into();
                Some(Verb::Complete { handle: handle.clone(), result })
            }
            _ => None,
        }
    }

    fn hand_token_on(&mut self, waitpoint: &WaitpointRow) {
        let Some(kid) = &waitpoint.token_kid else { return };
        if let Some(token) = keyring().mint(kid, &waitpoint.claims()) {
            self.send_signal(SignalTarget::Token(token), 2_000);
        }
    }

    /// The operator rotates the key of tokens, or lets something that waits go on.
    pub(super) fn draw_meddling(&mut self, key: ExecutionKey) -> Verb {
        match self.rng.u32(0..3) {
            0 => Verb::Rotate(self.rng.usize(0..KIDS.len()), self.rng.u64(0..2_000)),
            _ => Verb::Resume(key),
        }
    }

    /// Once the faults have stopped, nobody is left waiting.
    pub(super) fn let_everything_go(&mut self) {
        let waiting = |phase| phase == LifecyclePhase::Suspended;
        let suspended: Vec<ExecutionKey> = self.store.read(|tables| {
            let rows = tables.executions.values().filter(|row| waiting(row.phase));
            rows.map(|row| row.key).collect()
        });
        for key in suspended {
            let op = self.history.invoke(Actor::Operator, Verb::Resume(key));
            self.send(op);
        }
    }
}
