//! The trait that callers hold. Its provided bodies are the implementation: a backend supplies an
//! engine over its store, and nothing else.

mod counter;
mod explain;
mod flow;
mod fork;
mod graph;
mod parents;
mod resubmit;
mod scan;
mod suspension;
mod timer;
mod token;

pub use counter::CounterOperations;
pub use flow::FlowOperations;
pub use suspension::SuspensionOperations;
pub use timer::TimerOperations;
mod step;
mod stream;
mod stream_reader;
mod worker;

pub use step::StepOperations;
pub use stream::StreamOperations;
pub use token::TokenOperations;
pub use worker::WorkerOperations;
mod limit;
mod webhook;

pub use limit::LimitOperations;
mod bulk;
mod caller;
mod schedule;

pub use caller::{Acting, Namespaced};

pub use bulk::BulkOperations;
pub use schedule::ScheduleOperations;
pub use webhook::WebhookOperations;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::backend::{CancelFlowPolicy, CancelFlowWait, CapabilitySet, ClaimPolicy, Handle};
use crate::capability;
use crate::contracts::{
    CancelExecutionArgs, CancelExecutionResult, CancelFlowArgs, CancelFlowHeader, CancelFlowResult,
    ChangePriorityArgs, ChangePriorityResult, ClaimArgs, ClaimedExecution, CreateExecutionArgs,
    CreateExecutionResult, Event, EventFilter, ExecutionPage, ExecutionSnapshot, Explanation,
    FailArgs, FailOutcome, LaneCounts, LaneSnapshot, ListExecutionsArgs, PauseLaneArgs,
    RenewOutcome, ReplayExecutionArgs, ReplayExecutionResult, RescheduleArgs, ResubmitArgs,
    ResubmitResult, RevokeLeaseArgs, RevokeLeaseResult, SetTagsArgs, Stamp, Submission,
    SubmitOutcome,
};
use crate::engine::{
    Caller, Engine, Grants, StartAt, Subscription, check_bytes, check_count, check_duration,
    check_tag_key, check_text, prepare_create, prepare_submit,
};
use crate::engine_error::{EngineError, ValidationKind};
use crate::limits;
use crate::operations::admin::{PauseLane, ResumeLane};
use crate::operations::execution::{
    CancelExecution, CancelHeld, ChangePriority, Claim, Complete, Delay, Fail, Grant, Progress,
    Renew, ReplayExecution, Reschedule, RevokeLease, SetTags,
};
use crate::operations::flow::{AckCancelMember, CancelFlow, CancelFlowHeaderOp};
use crate::rows::{Blob, ExecutionRow, FlowKey, LaneRow, StepRow, tags};
use crate::state::PublicState;
use crate::store::{Damage, ListQuery, Query, Rows};
use crate::types::{ExecutionId, ExecutionKey, FlowId, LaneId, Namespace, TimestampMs};
use crate::views;

