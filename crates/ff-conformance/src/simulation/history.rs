//! What everybody asked, what they were told, and what was committed.

use std::collections::BTreeMap;

use ff_core::contracts::Submission;
use ff_core::policy::ExecutionPolicy;
use ff_core::types::ExecutionKey;

use super::extensions::Extension;
use super::flows::FlowPlan;
use super::message::{Answer, Verb};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actor {
    Client,
    Operator,
    Worker { index: usize, incarnation: u32 },
}

/// One logical operation, however often it was sent.
#[derive(Debug)]
pub(super) struct Op {
    pub actor: Actor,
    pub verb: Verb,
    pub tries: u32,
    /// Nobody waits for an answer any more.
    pub closed: bool,
    /// The answers that reached the caller.
    pub acked: Vec<Answer>,
    /// The answers of committed transactions, and the end of the log before each of them.
    pub committed: Vec<(Answer, u64)>,
}

/// An execution that a client wants to exist.
#[derive(Debug)]
pub(super) struct Plan {
    pub submission: Submission,
    /// Submitted by `create_execution` instead of `submit`.
    pub create: bool,
}

impl Plan {
    pub fn policy(&self) -> ExecutionPolicy {
        self.submission.policy.clone().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub(super) struct History {
    pub plans: BTreeMap<ExecutionKey, Plan>,
    pub flows: Vec<FlowPlan>,
    pub extensions: Vec<Extension>,
    pub ops: Vec<Op>,
}

impl History {
    pub fn invoke(&mut self, actor: Actor, verb: Verb) -> usize {
        let (acked, committed) = (Vec::new(), Vec::new());
        self.ops.push(Op { actor, verb, tries: 0, closed: false, acked, committed });
        self.ops.len() - 1
    }

    /// Every answer that reached its caller.
    pub fn acks(&self) -> impl Iterator<Item = (usize, &Op, &Answer)> {
        let ops = self.ops.iter().enumerate();
        ops.flat_map(|(id, op)| op.acked.iter().map(move |answer| (id, op, answer)))
    }

    /// Every answer that reached its caller or was committed.
    pub fn answers(&self) -> impl Iterator<Item = (&Op, &Answer)> {
        self.ops.iter().flat_map(|op| {
            let committed = op.committed.iter().map(|(answer, _)| answer);
            op.acked.iter().chain(committed).map(move |answer| (op, answer))
        })
    }

    pub fn cancelled_headers(&self) -> u64 {
        let committed = self.ops.iter().flat_map(|op| &op.committed);
        committed.filter(|(answer, _)| matches!(answer, Answer::Cancelled(_))).count() as u64
    }

    pub fn submissions_answered(&self) -> bool {
        let submits = |op: &&Op| matches!(op.verb, Verb::Submit(_) | Verb::SubmitFlow(_));
        self.ops.iter().filter(submits).all(|op| !op.acked.is_empty())
    }

    /// How many operations there were, and how many of them were told that they had succeeded.
    /// A claim that found nothing and a sweep, which has no caller, count as neither.
    pub fn operations(&self) -> (u64, u64) {
        let (mut all, mut succeeded) = (0, 0);
        let nothing =
            |answer: &Answer| matches!(answer, Answer::Granted(found) if found.is_empty());
        for op in &self.ops {
            if matches!(op.verb, Verb::Sweep) || op.acked.iter().any(nothing) {
                continue;
            }
            all += 1;
            succeeded += u64::from(op.acked.iter().any(Answer::is_ok));
        }
        (all, succeeded)
    }
}
