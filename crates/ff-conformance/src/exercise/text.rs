//! Texts that no row can have are refused by name, in reads as in writes.

use ff_core::contracts::{
    BulkFilter, ClaimArgs, ListExecutionsArgs, ListFlowsArgs, ListSchedulesArgs, ListWorkersArgs,
    PauseLaneArgs, RevokeLeaseArgs, ScheduleId, WorkerRef,
};
use ff_core::engine_backend::{
    BulkOperations, FlowOperations, LimitOperations, ScheduleOperations, StepOperations,
    WorkerOperations,
};
use ff_core::types::{BudgetId, LaneId, Namespace, WorkerInstanceId};

use super::{Fixture, claim_args, code, item, revoke_args};

/// No stored text has a NUL character, so a call that names one is wrong, whatever it asks for and
/// whatever the store would make of it.
pub async fn nul_characters(f: &Fixture) {
    let (b, nul) = (&f.backend, "a\0b".to_owned());
    let (id, handle) = f.start(item()).await;
    let (namespace, lane) = (Namespace::new(&nul), LaneId::new(&nul));
    let list = |change: &dyn Fn(&mut ListExecutionsArgs)| {
        let mut args = ListExecutionsArgs::default();
        change(&mut args);
        b.list_executions(args)
    };
    let filter = BulkFilter { execution_kind: Some(nul.clone()), ..BulkFilter::default() };
    let schedule = ScheduleId { namespace: Namespace::new("default"), name: nul.clone() };
    let flows = ListFlowsArgs { namespace: Some(namespace.clone()), ..ListFlowsArgs::default() };
    let schedules =
        ListSchedulesArgs { namespace: Some(namespace.clone()), ..ListSchedulesArgs::default() };
    let workers =
        ListWorkersArgs { namespace: Some(namespace.clone()), ..ListWorkersArgs::default() };
    let worker = WorkerRef { namespace: None, worker_instance_id: WorkerInstanceId::new(&nul) };
    let claim = ClaimArgs { lanes: vec![lane.clone()], ..claim_args() };
    let revoke = RevokeLeaseArgs { reason: nul.clone(), ..revoke_args(&id) };
    let tagged = Some(("a.b".to_owned(), nul.clone()));
    let pause = PauseLaneArgs { lane_id: lane.clone(), reason: String::new(), by: String::new() };
    for (what, answer) in [
        ("namespace", code(&list(&|args| args.namespace = Some(namespace.clone())).await)),
        ("lane", code(&list(&|args| args.lane_id = Some(lane.clone())).await)),
        ("kind", code(&list(&|args| args.execution_kind = Some(nul.clone())).await)),
        ("tag", code(&list(&|args| args.tag = tagged.clone()).await)),
        ("bulk", code(&b.preview_bulk(filter).await)),
        ("flows", code(&b.list_flows(flows).await)),
        ("schedules", code(&b.list_schedules(schedules).await)),
        ("schedule", code(&b.describe_schedule(&schedule, 1).await)),
        ("delete schedule", code(&b.delete_schedule(&schedule).await)),
        ("workers", code(&b.list_workers(workers).await)),
        ("worker", code(&b.heartbeat_worker(&worker).await)),
        ("budgets", code(&b.list_budgets(&namespace, None, 10).await)),
        (
            "budgets after",
            code(&b.list_budgets(&Namespace::new("n"), Some(&BudgetId::new(&nul)), 10).await),
        ),
        ("quotas", code(&b.list_quotas(&namespace, None, 10).await)),
        ("claim", code(&b.claim_many(claim).await)),
        ("pause", code(&b.pause_lane(pause).await)),
        ("resume", code(&b.resume_lane(&lane, "").await)),
        ("revoke", code(&b.revoke_lease(revoke).await)),
        ("cancel", code(&b.cancel(&handle, &nul).await)),
        ("step", code(&b.record_step(&handle, &nul, Vec::new()).await)),
    ] {
        assert_eq!(answer, "invalid_input", "{what}");
    }
}