#[async_trait]
pub trait EngineBackend: Send + Sync + 'static {
    fn engine(&self) -> &Engine;

    /// If set, executions and flows of other namespaces do not exist for this caller.
    fn scope(&self) -> Option<&Namespace> {
        None
    }

    /// Who the events of this caller's operations name, if that is known.
    fn stamp(&self) -> Option<&Arc<Stamp>> {
        None
    }

    /// What operations of this caller may see, and who their events name.
    fn caller(&self) -> Caller<'_> {
        Caller { scope: self.scope(), stamp: self.stamp() }
    }

    // Submitting.

    /// Accepts one execution under a chosen identity.
    async fn create_execution(
        &self,
        args: CreateExecutionArgs,
    ) -> Result<CreateExecutionResult, EngineError> {
        let engine = self.engine();
        let operation = prepare_create(args, &engine.config().limits, self.scope())?;
        engine.run_as(self.caller(), operation).await
    }

    /// Accepts up to 10,000 pieces of work in one transaction, each with its own outcome.
    async fn submit(&self, items: Vec<Submission>) -> Result<Vec<SubmitOutcome>, EngineError> {
        let engine = self.engine();
        let partition = |lane: &LaneId| engine.store().solo_partition(lane);
        let submit = prepare_submit(items, &engine.config().limits, self.scope(), partition)?;
        engine.run_as(self.caller(), submit).await
    }

    // Working.

    /// Claims one execution of one lane.
    async fn claim(
        &self,
        lane: &LaneId,
        capabilities: &CapabilitySet,
        policy: ClaimPolicy,
    ) -> Result<Option<Handle>, EngineError> {
        let args = ClaimArgs {
            lanes: vec![lane.clone()],
            capabilities: capabilities.clone(),
            worker_id: policy.worker_id,
            worker_instance_id: policy.worker_instance_id,
            lease_ttl_ms: policy.lease_ttl_ms,
            max: 1,
            wait: policy.max_wait.unwrap_or_default(),
        };
        let grants = claim_grants(self.engine(), self.caller(), args).await?;
        Ok(grants.take().into_iter().next().map(|grant| grant.handle))
    }

    /// Claims up to `max` executions of any of several lanes, with all that a worker needs.
    async fn claim_many(&self, args: ClaimArgs) -> Result<Vec<ClaimedExecution>, EngineError> {
        let grants = claim_grants(self.engine(), self.caller(), args).await?;
        claimed(self.engine(), grants).await
    }

    /// Keeps leases; each handle is told whether it still holds.
    async fn renew_many(&self, handles: &[Handle]) -> Result<Vec<RenewOutcome>, EngineError> {
        check_count("handles", handles.len(), limits::RENEW_BATCH)?;
        self.engine().run_as(self.caller(), Renew { handles: handles.to_vec() }).await
    }

    async fn progress(
        &self,
        handle: &Handle,
        percent: Option<u8>,
        message: Option<String>,
    ) -> Result<(), EngineError> {
        if percent.is_some_and(|percent| percent > 100) {
            return Err(EngineError::invalid("progress is more than 100 percent"));
        }
        let text = message.as_deref().unwrap_or_default();
        check_text("progress message", text, 0, limits::PROGRESS_MESSAGE_BYTES)?;
        let message = message.map(Into::into);
        let handle = handle.clone();
        self.engine().run_as(self.caller(), Progress { handle, percent, message }).await
    }

    async fn complete(&self, handle: &Handle, payload: Option<Vec<u8>>) -> Result<(), EngineError> {
        let len = payload.as_ref().map_or(0, Vec::len);
        check_bytes("result", len, &self.engine().config().limits)?;
        let operation = Complete { handle: handle.clone(), result: payload.map(Into::into) };
        self.engine().run_as(self.caller(), operation).await
    }

    async fn fail(&self, handle: &Handle, args: FailArgs) -> Result<FailOutcome, EngineError> {
        check_text("failure reason", &args.reason, 0, limits::REASON_BYTES)?;
        check_text("failure category", &args.category, 0, limits::NAME_BYTES)?;
        let operation = Fail {
            handle: handle.clone(),
            reason: args.reason.into(),
            category: args.category.into(),
            class: args.class,
            entropy: fastrand::u64(..),
        };
        self.engine().run_as(self.caller(), operation).await
    }

    /// The holder gives up: the execution ends as cancelled.
    async fn cancel(&self, handle: &Handle, reason: &str) -> Result<(), EngineError> {
        check_text("reason", reason, 0, limits::REASON_BYTES)?;
        let operation = CancelHeld { handle: handle.clone(), reason: reason.into() };
        self.engine().run_as(self.caller(), operation).await
    }

    /// The holder puts the execution down; the attempt goes on after the delay.
    async fn delay(&self, handle: &Handle, delay: Duration) -> Result<TimestampMs, EngineError> {
        check_duration("delay", Some(delay))?;
        self.engine().run_as(self.caller(), Delay { handle: handle.clone(), delay }).await
    }

    // Operating.

    async fn cancel_execution(
        &self,
        args: CancelExecutionArgs,
    ) -> Result<CancelExecutionResult, EngineError> {
        check_text("reason", &args.reason, 0, limits::REASON_BYTES)?;
        check_text("source", args.source.as_str(), 1, limits::NAME_BYTES)?;
        self.engine().run_as(self.caller(), CancelExecution { args }).await
    }

    async fn revoke_lease(&self, args: RevokeLeaseArgs) -> Result<RevokeLeaseResult, EngineError> {
        check_text("reason", &args.reason, 0, limits::REASON_BYTES)?;
        self.engine().run_as(self.caller(), RevokeLease { args }).await
    }

    async fn change_priority(
        &self,
        args: ChangePriorityArgs,
    ) -> Result<ChangePriorityResult, EngineError> {
        self.engine().run_as(self.caller(), ChangePriority { args }).await
    }

    async fn replay_execution(
        &self,
        args: ReplayExecutionArgs,
    ) -> Result<ReplayExecutionResult, EngineError> {
        self.engine().run_as(self.caller(), ReplayExecution { args }).await
    }

    /// Starts the work of an ended execution anew, as an execution of its own outside any flow.
    async fn resubmit(&self, args: ResubmitArgs) -> Result<ResubmitResult, EngineError> {
        let resubmit = resubmit::prepare(self.engine(), self.scope(), args).await?;
        self.engine().run_as(self.caller(), resubmit).await
    }

    /// Moves the moment at which a waiting execution may be handed out.
    async fn reschedule(&self, args: RescheduleArgs) -> Result<PublicState, EngineError> {
        check_duration("delay", Some(args.delay))?;
        self.engine().run_as(self.caller(), Reschedule { args }).await
    }

    async fn set_tags(&self, args: SetTagsArgs) -> Result<(), EngineError> {
        check_count("tags", args.tags.len(), limits::TAGS)?;
        for (key, value) in &args.tags {
            check_tag_key(key)?;
            let value = value.as_deref().unwrap_or_default();
            check_text("tag value", value, 0, limits::TAG_VALUE_BYTES)?;
        }
        self.engine().run_as(self.caller(), SetTags { args }).await
    }

    /// Nothing of the lane is handed out until it is resumed.
    async fn pause_lane(&self, args: PauseLaneArgs) -> Result<(), EngineError> {
        check_unscoped(self.scope(), "pause_lane")?;
        args.lane_id.check()?;
        check_text("reason", &args.reason, 0, limits::REASON_BYTES)?;
        check_text("by", &args.by, 0, limits::NAME_BYTES)?;
        let operation = PauseLane {
            lane: args.lane_id.0.into(),
            reason: args.reason.into(),
            by: args.by.into(),
        };
        self.engine().run_as(self.caller(), operation).await
    }

    async fn resume_lane(&self, lane: &LaneId, by: &str) -> Result<(), EngineError> {
        check_unscoped(self.scope(), "resume_lane")?;
        lane.check()?;
        check_text("by", by, 0, limits::NAME_BYTES)?;
        let operation = ResumeLane { lane: lane.as_str().into(), by: by.into() };
        self.engine().run_as(self.caller(), operation).await
    }

    async fn cancel_flow(
        &self,
        id: &FlowId,
        policy: CancelFlowPolicy,
        wait: CancelFlowWait,
    ) -> Result<CancelFlowResult, EngineError> {
        let flow = flow_key(self.engine(), id);
        let cancelled = self.engine().run_as(self.caller(), CancelFlow { flow, policy }).await?;
        if wait == CancelFlowWait::NoWait {
            return Ok(cancelled.result);
        }
        if !cancelled.is_quiet {
            flow::wait_for_members(self.engine(), flow, policy, wait).await?;
        }
        Ok(match cancelled.result {
            CancelFlowResult::CancellationScheduled {
                cancellation_policy,
                member_execution_ids,
                ..
            } => CancelFlowResult::Cancelled { cancellation_policy, member_execution_ids },
            cancelled => cancelled,
        })
    }

    async fn cancel_flow_header(
        &self,
        args: CancelFlowArgs,
    ) -> Result<CancelFlowHeader, EngineError> {
        check_text("reason", &args.reason, 0, limits::REASON_BYTES)?;
        check_text("policy", &args.cancellation_policy, 0, limits::NAME_BYTES)?;
        let flow = flow_key(self.engine(), &args.flow_id);
        let cancelled =
            self.engine().run_as(self.caller(), CancelFlowHeaderOp { flow, args }).await?;
        flow::name_the_rest(self.engine(), flow, cancelled).await
    }

    async fn ack_cancel_member(
        &self,
        flow_id: &FlowId,
        execution_id: &ExecutionId,
    ) -> Result<(), EngineError> {
        let flow = flow_key(self.engine(), flow_id);
        let execution_id = execution_id.as_str().into();
        self.engine().run_as(self.caller(), AckCancelMember { flow, execution_id }).await
    }

    // Reading.

    /// Everything about one execution except its bytes.
    async fn describe_execution(
        &self,
        id: &ExecutionId,
    ) -> Result<Option<ExecutionSnapshot>, EngineError> {
        let rows = self.engine().query(Query::Execution(id.key())).await?;
        let found = visible(self.scope(), &rows);
        Ok(found.map(|row| views::snapshot(row, &rows.attempts, &rows.damage)))
    }

    /// Why the execution is not running.
    async fn explain(&self, id: &ExecutionId) -> Result<Explanation, EngineError> {
        explain::explain(self.engine(), self.scope(), id).await
    }

    async fn list_executions(
        &self,
        args: ListExecutionsArgs,
    ) -> Result<ExecutionPage, EngineError> {
        let mut list = list_query(self.scope(), args)?;
        let limit = list.limit;
        // One more than asked for tells whether there is more.
        list.limit += 1;
        let mut rows = self.engine().query(Query::Executions(list)).await?;
        let more = rows.executions.len() > limit;
        rows.executions.truncate(limit);
        Ok(views::page(&rows.executions, more, &rows.damage))
    }

    /// The bytes that the execution was submitted with.
    async fn payload(&self, id: &ExecutionId) -> Result<Option<Arc<[u8]>>, EngineError> {
        if self.describe_execution(id).await?.is_none() {
            return Ok(None);
        }
        let rows = self.engine().query(Query::Payloads(vec![id.key()])).await?;
        Ok(Some(rows.blobs.into_iter().next().map_or_else(|| Arc::from([]), |(_, bytes)| bytes)))
    }

    /// The bytes that the execution ended with, if it completed with any.
    async fn result(&self, id: &ExecutionId) -> Result<Option<Arc<[u8]>>, EngineError> {
        let rows = self.engine().query(Query::Results { keys: vec![id.key()], bytes: 0 }).await?;
        if visible(self.scope(), &rows).is_none() {
            return Err(EngineError::NotFound { entity: "execution" });
        }
        Ok(rows.blobs.into_iter().next().map(|(_, bytes)| bytes))
    }

    /// What has happened to the execution, oldest first, after one of its versions.
    async fn history(
        &self,
        id: &ExecutionId,
        after_version: u64,
        limit: usize,
    ) -> Result<Vec<Event>, EngineError> {
        check_count("events", limit, limits::PAGE)?;
        let execution = id.key();
        let rows = self.engine().query(Query::Execution(execution)).await?;
        if visible(self.scope(), &rows).is_none() {
            return Err(EngineError::NotFound { entity: "execution" });
        }
        let query = Query::History { execution, after_version, limit };
        let events = self.engine().query(query).await?.events;
        Ok(events.iter().map(|row| views::event(row, String::new())).collect())
    }

    /// How many executions of each lane are in each state.
    async fn counts(&self) -> Result<Vec<LaneCounts>, EngineError> {
        let namespace = self.scope().map(|scope| scope.as_str().into());
        let rows = self.engine().query(Query::Counts { namespace }).await?;
        Ok(views::counts(rows.counts))
    }

    /// Every lane, or those that the caller's namespace has executions in.
    async fn list_lanes(&self) -> Result<Vec<LaneSnapshot>, EngineError> {
        let rows = self.engine().query(Query::Lanes).await?;
        let mut lanes: Vec<_> = {
            let named = rows.lanes.iter().filter(|lane| lane.lane != LaneRow::every());
            named.map(|lane| views::lane(lane, &rows.damage)).collect()
        };
        if self.scope().is_some() {
            let own = self.counts().await?;
            lanes.retain(|lane| own.iter().any(|counted| counted.lane_id == lane.lane_id));
        }
        Ok(lanes)
    }

    /// Follows the log. Keep the cursor of the last event to go on after a restart.
    async fn subscribe(
        &self,
        filter: EventFilter,
        start: StartAt,
    ) -> Result<Subscription, EngineError> {
        let mut filter = filter;
        if let Some(scope) = self.scope() {
            if filter.namespace.as_ref().is_some_and(|wanted| wanted != scope) {
                return Err(EngineError::invalid("the filter names a foreign namespace"));
            }
            filter.namespace = Some(scope.clone());
        }
        Subscription::open(self.engine(), filter, start, self.scope().is_none()).await
    }
}

