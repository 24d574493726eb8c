//! What a client can ask for, and what it can be told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::graph::Planted;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", content = "args", rename_all = "snake_case")]
pub enum Op {
    Submit(Work),
    Claim {
        worker: String,
    },
    Renew(Lease),
    /// The result's bytes follow from `seed`; `result` is their hash.
    Complete {
        lease: Lease,
        seed: u64,
        result: u64,
    },
    Fail {
        lease: Lease,
        fatal: bool,
    },
    /// The holder gives up.
    GiveUp(Lease),
    /// An operator cancels.
    Cancel {
        id: String,
    },
    Revoke {
        id: String,
    },
    Replay {
        id: String,
    },
    /// A whole graph is submitted.
    Plant(Planted),
    /// A flow is cancelled with all its members.
    CancelFlow {
        flow: Uuid,
    },
    /// The holder waits for a signal, and not for ever.
    Suspend {
        lease: Lease,
        timeout_ms: u64,
        fails: bool,
    },
    /// Somebody signals it; the key makes a repeat the same signal.
    Signal {
        id: String,
        waitpoint: Uuid,
        key: String,
    },
    /// The holder records a step. Its result follows from `seed`; `value` is the hash of it.
    Step {
        lease: Lease,
        name: String,
        seed: u64,
        value: u64,
    },
    /// The holder says so many things, which are numbered; the name makes a repeat the same call.
    Append {
        lease: Lease,
        append_id: Uuid,
        frames: u32,
    },
    /// The holder says what it has used; the key makes a repeat the same report.
    Report {
        lease: Lease,
        key: String,
        amount: u64,
    },
    /// Somebody starts a run of a schedule; the request makes a repeat the same run.
    Trigger {
        schedule: String,
        request: String,
    },
    /// Something is done to many executions at once.
    Sweep(Sweep),
    /// Somebody looks at the budget that is often at its limit.
    WatchBudget,
    /// Somebody looks at the quota.
    WatchQuota,
}

impl Op {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Submit(_) => "submit",
            Self::Claim { .. } => "claim",
            Self::Renew(_) => "renew",
            Self::Complete { .. } => "complete",
            Self::Fail { .. } => "fail",
            Self::GiveUp(_) => "give up",
            Self::Cancel { .. } => "cancel",
            Self::Revoke { .. } => "revoke",
            Self::Replay { .. } => "replay",
            Self::Plant(_) => "plant",
            Self::CancelFlow { .. } => "cancel flow",
            Self::Suspend { .. } => "suspend",
            Self::Signal { .. } => "signal",
            Self::Step { .. } => "step",
            Self::Append { .. } => "append",
            Self::Report { .. } => "report",
            Self::Trigger { .. } => "trigger",
            Self::Sweep(_) => "sweep",
            Self::WatchBudget | Self::WatchQuota => "watch",
        }
    }

    /// The lease under which the operation writes, if it does.
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Renew(lease)
            | Self::Complete { lease, .. }
            | Self::Fail { lease, .. }
            | Self::Suspend { lease, .. }
            | Self::Step { lease, .. }
            | Self::Append { lease, .. }
            | Self::Report { lease, .. }
            | Self::GiveUp(lease) => Some(lease),
            _ => None,
        }
    }

    /// Whether asking again is promised to give the first outcome.
    pub fn is_repeatable(&self) -> bool {
        matches!(
            self,
            Self::Submit(_)
                | Self::Complete { .. }
                | Self::Fail { .. }
                | Self::GiveUp(_)
                | Self::Cancel { .. }
                | Self::Plant(_)
                | Self::CancelFlow { .. }
                | Self::Signal { .. }
                | Self::Trigger { .. }
        )
    }
}

/// One piece of work as its submitter chose it. Everything but the names follows from `seed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub id: String,
    pub key: Option<String>,
    pub seed: u64,
    /// The hash of the payload.
    pub payload: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    pub id: String,
    pub epoch: u64,
    /// The handle in its text form.
    pub handle: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// This execution stands for the work.
    Accepted {
        id: String,
    },
    Granted {
        grants: Vec<Grant>,
    },
    Done,
    /// The lease stands until then, by the store's clock.
    Renewed {
        until: i64,
    },
    RetryScheduled {
        delay_until: i64,
    },
    FinallyFailed,
    Revoked {
        epoch: u64,
    },
    /// Its waitpoint can be signalled.
    Suspended {
        waitpoint: Uuid,
    },
    /// This value stands under the name of a step.
    Recorded {
        value: u64,
    },
    /// The frames of the call are there, in the stream of this attempt.
    Appended {
        attempt: u32,
        first: u64,
        last: u64,
    },
    /// How a limit stands.
    Limit(Standing),
    /// Accepted, but there was nothing to do.
    Unchanged,
    Error {
        code: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    pub lease: Lease,
    /// The hash of the payload that the worker was given.
    pub payload: u64,
    /// The steps that it was told of, with the hashes of their results.
    #[serde(default)]
    pub steps: BTreeMap<String, u64>,
}

/// What is done to the latest executions of a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Found on everything that it changes: the value of a tag, or the reason of a cancellation.
    pub mark: String,
    pub lane: String,
    /// Executions that were created from this instant on, by the host's clock.
    pub created_from: i64,
    /// Cancels what has not ended, instead of giving everything a tag.
    pub cancels: bool,
}

/// What of a limit is used and held, and what both together must not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    pub used: u64,
    pub reserved: u64,
    pub hard: u64,
}
