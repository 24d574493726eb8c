//! The calls of a sequence that suspend, signal and resume.

use std::time::Duration;

use fastrand::Rng;
use ff_core::backend::Handle;
use ff_core::condition::{Distinct, ResumeCondition, SignalMatcher};
use ff_core::contracts::{
    CreateWaitpointArgs, DeliverSignalArgs, ListSignalsArgs, ListWaitpointsArgs, ResumeArgs,
    SignalTarget, SuspendArgs, TimeoutBehavior, TokenTerms, WaitpointBinding,
};
use ff_core::engine_backend::{EngineBackend, SuspensionOperations};
use ff_core::token::WaitpointToken;
use ff_core::types::{ExecutionId, SignalId, SuspensionId, WaitpointId};
use uuid::Uuid;

use super::step::text;

#[derive(Clone, Debug)]
pub enum WaitStep {
    Suspend(Handle, Box<SuspendArgs>),
    CreateWaitpoint(Handle, CreateWaitpointArgs),
    Observe(Handle),
    Signal(Box<DeliverSignalArgs>),
    SignalByToken(Box<Bearer>),
    Resume(ResumeArgs),
    Suspension(ExecutionId),
    Waitpoints(ExecutionId),
    Signals(ExecutionId),
}

/// Few names, so that calls meet each other.
const KEYS: [&str; 2] = ["a", "b"];
const NAMES: [&str; 2] = ["go", "stop"];
const IDS: u64 = 12;

impl WaitStep {
    pub fn handle_mut(&mut self) -> Option<&mut Handle> {
        match self {
            Self::Suspend(handle, _) | Self::CreateWaitpoint(handle, _) | Self::Observe(handle) => {
                Some(handle)
            }
            _ => None,
        }
    }

    pub async fn run(&self, on: &dyn EngineBackend) -> String {
        match self.clone() {
            Self::Suspend(handle, args) => text(on, &on.suspend(&handle, *args).await),
            Self::CreateWaitpoint(handle, args) => {
                text(on, &on.create_waitpoint(&handle, args).await)
            }
            Self::Observe(handle) => text(on, &on.observe_signals(&handle).await),
            Self::Signal(args) => text(on, &on.deliver_signal(*args).await),
            Self::SignalByToken(bearer) => bearer.signal(on).await,
            Self::Resume(args) => text(on, &on.resume(args).await),
            Self::Suspension(id) => text(on, &on.describe_suspension(&id).await),
            Self::Waitpoints(id) => {
                let args = ListWaitpointsArgs { execution_id: Some(id), ..Default::default() };
                text(on, &on.list_waitpoints(args).await)
            }
            Self::Signals(execution_id) => {
                let args = ListSignalsArgs { execution_id, after: 0, limit: 0 };
                text(on, &on.list_signals(args).await)
            }
        }
    }

    /// The execution that waits, or will, if the call is not refused.
    pub fn puts_down(&self) -> Option<ExecutionId> {
        match self {
            Self::Suspend(handle, _) | Self::CreateWaitpoint(handle, _) => {
                Some(handle.execution_id())
            }
            _ => None,
        }
    }

    /// Reads that show all that there is of an execution's waits.
    pub fn everything(id: &ExecutionId) -> [Self; 3] {
        [Self::Suspension(id.clone()), Self::Waitpoints(id.clone()), Self::Signals(id.clone())]
    }
}

/// Somebody who shows the token of a waitpoint, or what looks like one. Each backend draws its
/// tokens, so a sequence names them by the place of their waitpoint.
#[derive(Clone, Debug)]
pub struct Bearer {
    at: usize,
    forgery: Forgery,
    args: DeliverSignalArgs,
}

#[derive(Clone, Copy, Debug)]
enum Forgery {
    None,
    OtherKey,
    OtherClaims,
    OtherMac,
    Cut,
}