/// Lanes are shared by all namespaces, so none of them may stop one for the others.
fn check_unscoped(scope: Option<&Namespace>, op: &'static str) -> Result<(), EngineError> {
    scope.map_or(Ok(()), |_| Err(EngineError::Unavailable { op }))
}

fn flow_key(engine: &Engine, id: &FlowId) -> FlowKey {
    FlowKey { partition: engine.store().flow_partition(id), id: id.0 }
}

async fn claim_grants<'e>(
    engine: &'e Engine,
    caller: Caller<'e>,
    args: ClaimArgs,
) -> Result<Grants<'e>, EngineError> {
    check_count("lanes", args.lanes.len(), limits::CLAIM_LANES)?;
    check_count("executions", args.max, limits::CLAIM_BATCH)?;
    let ttl = usize::try_from(args.lease_ttl_ms).unwrap_or(usize::MAX);
    check_count("milliseconds of lease", ttl, limits::LEASE_TTL_MAX_MS as usize)?;
    let tokens: Vec<&str> = args.capabilities.tokens.iter().map(String::as_str).collect();
    capability::check_offered(&tokens)?;
    let workers = [args.worker_id.check(), args.worker_instance_id.check()];
    for check in args.lanes.iter().map(LaneId::check).chain(workers) {
        check.map_err(|error| EngineError::invalid(error.to_string()))?;
    }
    let mut lanes: Vec<Arc<str>> = args.lanes.iter().map(|lane| lane.as_str().into()).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let worker_id: Arc<str> = args.worker_id.0.into();
    let worker_instance_id: Arc<str> = args.worker_instance_id.0.into();
    let claim = || Claim {
        lanes: lanes.clone(),
        capabilities: args.capabilities.clone(),
        worker_id: worker_id.clone(),
        worker_instance_id: worker_instance_id.clone(),
        lease_ttl_ms: args.lease_ttl_ms,
        max: args.max,
        view: 0,
        claim_id: draw_claim_id(),
    };
    engine.claim(caller, args.wait, claim).await
}

