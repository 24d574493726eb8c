//! What a sequence does next: drawn from its seed and from the handles that it was given.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ff_core::backend::{CapabilitySet, Handle};
use ff_core::contracts::{
    CancelExecutionArgs, ChangePriorityArgs, ClaimArgs, CreateExecutionArgs, FailArgs,
    FailureClass, Idempotency, IdempotencyScope, ListExecutionsArgs, ListOrder, PauseLaneArgs,
    ReplayExecutionArgs, RescheduleArgs, RevokeLeaseArgs, SetTagsArgs, Submission,
};
use ff_core::engine::clock::{Clock, ManualClock};
use ff_core::policy::{Backoff, ExecutionPolicy};
use ff_core::state::PublicState;
use ff_core::types::{
    CancelSource, ExecutionId, LaneId, LeaseEpoch, Namespace, TimestampMs, WorkerId,
    WorkerInstanceId,
};
use uuid::Uuid;

use super::step::{Given, Step};
use super::stream::StreamStep;
use super::waits::{self, WaitStep};

/// Few ids, lanes and keys, so that calls meet each other.
const IDS: u64 = 8;
const LANES: u64 = 2;
const KEYS: [&str; 2] = ["key-a", "key-b"];
/// What work asks of workers, and what these can do; the last requirement nobody meets.
const REQUIRED: [&str; 5] = ["gpu", "zone=a", "cuda>=12", "cuda<12.1", "cuda>13"];
const OFFERED: [&str; 3] = ["gpu", "zone=a", "cuda=12.0"];

pub struct Sequence {
    seed: u64,
    pub(super) rng: Rng,
    clock: Arc<ManualClock>,
    /// Every handle ever granted: most of them are stale, which is the point.
    handles: Vec<Handle>,
    /// What was put down last, or given a waitpoint.
    waiting: Option<ExecutionId>,
    /// How far a sequence that is about waits has come with one.
    wait_stage: u32,
    /// The members of every flow that was forked from another.
    forked: Vec<ExecutionId>,
}

