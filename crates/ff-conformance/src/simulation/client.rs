//! The clients, who submit until they are told, and an operator, who meddles.

use std::time::Duration;

use ff_core::contracts::Submission;
use ff_core::policy::{Backoff, ExecutionPolicy};
use ff_core::state::PublicState;
use ff_core::types::ExecutionKey;
use uuid::Uuid;

use super::Simulation;
use super::bus::Event;
use super::history::{Actor, Plan};
use super::message::{Answer, NAMESPACE, Verb};

/// An operator or a worker gives an operation up after so many tries.
const TRIES: u32 = 5;

impl Simulation {
    /// Draws the run's work, and lets it arrive over the first seconds.
    pub(super) fn plan_submissions(&mut self) {
        let mut shared_key: Option<Submission> = None;
        for number in 0..self.config.executions {
            let key = ExecutionKey { partition: 0, id: Uuid::from_u128(self.rng.u128(..)) };
            let mut submission = self.draw_submission(key, number);
            match &shared_key {
                // The same work under another id, or other work under the same key.
                Some(first) if self.rng.u32(0..3) == 0 => {
                    submission.idempotency.clone_from(&first.idempotency);
                    if self.rng.bool() {
                        submission.lane_id = first.lane_id.clone();
                        submission.input_payload.clone_from(&first.input_payload);
                    }
                }
                None if self.rng.u32(0..3) == 0 => {
                    submission = submission.idempotency_key("order");
                    shared_key = Some(submission.clone());
                }
                _ => {}
            }
            let create =
                submission.delay.is_none() && submission.deadline.is_none() && self.rng.bool();
            self.history.plans.insert(key, Plan { submission, create });
            let op = self.history.invoke(Actor::Client, Verb::Submit(key));
            let at = self.rng.u64(0..2_500);
            self.bus.after(at, Event::Timeout(op));
        }
    }

    fn draw_submission(&mut self, key: ExecutionKey, number: usize) -> Submission {
        let lane = if self.rng.bool() { "red" } else { "blue" };
        let mut submission = Submission::new(lane, "task")
            .id(key.execution_id())
            .namespace(NAMESPACE)
            .payload(format!("payload {number} {}", self.rng.u64(..)))
            .priority(self.rng.i32(0..5));
        if self.rng.u32(0..4) == 0 {
            submission = submission.delay(Duration::from_millis(self.rng.u64(1..3_000)));
        }
        if self.rng.u32(0..8) == 0 {
            submission = submission.deadline(Duration::from_millis(self.rng.u64(500..12_000)));
        }
        if self.rng.u32(0..4) > 0 {
            submission = submission.policy(self.draw_policy());
        }
        submission
    }

    fn draw_policy(&mut self) -> ExecutionPolicy {
        let mut policy = ExecutionPolicy::default();
        policy.retry_policy.max_retries = self.rng.u32(0..4);
        policy.retry_policy.backoff = if self.rng.bool() {
            Backoff::Fixed { delay_ms: self.rng.u64(0..1_000) }
        } else {
            Backoff::Exponential {
                initial_delay_ms: 200,
                max_delay_ms: 1_000,
                multiplier: 2.0,
                jitter: self.rng.bool(),
            }
        };
        policy.timeout_policy.max_reclaim_count = self.rng.u32(0..6);
        if self.rng.u32(0..5) == 0 {
            policy.timeout_policy.attempt_timeout_ms = Some(self.rng.u64(300..3_000));
        }
        policy.stream_policy.max_frames = self.rng.u64(1..8);
        if self.rng.u32(0..3) == 0 {
            policy.routing_requirements.required_capabilities.insert("gpu".into());
        }
        policy
    }

    /// No answer came. The operation may have happened or not, so the same one is sent again.
    pub(super) fn ask_again(&mut self, op: usize) {
        let asked = &self.history.ops[op];
        if asked.closed {
            return;
        }
        if let Some(delay) = self.asleep(asked.actor) {
            self.bus.after(delay, Event::Timeout(op));
            return;
        }
        if asked.actor != Actor::Client && asked.tries >= TRIES {
            self.history.ops[op].closed = true;
            self.worker_gives_up(op);
            return;
        }
        self.send(op);
    }

    /// An answer arrives.
    pub(super) fn hear(&mut self, op: usize, answer: Answer) {
        let actor = self.history.ops[op].actor;
        if let Some(delay) = self.asleep(actor) {
            self.bus.after(delay, Event::Reply { op, answer });
            return;
        }
        if self.is_gone(actor) {
            return;
        }
        let first = !self.history.ops[op].closed;
        self.history.ops[op].closed = true;
        self.history.ops[op].acked.push(answer.clone());
        if first {
            self.acknowledge_members(op, &answer);
            self.worker_hears(op, &answer);
        }
    }

    /// The operator looks at something, or changes it.
    pub(super) fn operator_wakes(&mut self) {
        let rest = self.rng.u64(20..250);
        self.bus.after(rest, Event::OperatorWakes);
        if !self.faulty {
            self.let_everything_go();
            return;
        }
        let known: Vec<ExecutionKey> = self.history.plans.keys().copied().collect();
        let key = known[self.rng.usize(0..known.len())];
        let state =
            self.store.read(|tables| tables.executions.get(&key).map(|row| row.public_state));
        let finished = state.is_some_and(|state| state.is_finished());
        // What was skipped would wait for parents that nobody runs again.
        let skipped = state == Some(PublicState::Skipped);
        let flow = self.history.flows.iter().find(|flow| flow.members.contains(&key));
        let flow = flow.map(|flow| flow.key);
        let verb = match self.rng.u32(0..20) {
            _ if finished && flow.is_some() && self.rng.u32(0..4) == 0 => Verb::ReplayFlow(key),
            _ if skipped => Verb::Read(key),
            // A finished execution is mostly run again; elsewhere that must be refused.
            _ if finished && self.rng.bool() => Verb::Replay(key),
            0 => Verb::Cancel(key),
            1 | 2 => Verb::ChangePriority(key, self.rng.i32(0..9)),
            3..6 => Verb::Reschedule(key, Duration::from_millis(self.rng.u64(0..1_500))),
            6 | 7 => Verb::Revoke(key),
            8 if flow.is_none() => Verb::Replay(key),
            9 if self.rng.u32(0..4) > 0 => match flow {
                Some(flow) => self.draw_flow_verb(flow),
                None => Verb::Read(key),
            },
            10 => self.draw_meddling(key),
            11 if self.rng.bool() => self.draw_bulk(),
            12 if self.rng.bool() => self.draw_limit().unwrap_or(Verb::Read(key)),
            _ => Verb::Read(key),
        };
        let op = self.history.invoke(Actor::Operator, verb);
        self.send(op);
    }
}