/// Ordered by time, so that new timers stand together. The rest is random to the last bit, because
/// it is the secret of the handles: no counter may tell one claim what another was given.
fn draw_claim_id() -> Uuid {
    let millis = u64::try_from(TimestampMs::now().0).unwrap_or_default();
    let drawn = Uuid::new_v4().into_bytes();
    let mut random = [0; 10];
    // Without the bytes in which a random id says that it is one.
    random[..6].copy_from_slice(&drawn[..6]);
    random[6..].copy_from_slice(&drawn[9..13]);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// Grants with their bytes; large payloads are fetched after the commit.
async fn claimed(
    engine: &Engine,
    granted: Grants<'_>,
) -> Result<Vec<ClaimedExecution>, EngineError> {
    let grants = granted.seen();
    let apart = |grant: &&Grant| grant.payload == Blob::Apart;
    let missing: Vec<ExecutionKey> = grants.iter().filter(apart).map(|g| g.key).collect();
    let fetched = match missing.is_empty() {
        true => Vec::new(),
        false => engine.query(Query::Payloads(missing)).await?.blobs,
    };
    let steps = steps_of_grants(engine, grants).await?;
    let of_grant = |key: ExecutionKey| {
        views::steps(steps.iter().filter(|step| step.key.execution == key).cloned())
    };
    let payload = |grant: &Grant| match &grant.payload {
        Blob::Here(bytes) => bytes.clone(),
        Blob::Absent | Blob::Apart => {
            let found = fetched.iter().find(|(key, _)| *key == grant.key);
            found.map_or_else(|| Arc::from([]), |(_, bytes)| bytes.clone())
        }
    };
    let mut resumed = suspension::resume_signals(engine, grants).await?;
    let mut merged = HashMap::new();
    let mut refused = HashSet::new();
    for grant in grants.iter().filter(|grant| grant.merges_results) {
        match parents::merged(engine, grant, &payload(grant)).await? {
            Some(together) => drop(merged.insert(grant.key, together)),
            None => drop(refused.insert(grant.key)),
        }
    }
    let payload = |grant: &Grant| merged.get(&grant.key).cloned().unwrap_or_else(|| payload(grant));
    let given = granted.take().into_iter().filter(|grant| !refused.contains(&grant.key));
    let claimed = given.map(|grant| ClaimedExecution {
        resume_signals: resumed.remove(&grant.key).unwrap_or_default(),
        execution_id: grant.key.execution_id(),
        namespace: Namespace::new(&*grant.namespace),
        lane_id: LaneId::new(&*grant.lane),
        execution_kind: grant.kind.to_string(),
        payload: payload(&grant),
        payload_encoding: grant.payload_encoding.as_ref().map(ToString::to_string),
        steps: if grant.has_steps { of_grant(grant.key) } else { Vec::new() },
        tags: tags(&grant.tags),
        priority: grant.priority,
        attempt_index: grant.handle.attempt_index(),
        attempt_type: grant.attempt_type,
        lease_epoch: grant.handle.lease_epoch(),
        lease_expires_at: grant.lease_expires_at,
        created_at: grant.created_at,
        deadline_at: grant.deadline_at,
        handle: grant.handle,
    });
    Ok(claimed.collect())
}

/// The steps of what was granted. Nobody but the new holder can add to them.
async fn steps_of_grants(engine: &Engine, grants: &[Grant]) -> Result<Vec<StepRow>, EngineError> {
    let with_steps = grants.iter().filter(|grant| grant.has_steps);
    let scans: Vec<_> = with_steps.map(|grant| step::steps_of(grant.key)).collect();
    if scans.is_empty() {
        return Ok(Vec::new());
    }
    let rows = engine.query(Query::Records { keys: Vec::new(), scans }).await?;
    rows.records().map_err(|error| engine.store_error(error))
}

fn visible<'r>(scope: Option<&Namespace>, rows: &'r Rows) -> Option<&'r ExecutionRow> {
    let in_scope = |row: &&ExecutionRow| scope.is_none_or(|s| s.as_str() == &*row.namespace);
    rows.executions.first().filter(in_scope)
}