impl Bearer {
    async fn signal(self, on: &dyn EngineBackend) -> String {
        let SignalTarget::Waitpoint { execution_id, .. } = self.args.target.clone() else {
            unreachable!("it was drawn for a waitpoint");
        };
        let args = ListWaitpointsArgs {
            execution_id: Some(execution_id.clone()),
            ..ListWaitpointsArgs::default()
        };
        let listed = match on.list_waitpoints(args).await {
            Ok(page) if !page.waitpoints.is_empty() => page.waitpoints,
            none => return text(on, &none),
        };
        let waitpoint_id = listed[self.at % listed.len()].waitpoint_id;
        let token = match on.read_waitpoint_token(&execution_id, waitpoint_id).await {
            Ok(Some(token)) => self.forgery.of(token.as_str()),
            none => return text(on, &none),
        };
        let target = SignalTarget::Token(WaitpointToken::new(token));
        text(on, &on.deliver_signal(DeliverSignalArgs { target, ..self.args }).await)
    }
}

impl Forgery {
    fn of(self, token: &str) -> String {
        let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
        let other = |text: &str| {
            let (head, tail) = text.split_at(text.len() / 2);
            let first = if tail.starts_with('A') { 'B' } else { 'A' };
            format!("{head}{first}{}", &tail[1..])
        };
        match self {
            Self::None => {}
            Self::OtherKey => parts[1] = if parts[1] == "k0" { "k1" } else { "k0" }.to_owned(),
            Self::OtherClaims => parts[2] = other(&parts[2]),
            Self::OtherMac => parts[3] = other(&parts[3]),
            Self::Cut => drop(parts[3].pop()),
        }
        parts.join(".")
    }
}

/// What a sequence does about waits next.
pub fn draw(rng: &mut Rng, seed: u64, handle: Option<Handle>, id: ExecutionId) -> WaitStep {
    let mut draw = Draw { rng, seed };
    match (draw.rng.u32(..15), handle) {
        (0..4, Some(handle)) => WaitStep::Suspend(handle, Box::new(draw.suspension())),
        (4..6, Some(handle)) => WaitStep::CreateWaitpoint(handle, draw.waitpoint()),
        (6, Some(handle)) => WaitStep::Observe(handle),
        (7, _) => {
            let (by, reason) = ("model".into(), String::new());
            WaitStep::Resume(ResumeArgs { execution_id: id, by, reason, delay_ms: draw.ms() })
        }
        (8, _) => WaitStep::everything(&id)[draw.rng.usize(..3)].clone(),
        (9..12, _) => WaitStep::SignalByToken(Box::new(draw.bearer(id))),
        _ => WaitStep::Signal(Box::new(draw.signal(id))),
    }
}

/// A wait, or a waitpoint for one.
pub fn put_down(rng: &mut Rng, seed: u64, handle: Handle) -> WaitStep {
    let mut draw = Draw { rng, seed };
    match draw.rng.bool() {
        true => WaitStep::Suspend(handle, Box::new(draw.suspension())),
        false => WaitStep::CreateWaitpoint(handle, draw.waitpoint()),
    }
}

/// Somebody outside signals this execution.
pub fn bear(rng: &mut Rng, seed: u64, id: ExecutionId) -> WaitStep {
    WaitStep::SignalByToken(Box::new(Draw { rng, seed }.bearer(id)))
}

struct Draw<'r> {
    rng: &'r mut Rng,
    seed: u64,
}

