//! Flows, waits, steps, frames, limits, schedules and bulk operations, as a server takes them.

use ff_api::{
    AppendFramesRequest, BudgetRequest, BulkFilter, CancelFlowRequest, FlowNodeRequest,
    QuotaRequest, RecordStepRequest, ReportUsageRequest, ScheduleRequest, ScheduleTemplate,
    SignalRequest, StartBulkRequest, SubmitFlowRequest, SuspendAnswer, SuspendRequest,
    TriggerScheduleAnswer,
};
use ff_core::backend::CancelFlowPolicy;
use ff_core::contracts::{
    AppendFramesOutcome, BudgetSnapshot, PutBudgetArgs, PutScheduleArgs, QuotaSnapshot,
    RecordStepOutcome, SubmitFlowArgs, UsageOutcome,
};
use ff_core::types::{LaneId, TimestampMs};
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;

use super::client::{Answered, Client, at, refused, request};
use crate::history::{Lease, Op, Outcome};
use crate::workload::{bytes, durable, limits, many, waits};

impl Client {
    pub(super) async fn perform_more(&self, op: &Op) -> Answered<Outcome> {
        match op {
            Op::Plant(planted) => {
                let args = planted.args().map_err(|_| refused("impossible_id"))?;
                self.post::<_, Value>("/v1/flows", &graph(args)).await?;
                Ok(Outcome::Done)
            }
            Op::CancelFlow { flow } => {
                let body = CancelFlowRequest { policy: CancelFlowPolicy::CancelAll, wait: None };
                self.post::<_, Value>(&format!("/v1/flows/{flow}/cancel"), &body).await?;
                Ok(Outcome::Done)
            }
            Op::Suspend { lease, timeout_ms, fails } => {
                self.suspend(lease, *timeout_ms, *fails).await
            }
            Op::Signal { id, waitpoint, key } => {
                let body = SignalRequest {
                    signal_name: waits::SIGNAL.to_owned(),
                    idempotency_key: Some(key.clone()),
                    ..SignalRequest::default()
                };
                let path = at(id, &format!("waitpoints/{waitpoint}/signal"));
                self.post::<_, Value>(&path, &body).await?;
                Ok(Outcome::Done)
            }
            Op::Step { lease, name, seed, .. } => {
                let (result, result_base64) = ff_api::bytes::write(&bytes(*seed));
                let (handle, name) = (lease.handle.clone(), name.clone());
                let body = RecordStepRequest { handle, name, result, result_base64 };
                let recorded: RecordStepOutcome = self.post("/v1/leases/steps", &body).await?;
                Ok(durable::stands(&recorded, *seed))
            }
            Op::Append { lease, append_id, frames } => {
                let frames = durable::said(*append_id, *frames);
                let (handle, append_id) = (lease.handle.clone(), Some(*append_id));
                let body = AppendFramesRequest { handle, frames, append_id };
                let done: AppendFramesOutcome = self.post("/v1/leases/frames", &body).await?;
                Ok(durable::place(&done))
            }
            Op::Report { lease, key, amount } => {
                let usage = limits::usage(key, *amount);
                let (handle, amounts) = (lease.handle.clone(), usage.amounts);
                let (budget_id, dedup_key) = (usage.budget_id, usage.dedup_key);
                let body = ReportUsageRequest { handle, budget_id, amounts, dedup_key };
                let counted: UsageOutcome = self.post("/v1/leases/usage", &body).await?;
                Ok(limits::counted(&counted))
            }
            _ => self.perform_for_many(op).await,
        }
    }