/// Refuses to go by executions that cannot be read: what is shown of them is not what they are.
fn check_readable(damage: &Damage) -> Result<(), EngineError> {
    match damage.executions.iter().next() {
        Some((key, why)) => {
            let detail = format!("{} cannot be read: {why}", key.execution_id());
            Err(EngineError::validation(ValidationKind::Corruption, detail))
        }
        None => Ok(()),
    }
}

fn list_query(
    scope: Option<&Namespace>,
    args: ListExecutionsArgs,
) -> Result<ListQuery, EngineError> {
    let limit = if args.limit == 0 { 100 } else { args.limit };
    check_count("executions", limit, limits::PAGE)?;
    if let (Some(scope), Some(wanted)) = (scope, &args.namespace)
        && scope != wanted
    {
        return Err(EngineError::invalid("the filter names a foreign namespace"));
    }
    if let Some((key, _)) = &args.tag {
        check_tag_key(key)?;
    }
    let namespace = scope.cloned().or(args.namespace);
    Ok(ListQuery {
        namespace: namespace.map(|namespace| namespace.0.into()),
        lane: args.lane_id.map(|lane| lane.0.into()),
        states: args.states,
        kind: args.execution_kind.map(Into::into),
        flow_id: args.flow_id.map(|flow| flow.0),
        tag: args.tag,
        created_from: args.created_from,
        created_before: args.created_before,
        order: args.order,
        after: args.cursor.as_deref().map(views::parse_list_cursor).transpose()?,
        limit,
    })
}