impl Draw<'_> {
    fn id(&mut self) -> Uuid {
        Uuid::from_u64_pair(self.seed, 1_000 + self.rng.u64(..IDS))
    }

    fn one_of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.rng.usize(..texts.len())]
    }

    /// Times that the clock's usual steps straddle.
    fn ms(&mut self) -> u64 {
        [0, 1, 400, 5_000, 30_000][self.rng.usize(..5)]
    }

    fn matcher(&mut self) -> SignalMatcher {
        match self.rng.bool() {
            true => SignalMatcher::Any,
            false => SignalMatcher::Name(self.one_of(&NAMES).into()),
        }
    }

    fn condition(&mut self) -> ResumeCondition {
        let single = |own: &mut Self, key: &str| ResumeCondition::Single {
            waitpoint_key: key.into(),
            matcher: own.matcher(),
        };
        match self.rng.u32(..8) {
            0 => ResumeCondition::OperatorOnly,
            1 => ResumeCondition::TimeoutOnly,
            2 => ResumeCondition::AllOf { members: KEYS.map(|key| single(self, key)).to_vec() },
            3 => ResumeCondition::Count {
                n: self.rng.u32(1..=2),
                distinct: [Distinct::Waitpoints, Distinct::Signals, Distinct::Sources]
                    [self.rng.usize(..3)],
                matcher: self.matcher(),
                waitpoint_keys: KEYS.map(str::to_owned).to_vec(),
            },
            _ => {
                let key = self.one_of(&KEYS);
                single(self, key)
            }
        }
    }

    fn suspension(&mut self) -> SuspendArgs {
        let mut args = SuspendArgs::new(self.condition());
        args.suspension_id = SuspensionId(self.id());
        for waitpoint in &mut args.waitpoints {
            let drawn = WaitpointId(self.id());
            if let WaitpointBinding::Fresh { waitpoint_id, token, .. } = waitpoint {
                *waitpoint_id = drawn;
                *token = self.terms();
            }
            if self.rng.u32(..3) == 0 {
                *waitpoint = WaitpointBinding::UsePending { waitpoint_id: drawn };
            }
        }
        if self.rng.bool() {
            let behavior = [
                TimeoutBehavior::Fail,
                TimeoutBehavior::Cancel,
                TimeoutBehavior::Expire,
                TimeoutBehavior::AutoResumeWithTimeoutSignal,
                TimeoutBehavior::Escalate,
            ][self.rng.usize(..5)];
            args = args.timeout(Duration::from_millis(self.ms()), behavior);
        }
        if self.rng.u32(..4) == 0 {
            args.resume_delay_ms = self.ms();
        }
        if self.rng.u32(..4) == 0 {
            args = args.idempotency_key("named");
        }
        args
    }

    fn terms(&mut self) -> Option<TokenTerms> {
        let ttl_ms = Some(self.ms()).filter(|ms| *ms > 0);
        match self.rng.u32(..5) {
            0 => None,
            1..3 => Some(TokenTerms { ttl_ms: None }),
            _ => Some(TokenTerms { ttl_ms }),
        }
    }

    fn bearer(&mut self, id: ExecutionId) -> Bearer {
        let forgery = match self.rng.u32(..10) {
            0 => Forgery::OtherKey,
            1 => Forgery::OtherClaims,
            2 => Forgery::OtherMac,
            3 => Forgery::Cut,
            _ => Forgery::None,
        };
        Bearer { at: self.rng.usize(..4), forgery, args: self.signal(id) }
    }

    fn waitpoint(&mut self) -> CreateWaitpointArgs {
        let (key, lifetime) = (self.one_of(&KEYS), Duration::from_millis(self.ms()));
        let signal_names = match self.rng.u32(..3) {
            0 => vec![self.one_of(&NAMES).to_owned()],
            _ => Vec::new(),
        };
        CreateWaitpointArgs {
            waitpoint_id: WaitpointId(self.id()),
            token: self.terms(),
            signal_names,
            ..CreateWaitpointArgs::new(key, lifetime)
        }
    }

    fn signal(&mut self, execution_id: ExecutionId) -> DeliverSignalArgs {
        let waitpoint_id = WaitpointId(self.id());
        let target = SignalTarget::Waitpoint { execution_id, waitpoint_id };
        let (name, source) = (self.one_of(&NAMES), self.one_of(&["ann", "bob"]));
        let mut args = DeliverSignalArgs::new(target, name).source("user", source).payload([0xff]);
        args.signal_id = SignalId(self.id());
        if self.rng.u32(..3) == 0 {
            args.idempotency_key = Some("same".into());
        }
        args
    }
}
