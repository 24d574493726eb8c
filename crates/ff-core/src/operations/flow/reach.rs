//! Reaches the members of a flow that was cancelled, as its policy says: the first of them with
//! the header, the others chunk by chunk, so that other work goes on between.

use std::sync::Arc;

use uuid::Uuid;

use super::backlog;
use super::due::chunk_of_members;
use crate::backend::CancelFlowPolicy;
use crate::operations::execution::finish::{AttemptEnding, Ending, finish};
use crate::operations::execution::hold;
use crate::rows::{CascadeRow, ExecutionRow, FlowRow};
use crate::state::{BlockingReason, EligibilityState, LifecyclePhase, TerminalOutcome};
use crate::store::{Change, World};
use crate::types::{CancelSource, TimestampMs};

/// How many members one transaction reaches.
pub(crate) const CHUNK: usize = FlowRow::REACHED_AT_ONCE as usize;

/// The word under which a header's cancellation is remembered, whatever policy its caller named.
pub(super) const BY_HEADER: &str = "cancel_flow_header";

/// How members are reached.
#[derive(Clone, Debug)]
pub(super) enum Reach {
    Policy(CancelFlowPolicy),
    /// Every one is cancelled and must be acknowledged.
    Header {
        reason: Arc<str>,
        at: TimestampMs,
    },
}

impl Reach {
    /// As it is remembered for the chunks to come.
    pub fn remembered(&self) -> (Arc<str>, Arc<str>) {
        match self {
            Self::Policy(policy) => (policy.as_str().into(), "cancel_flow".into()),
            Self::Header { reason, .. } => (BY_HEADER.into(), reason.clone()),
        }
    }

    /// When the members end: as the caller of the header says, or as the store does.
    pub fn at(&self, now: TimestampMs) -> TimestampMs {
        match self {
            Self::Policy(_) => now,
            Self::Header { at, .. } => *at,
        }
    }

    pub fn recalled(row: &CascadeRow) -> Self {
        match row.policy.as_deref() {
            Some(BY_HEADER) => {
                Self::Header { reason: row.reason.clone().unwrap_or_default(), at: row.at }
            }
            Some("flow_only") => Self::Policy(CancelFlowPolicy::FlowOnly),
            Some("cancel_pending") => Self::Policy(CancelFlowPolicy::CancelPending),
            _ => Self::Policy(CancelFlowPolicy::CancelAll),
        }
    }

    /// Does to one member what its flow's cancellation does to it.
    pub fn member(&self, world: &World, change: &mut Change, row: &ExecutionRow) {
        let running = row.phase == LifecyclePhase::Active;
        let held = row.blocking == BlockingReason::PausedByFlowCancel;
        match self {
            Self::Policy(CancelFlowPolicy::CancelAll) => cancel(world, change, row),
            Self::Policy(CancelFlowPolicy::CancelPending) if !running => cancel(world, change, row),
            Self::Policy(CancelFlowPolicy::FlowOnly) if !running && !held => {
                hold(world, change, row);
            }
            Self::Policy(_) => {}
            Self::Header { reason, at } => {
                let ending = Ending {
                    reason: Some(reason.clone()),
                    by: Some(BY_HEADER.into()),
                    asked_at: Some(*at),
                    ..Ending::new(TerminalOutcome::Cancelled, *at, AttemptEnding::Untouched)
                };
                finish(world, change, row, ending, |after| {
                    after.eligibility = EligibilityState::Cancelled;
                });
            }
        }
    }
}

fn cancel(world: &World, change: &mut Change, row: &ExecutionRow) {
    let ending = Ending {
        reason: Some("cancel_flow".into()),
        by: Some(CancelSource::FlowCascade.as_str().into()),
        ..Ending::new(TerminalOutcome::Cancelled, world.now, AttemptEnding::Erased)
    };
    finish(world, change, row, ending, |_| {});
}

/// The next members; the last of them if there may be more.
pub(super) fn chunk(world: &World, change: &mut Change, row: &CascadeRow) -> Option<Uuid> {
    let scan = chunk_of_members(row);
    let reach = Reach::recalled(row);
    let members = world.members(&scan);
    let unfinished: Vec<_> = members.into_iter().filter(|row| !row.is_finished()).collect();
    for member in &unfinished {
        reach.member(world, change, member);
    }
    if let Reach::Header { .. } = reach {
        backlog::add(world, change, row.flow, &unfinished);
    }
    world.members_cut(&scan)
}