impl Sequence {
    pub fn new(seed: u64, clock: Arc<ManualClock>) -> Self {
        Self {
            seed,
            rng: Rng::with_seed(seed),
            clock,
            handles: Vec::new(),
            waiting: None,
            wait_stage: 0,
            forked: Vec::new(),
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    pub(super) fn handles(&self) -> &[Handle] {
        &self.handles
    }

    pub(super) fn forked(&self) -> &[ExecutionId] {
        &self.forked
    }

    pub(super) fn now(&self) -> TimestampMs {
        self.clock.now()
    }

    pub fn namespace(&self) -> Namespace {
        Namespace::new(format!("model-{}", self.seed))
    }

    /// Every other sequence works as a caller that is confined to its namespace.
    pub fn is_confined(&self) -> bool {
        !self.seed.is_multiple_of(2)
    }

    pub fn lanes(&self) -> impl Iterator<Item = LaneId> {
        (0..LANES).map(|at| self.lane_id(at))
    }

    pub fn learn(&mut self, given: Given) {
        self.handles.extend(given.handles);
        self.forked.extend(given.forked);
    }

    /// A third of the calls are of the kind that the sequence is about, so that all of them meet.
    pub fn next(&mut self) -> Step {
        if self.rng.u32(..3) == 0 {
            match self.seed / 2 % 7 {
                0 => return Step::Flow(self.flow_step()),
                1 => return self.about_limits(),
                2 => return Step::Bulk(self.bulk_step()),
                3 => return Step::Schedule(self.schedule_step()),
                4 => return Step::Webhook(self.webhook_step()),
                5 => return self.next_of_wait(),
                _ => {}
            }
        }
        match self.rng.u32(..100) {
            0..16 => self.submit(),
            16..20 => Step::Create(Box::new(self.create())),
            20..38 => Step::Claim(self.claim()),
            38..60 => self.holder(),
            60..69 => self.wait_step(),
            69..85 => self.operator(),
            85..87 => self.lane(),
            87..89 => Step::Stream(self.worker()),
            89..92 => Step::Flow(self.flow_step()),
            92..94 => Step::Schedule(self.schedule_step()),
            94..96 => self.about_limits(),
            96 => Step::Bulk(self.bulk_step()),
            97 => Step::Webhook(self.webhook_step()),
            _ => self.read(),
        }
    }

    fn about_limits(&mut self) -> Step {
        let id = self.id();
        Step::Limit(self.limit_step(id))
    }

    /// Reads that together show all that the sequence can have touched. The first of each group
    /// says whether there is anything to see for the others.
    pub fn everything(&self) -> Vec<Vec<Step>> {
        let namespace = Some(self.namespace());
        let list = Step::List(ListExecutionsArgs { namespace, ..ListExecutionsArgs::default() });
        let mut groups = vec![vec![list]];
        for id in (0..IDS).map(|at| self.id_at(at)) {
            let mut steps = Self::all_of(&id);
            steps.extend(StreamStep::everything(&id).into_iter().map(Step::Stream));
            steps.extend(WaitStep::everything(&id).map(Step::Wait));
            groups.push(steps);
        }
        groups.extend(self.every_flow());
        groups.extend(self.every_schedule().map(|step| vec![Step::Schedule(step)]));
        groups.push(self.every_limit().into_iter().map(Step::Limit).collect());
        groups.push(self.every_bulk().map(Step::Bulk).collect());
        groups.push(self.every_webhook().into_iter().map(Step::Webhook).collect());
        groups
    }

    /// Reads that every execution has.
    pub(super) fn all_of(id: &ExecutionId) -> Vec<Step> {
        vec![
            Step::Describe(id.clone()),
            Step::Explain(id.clone()),
            Step::History(id.clone(), 0, 1_000),
            Step::Payload(id.clone()),
            Step::Result(id.clone()),
        ]
    }

    fn id_at(&self, at: u64) -> ExecutionId {
        let partition = (self.seed % 256) as u16;
        ExecutionId::from_parts(partition, Uuid::from_u64_pair(self.seed, at + 1))
    }

    pub(super) fn id(&mut self) -> ExecutionId {
        if self.rng.u32(..5) == 0 {
            return self.any_node();
        }
        let at = self.rng.u64(..IDS);
        self.id_at(at)
    }

    fn lane_id(&self, at: u64) -> LaneId {
        LaneId::new(format!("model-{}-{at}", self.seed))
    }

    pub(super) fn any_lane(&mut self) -> LaneId {
        let at = self.rng.u64(..LANES);
        self.lane_id(at)
    }

    pub(super) fn some<T>(&mut self, percent: u32, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.rng.u32(..100) < percent).then(|| draw(self))
    }

    /// A wait that the clock's usual steps straddle; zero now and then.
    pub(super) fn wait(&mut self) -> Duration {
        let waits = [0, 1, 400, 1_000, 5_000, 30_000];
        Duration::from_millis(waits[self.rng.usize(..waits.len())])
    }

    fn submit(&mut self) -> Step {
        let count = self.rng.usize(1..=3);
        Step::Submit((0..count).map(|_| self.submission()).collect())
    }

    fn submission(&mut self) -> Submission {
        let at = self.rng.u64(..IDS);
        let id = self.id_at(at);
        let idempotency = self.some(30, |own| Idempotency {
            key: KEYS[own.rng.usize(..KEYS.len())].to_owned(),
            scope: match own.rng.u32(..3) {
                0 => IdempotencyScope::Default,
                1 => IdempotencyScope::Ttl(own.wait()),
                _ => IdempotencyScope::UntilFinished,
            },
        });
        let payload = vec![7; self.rng.usize(..3)];
        let mut item = Submission {
            namespace: self.namespace(),
            idempotency,
            priority: self.rng.i32(-1..4),
            policy: Some(self.policy()),
            delay: self.some(25, Self::wait),
            deadline: self.some(20, Self::wait),
            ..Submission::new(self.any_lane().0, "kind").id(id).payload(payload)
        };
        if self.rng.u32(..4) == 0 {
            item = item.tag("model.tag", "1");
        }
        // One of them is refused on its own, beside others that are not.
        if self.rng.u32(..20) == 0 {
            item.execution_kind.clear();
        }
        item
    }

    /// Always without jitter, so that both backends schedule the same moment.
    pub(super) fn policy(&mut self) -> ExecutionPolicy {
        let mut policy = ExecutionPolicy::default();
        policy.retry_policy.max_retries = self.rng.u32(..3);
        policy.retry_policy.backoff = match self.rng.bool() {
            true => Backoff::Fixed { delay_ms: self.wait().as_millis() as u64 },
            false => Backoff::Exponential {
                initial_delay_ms: 100,
                max_delay_ms: 1_000,
                multiplier: 3.0,
                jitter: false,
            },
        };
        if self.rng.u32(..5) == 0 {
            policy.retry_policy.retryable_categories = ["network".to_owned()].into();
        }
        policy.timeout_policy.max_reclaim_count = self.rng.u32(..3);
        policy.timeout_policy.attempt_timeout_ms =
            self.some(25, |own| own.wait().as_millis() as u64);
        policy.timeout_policy.execution_deadline_ms = self.some(10, |_| 60_000);
        policy.max_replay_count = self.some(50, |own| own.rng.u32(..2));
        if self.rng.u32(..4) == 0 {
            policy.budget_ids = vec![super::limits::BUDGET.to_owned()];
        }
        if self.rng.u32(..6) == 0 {
            policy.budget_estimate = self.amounts();
        }
        let most = if self.rng.u32(..6) == 0 { 500 } else { 12 };
        policy.stream_policy.max_frames = self.rng.u64(1..most);
        policy.stream_policy.max_early_frames = self.rng.u64(..4);
        if self.rng.u32(..5) == 0 {
            let required = REQUIRED[self.rng.usize(..REQUIRED.len())].to_owned();
            policy.routing_requirements.required_capabilities = [required].into();
        }
        policy
    }

    fn create(&mut self) -> CreateExecutionArgs {
        let at = self.rng.u64(..IDS);
        let execution_id = self.id_at(at);
        let now = self.clock.now();
        CreateExecutionArgs {
            partition_id: execution_id.partition(),
            execution_id,
            namespace: self.namespace(),
            lane_id: self.any_lane(),
            execution_kind: "created".into(),
            input_payload: b"made".to_vec(),
            payload_encoding: self.some(50, |_| "text".into()),
            priority: self.rng.i32(..4),
            creator_identity: "model".into(),
            idempotency_key: self.some(20, |own| KEYS[own.rng.usize(..KEYS.len())].into()),
            tags: Default::default(),
            policy: Some(self.policy()),
            delay_until: self.some(30, |own| now.after(own.wait())),
            execution_deadline_at: self.some(20, |own| now.after(own.wait())),
            now,
        }
    }

    /// What somebody can do: nothing, or something of each kind.
    pub(super) fn offered(&mut self) -> Vec<String> {
        let offered = OFFERED.iter().filter(|_| self.rng.bool());
        offered.map(ToString::to_string).collect()
    }

    fn claim(&mut self) -> ClaimArgs {
        let lanes = match self.rng.u32(..4) {
            0 => self.lanes().collect(),
            1 => vec![self.schedule_lane()],
            _ => vec![self.any_lane()],
        };
        ClaimArgs {
            lanes,
            capabilities: CapabilitySet::new(self.offered()),
            worker_id: WorkerId::new("worker"),
            worker_instance_id: WorkerInstanceId::new(format!("w{}", self.rng.u32(..2))),
            lease_ttl_ms: [1, 1_000, 10_000, 3_600_000][self.rng.usize(..4)],
            max: self.rng.usize(1..4),
            wait: Duration::ZERO,
        }
    }

    /// A call by somebody who holds, or once held, a lease.
    fn holder(&mut self) -> Step {
        if self.handles.is_empty() {
            return Step::Claim(self.claim());
        }
        // Mostly one of the newest, which has the best chance to stand.
        let newest = self.handles.len().min(3);
        let back = match self.rng.u32(..4) {
            0 => self.rng.usize(..self.handles.len()),
            _ => self.rng.usize(..newest),
        };
        let handle = self.handles[self.handles.len() - 1 - back].clone();
        match self.rng.u32(..20) {
            0..3 => {
                let result = self.some(70, |own| vec![9; own.rng.usize(..3)]);
                Step::Complete(handle, result)
            }
            3..7 => Step::Fail(handle, self.failure()),
            7 => Step::Renew(self.handles.iter().rev().take(4).cloned().collect()),
            8 => {
                let percent = self.some(80, |own| own.rng.u8(..=101));
                Step::Progress(handle, percent, self.some(50, |_| "going".into()))
            }
            9 => Step::Cancel(handle, "enough".into()),
            10..12 => Step::Delay(handle, self.wait()),
            12 => Step::Limit(self.report(handle)),
            _ => Step::Stream(self.says(handle)),
        }
    }

    /// Suspends, signals or resumes: the newest handle, and mostly what waits or was claimed last.
    fn wait_step(&mut self) -> Step {
        let any = self.id();
        let newest = self.handles.last().cloned();
        let id = match self.rng.u32(..8) {
            0..4 => self.waiting.clone(),
            4..6 => newest.as_ref().map(Handle::execution_id),
            _ => None,
        };
        let step = waits::draw(&mut self.rng, self.seed, newest, id.unwrap_or(any));
        self.waiting = step.puts_down().or(self.waiting.take());
        Step::Wait(step)
    }

    /// Takes work, puts it down, and signals it a few times. Left to chance, most signals would
    /// find nobody who waits.
    fn next_of_wait(&mut self) -> Step {
        self.wait_stage = (self.wait_stage + 1) % 7;
        match (self.wait_stage, self.handles.last().cloned(), self.waiting.clone()) {
            (1, ..) => self.submit(),
            (2, ..) => {
                let lanes = self.lanes().collect();
                let capabilities = CapabilitySet::new(OFFERED);
                let lease_ttl_ms = 3_600_000;
                Step::Claim(ClaimArgs { lanes, capabilities, lease_ttl_ms, ..self.claim() })
            }
            (3, Some(handle), _) => {
                let step = waits::put_down(&mut self.rng, self.seed, handle);
                self.waiting = step.puts_down();
                Step::Wait(step)
            }
            (4.., _, Some(id)) => Step::Wait(waits::bear(&mut self.rng, self.seed, id)),
            _ => self.wait_step(),
        }
    }

    fn failure(&mut self) -> FailArgs {
        FailArgs {
            reason: "it broke".into(),
            category: if self.rng.bool() { "network".into() } else { "logic".into() },
            class: match self.rng.u32(..4) {
                0 => FailureClass::Fatal,
                _ => FailureClass::Retryable,
            },
        }
    }

    fn operator(&mut self) -> Step {
        let any = self.id();
        let newest = self.handles.last().map(Handle::execution_id);
        // What was claimed last is the most likely to be running.
        let execution_id = newest.filter(|_| self.rng.bool()).unwrap_or(any);
        let now = self.clock.now();
        match self.rng.u32(..12) {
            0..2 => Step::CancelExecution(self.cancel(execution_id)),
            2..4 => Step::RevokeLease(RevokeLeaseArgs {
                execution_id,
                expected_lease_id: self.some(20, |_| "another lease".into()),
                worker_instance_id: WorkerInstanceId::new(["", "w0", "w1"][self.rng.usize(..3)]),
                reason: "model".into(),
            }),
            4..6 => Step::ChangePriority(ChangePriorityArgs {
                execution_id,
                new_priority: self.rng.i32(-1..5),
                lane_id: self.any_lane(),
                now,
            }),
            6..9 => Step::Replay(ReplayExecutionArgs { execution_id, now }),
            9..11 => Step::Reschedule(RescheduleArgs { execution_id, delay: self.wait() }),
            _ => {
                let value = self.some(60, |own| own.rng.u32(..2).to_string());
                let tags = [("model.tag".to_owned(), value)].into();
                Step::SetTags(SetTagsArgs { execution_id, tags })
            }
        }
    }

    fn cancel(&mut self, execution_id: ExecutionId) -> CancelExecutionArgs {
        CancelExecutionArgs {
            execution_id,
            reason: "model".into(),
            source: match self.rng.bool() {
                true => CancelSource::OperatorOverride,
                false => CancelSource::LeaseHolder,
            },
            lease_id: None,
            lease_epoch: self.some(50, |own| LeaseEpoch(own.rng.u64(..4))),
            attempt_id: None,
            now: self.clock.now(),
        }
    }

    /// Resumes more often than it pauses, so that work goes on.
    fn lane(&mut self) -> Step {
        let lane_id = self.any_lane();
        if self.rng.u32(..3) > 0 {
            return Step::ResumeLane(lane_id);
        }
        Step::PauseLane(PauseLaneArgs { lane_id, reason: "model".into(), by: "me".into() })
    }

    fn read(&mut self) -> Step {
        let id = self.id();
        match self.rng.u32(..10) {
            8.. => Step::Stream(self.listens(id)),
            0..2 => Step::Describe(id),
            2 => Step::Explain(id),
            3 => Step::History(id, self.rng.u64(..3), self.rng.usize(1..4)),
            4 => Step::Payload(id),
            5 => Step::Result(id),
            6 if self.is_confined() => Step::Counts(vec![self.namespace()]),
            _ => Step::List(self.list()),
        }
    }

    fn list(&mut self) -> ListExecutionsArgs {
        let states = [PublicState::Waiting, PublicState::Active, PublicState::Completed];
        ListExecutionsArgs {
            namespace: Some(self.namespace()),
            lane_id: self.some(50, Self::any_lane),
            states: self.some(40, |own| vec![states[own.rng.usize(..3)]]).unwrap_or_default(),
            tag: self.some(20, |_| ("model.tag".into(), "1".into())),
            created_before: self.some(30, |own| own.clock.now()),
            order: if self.rng.bool() { ListOrder::OldestFirst } else { ListOrder::NewestFirst },
            limit: self.rng.usize(1..6),
            ..ListExecutionsArgs::default()
        }
    }
}