    /// What is about more than one execution.
    async fn perform_for_many(&self, op: &Op) -> Answered<Outcome> {
        match op {
            Op::WatchBudget => {
                let path = format!("/v1/budgets/{}", limits::BUDGET);
                let seen: BudgetSnapshot = self.send(Method::GET, &path, &[], None::<&()>).await?;
                Ok(Outcome::Limit(limits::standing(&seen)))
            }
            Op::WatchQuota => {
                let path = format!("/v1/quotas/{}", limits::QUOTA);
                let seen: QuotaSnapshot = self.send(Method::GET, &path, &[], None::<&()>).await?;
                Ok(Outcome::Limit(limits::permits(&seen)))
            }
            Op::Trigger { schedule, request } => {
                let path = format!("/v1/schedules/{schedule}/trigger");
                let run: TriggerScheduleAnswer = self.post_once(&path, request).await?;
                Ok(Outcome::Accepted { id: run.execution_id.as_str().to_owned() })
            }
            Op::Sweep(sweep) => {
                let filter = BulkFilter {
                    lane_id: Some(LaneId::new(&sweep.lane)),
                    created_from: Some(TimestampMs(sweep.created_from)),
                    ..BulkFilter::default()
                };
                let body = StartBulkRequest { filter, action: many::action(sweep) };
                self.post::<_, Value>("/v1/bulk", &body).await?;
                Ok(Outcome::Done)
            }
            _ => Err(refused("not_played_here")),
        }
    }

    async fn suspend(&self, lease: &Lease, timeout_ms: u64, fails: bool) -> Answered<Outcome> {
        let (handle, suspension) = (lease.handle.clone(), waits::suspension(timeout_ms, fails));
        let body = SuspendRequest { handle, suspension };
        match self.post("/v1/leases/suspend", &body).await? {
            SuspendAnswer::Suspended { waitpoints, .. } => {
                let waitpoint = waitpoints.first().ok_or_else(|| refused("no_waitpoint"))?;
                Ok(Outcome::Suspended { waitpoint: waitpoint.waitpoint_id.0 })
            }
            SuspendAnswer::AlreadySatisfied { .. } => Ok(Outcome::Unchanged),
        }
    }

    /// Declares limits and schedules; says whether it could.
    pub async fn declare(&self) -> bool {
        self.declare_all().await.is_ok()
    }

    async fn declare_all(&self) -> Answered<()> {
        for args in limits::budgets() {
            let path = format!("/v1/budgets/{}", args.budget_id.as_str());
            self.put(&path, &declaration(args)).await?;
        }
        let quota = limits::metered();
        let path = format!("/v1/quotas/{}", quota.quota_id.as_str());
        let (execution_kind, rate) = (quota.execution_kind, quota.rate);
        let concurrency = quota.concurrency;
        let body = QuotaRequest { execution_kind, rate, concurrency, ..QuotaRequest::default() };
        self.put(&path, &body).await?;
        for args in many::schedules() {
            let path = format!("/v1/schedules/{}", args.schedule_id.name);
            self.put(&path, &timetable(args)).await?;
        }
        Ok(())
    }

    async fn put(&self, path: &str, body: &impl Serialize) -> Answered<()> {
        self.send::<_, Value>(Method::PUT, path, &[], Some(body)).await.map(drop)
    }
}

fn timetable(args: PutScheduleArgs) -> ScheduleRequest {
    let (payload, payload_base64) = ff_api::bytes::write(&args.template.input_payload);
    let template = ScheduleTemplate {
        lane_id: args.template.lane_id,
        execution_kind: args.template.execution_kind,
        payload,
        payload_base64,
        ..ScheduleTemplate::default()
    };
    ScheduleRequest {
        timing: args.timing,
        template,
        overlap: args.overlap,
        missed: args.missed,
        jitter_ms: args.jitter_ms,
        starts_at: args.starts_at,
        ends_at: args.ends_at,
    }
}

fn declaration(args: PutBudgetArgs) -> BudgetRequest {
    let PutBudgetArgs { scope, dimensions, estimate, reset_period_ms, on_breach, .. } = args;
    BudgetRequest { scope, dimensions, estimate, reset_period_ms, on_breach }
}

fn graph(args: SubmitFlowArgs) -> SubmitFlowRequest {
    let nodes = args.nodes.into_iter().map(|node| FlowNodeRequest {
        name: node.name,
        work: request(node.work),
        policy: node.policy,
        merge_results: node.merge_results,
    });
    SubmitFlowRequest {
        flow_id: args.flow_id,
        flow_kind: args.flow_kind,
        nodes: nodes.collect(),
        edges: args.edges,
        ..SubmitFlowRequest::default()
    }
}
