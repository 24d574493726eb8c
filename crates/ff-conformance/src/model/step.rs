//! One call of a sequence, and its answer as text that two backends can be compared by.

use std::fmt::Debug;
use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::contracts::{
    CancelExecutionArgs, ChangePriorityArgs, ClaimArgs, CreateExecutionArgs, FailArgs,
    ListExecutionsArgs, PauseLaneArgs, ReplayExecutionArgs, RescheduleArgs, RevokeLeaseArgs,
    SetTagsArgs, Submission,
};
use ff_core::engine_backend::EngineBackend;
use ff_core::types::{ExecutionId, LaneId, Namespace};

use super::bulk::BulkStep;
use super::flows::FlowStep;
use super::limits::LimitStep;
use super::schedules::ScheduleStep;
use super::stream::StreamStep;
use super::waits::WaitStep;
use super::webhooks::WebhookStep;

#[derive(Clone, Debug)]
pub enum Step {
    Submit(Vec<Submission>),
    Create(Box<CreateExecutionArgs>),
    Claim(ClaimArgs),
    Renew(Vec<Handle>),
    Progress(Handle, Option<u8>, Option<String>),
    Complete(Handle, Option<Vec<u8>>),
    Fail(Handle, FailArgs),
    Cancel(Handle, String),
    Delay(Handle, Duration),
    CancelExecution(CancelExecutionArgs),
    RevokeLease(RevokeLeaseArgs),
    ChangePriority(ChangePriorityArgs),
    Replay(ReplayExecutionArgs),
    Reschedule(RescheduleArgs),
    SetTags(SetTagsArgs),
    PauseLane(PauseLaneArgs),
    ResumeLane(LaneId),
    Describe(ExecutionId),
    Explain(ExecutionId),
    History(ExecutionId, u64, usize),
    Payload(ExecutionId),
    Result(ExecutionId),
    List(ListExecutionsArgs),
    Counts(Vec<Namespace>),
    Lanes(Vec<LaneId>),
    Stream(StreamStep),
    Wait(WaitStep),
    Schedule(ScheduleStep),
    Limit(LimitStep),
    Flow(FlowStep),
    Bulk(BulkStep),
    Webhook(WebhookStep),
}

/// What a call has given that later calls can name.
#[derive(Default)]
pub struct Given {
    pub handles: Vec<Handle>,
    pub forked: Vec<ExecutionId>,
}

impl Step {
    /// The handles that the call names.
    pub fn handles_mut(&mut self) -> Vec<&mut Handle> {
        match self {
            Self::Renew(handles) => handles.iter_mut().collect(),
            Self::Progress(handle, ..)
            | Self::Complete(handle, _)
            | Self::Fail(handle, _)
            | Self::Cancel(handle, _)
            | Self::Delay(handle, _) => vec![handle],
            Self::Stream(step) => step.handle_mut().into_iter().collect(),
            Self::Wait(step) => step.handle_mut().into_iter().collect(),
            Self::Limit(step) => step.handle_mut().into_iter().collect(),
            Self::Flow(step) => step.handle_mut().into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Makes the call; also returns what it was given.
    pub async fn run(&self, on: &dyn EngineBackend) -> (String, Given) {
        let mut given = Given::default();
        let answer = match self {
            Self::Claim(args) => {
                let claimed = on.claim_many(args.clone()).await;
                given.handles = claimed.iter().flatten().map(|one| one.handle.clone()).collect();
                let nonce = |handle: &Handle| format!(".{:x}.", handle.lease_nonce());
                let nonces = given.handles.iter().map(nonce);
                nonces.fold(text(on, &claimed), |text, nonce| text.replace(&nonce, ".nonce."))
            }
            Self::Flow(step) => {
                let (answer, forked) = step.run(on).await;
                given.forked = forked;
                answer
            }
            Self::Stream(step) => step.run(on).await,
            Self::Wait(step) => step.run(on).await,
            Self::Schedule(step) => step.run(on).await,
            Self::Limit(step) => step.run(on).await,
            Self::Bulk(step) => step.run(on).await,
            Self::Webhook(step) => step.run(on).await,
            Self::Describe(_)
            | Self::Explain(_)
            | Self::History(..)
            | Self::Payload(_)
            | Self::Result(_)
            | Self::List(_)
            | Self::Counts(_)
            | Self::Lanes(_) => self.read(on).await,
            _ => self.write(on).await,
        };
        (answer, given)
    }

    async fn write(&self, on: &dyn EngineBackend) -> String {
        match self.clone() {
            Self::Submit(items) => text(on, &on.submit(items).await),
            Self::Create(args) => text(on, &on.create_execution(*args).await),
            Self::Renew(handles) => text(on, &on.renew_many(&handles).await),
            Self::Progress(handle, percent, message) => {
                text(on, &on.progress(&handle, percent, message).await)
            }
            Self::Complete(handle, result) => text(on, &on.complete(&handle, result).await),
            Self::Fail(handle, args) => text(on, &on.fail(&handle, args).await),
            Self::Cancel(handle, reason) => text(on, &on.cancel(&handle, &reason).await),
            Self::Delay(handle, delay) => text(on, &on.delay(&handle, delay).await),
            Self::CancelExecution(args) => text(on, &on.cancel_execution(args).await),
            Self::RevokeLease(args) => text(on, &on.revoke_lease(args).await),
            Self::ChangePriority(args) => text(on, &on.change_priority(args).await),
            Self::Replay(args) => text(on, &on.replay_execution(args).await),
            Self::Reschedule(args) => text(on, &on.reschedule(args).await),
            Self::SetTags(args) => text(on, &on.set_tags(args).await),
            Self::PauseLane(args) => text(on, &on.pause_lane(args).await),
            Self::ResumeLane(lane) => text(on, &on.resume_lane(&lane, "model").await),
            other => unreachable!("not a write: {other:?}"),
        }
    }

    async fn read(&self, on: &dyn EngineBackend) -> String {
        match self {
            Self::Describe(id) => text(on, &on.describe_execution(id).await),
            Self::Explain(id) => text(on, &on.explain(id).await),
            Self::History(id, after, limit) => {
                let history = on.history(id, *after, *limit).await;
                text(on, &history.map(super::log::comparable))
            }
            Self::Payload(id) => text(on, &on.payload(id).await),
            Self::Result(id) => text(on, &on.result(id).await),
            Self::List(args) => text(on, &on.list_executions(args.clone()).await),
            Self::Counts(own) => {
                let mut counts = on.counts().await;
                if let Ok(counts) = &mut counts {
                    counts.retain(|lane| own.contains(&lane.namespace));
                }
                text(on, &counts)
            }
            Self::Lanes(own) => {
                let mut lanes = on.list_lanes().await;
                if let Ok(lanes) = &mut lanes {
                    lanes.retain(|lane| own.contains(&lane.lane_id));
                }
                text(on, &lanes)
            }
            other => unreachable!("not a read: {other:?}"),
        }
    }
}

/// The answer without what marks the lease ids of a store: its name, or a shorter one.
pub(super) fn text(on: &dyn EngineBackend, answer: &impl Debug) -> String {
    let named = format!("\"{}:", on.engine().store().name());
    format!("{answer:?}").replace(&named, "\"").replace("\"pg:", "\"")
}
