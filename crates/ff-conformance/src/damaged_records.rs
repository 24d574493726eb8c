//! Records that were damaged by SQL: every list of them goes on and names the one that cannot be
//! read with its column, and a read of that one alone is an error that names it too.

use std::collections::BTreeMap;
use std::time::Duration;

use ff_core::contracts::{
    BulkAction, BulkFilter, CreateTokenArgs, CreateWaitpointArgs, CreateWebhookArgs,
    DeliverSignalArgs, DimensionLimits, EventType, FlowEdge, FlowGraphArgs, FlowNode, ListBulkArgs,
    ListSchedulesArgs, ListSignalsArgs, ListWaitpointsArgs, ListWorkersArgs, PutBudgetArgs,
    PutQuotaArgs, PutScheduleArgs, RegisterWorkerArgs, ScheduleId, ScheduleTemplate, SignalTarget,
    StartBulkArgs, Submission, SubmitFlowArgs, Timing, UnreadableRecord,
};
use ff_core::engine_backend::{
    BulkOperations, EngineBackend, FlowOperations, LimitOperations, ScheduleOperations,
    StepOperations, SuspensionOperations, TokenOperations, WebhookOperations, WorkerOperations,
};
use ff_core::engine_error::EngineError;
use ff_core::types::{
    BudgetId, ExecutionId, FlowId, LaneId, Namespace, QuotaId, WorkerId, WorkerInstanceId,
};
use uuid::Uuid;

use crate::exercise::claim_from;

/// Each table, the damage to one of its two rows, and the column that is then unreadable.
const DAMAGE: &[(&str, &str, &str)] = &[
    ("ff_schedule", "definition = '{}' WHERE schedule_name = 'two'", "definition"),
    ("ff_limit", "rule = '{}' WHERE name = 'two'", "rule"),
    ("ff_limit_state", "waiting = -1", "waiting"),
    ("ff_webhook", "event_types = '{}' WHERE name = 'two'", "event_types"),
    ("ff_webhook_delivery", "number = -1 WHERE slot = 2", "number"),
    ("ff_api_token", "scopes = '{}' WHERE name = 'two'", "scopes"),
    ("ff_worker", "lanes = 'odd' WHERE worker_instance_id = 'two'", "lanes"),
    ("ff_step", "sequence = -1 WHERE step_name = 'two'", "sequence"),
    ("ff_waitpoint", "signal_names = 'odd' WHERE waitpoint_key = 'two'", "signal_names"),
    ("ff_signal", "suspension = -1 WHERE signal_name = 'two'", "suspension"),
    ("ff_bulk", FIRST_BULK, "state"),
    ("ff_bulk_failure", "number = -1 WHERE number = 2", "number"),
    ("ff_edge", FIRST_EDGE, "counted_version"),
];

const FIRST_BULK: &str = "state = 'odd' WHERE bulk_id = \
    (SELECT bulk_id FROM ff_bulk ORDER BY rank, bulk_id LIMIT 1)";

const FIRST_EDGE: &str = "counted_version = -1 WHERE edge_id = \
    (SELECT edge_id FROM ff_edge ORDER BY edge_id LIMIT 1)";

/// What the lists are asked for.
struct Ids {
    execution: ExecutionId,
    webhook: Uuid,
    bulk: Uuid,
    flow: FlowId,
}

/// How many whole rows a list shows, and those that it names as unreadable.
type Seen = (usize, Vec<UnreadableRecord>);

/// Damages one row of each table and reads every list of it. `sql` runs a statement.
pub async fn records_are_named<B: EngineBackend>(backend: &B, sql: impl AsyncFn(String)) {
    let ids = rows(backend, &sql).await;
    for (table, damage, column) in DAMAGE {
        let (whole, named) = list(backend, table, &ids).await.unwrap();
        assert_eq!(named, [], "{table}");
        sql(format!("UPDATE {table} SET {damage}")).await;
        let (left, named) = list(backend, table, &ids).await.expect(table);
        assert_eq!((left + 1, named.len()), (whole, 1), "{table}");
        assert_eq!(named[0].table, *table);
        let told = format!("{column} cannot be read: ");
        assert!(named[0].detail.starts_with(&told), "{table}: {}", named[0].detail);
        assert!(!named[0].key.is_empty() && !named[0].key.contains('?'), "{named:?}");
    }
    singles(backend, &ids).await;
}

async fn singles(backend: &impl EngineBackend, ids: &Ids) {
    let default = Namespace::new("default");
    let schedule = ScheduleId::new("default", "two");
    let reads = [
        ("ff_schedule", "definition", backend.describe_schedule(&schedule, 0).await.err()),
        ("ff_limit", "rule", backend.get_budget(&default, &BudgetId::new("two")).await.err()),
        ("ff_limit", "rule", backend.get_quota(&default, &QuotaId::new("two")).await.err()),
        ("ff_webhook", "event_types", backend.describe_webhook(ids.webhook).await.err()),
        ("ff_bulk", "state", backend.describe_bulk(ids.bulk).await.err()),
    ];
    for (table, column, error) in reads {
        let error = error.unwrap_or_else(|| panic!("{table} can be read"));
        assert_eq!(error.code(), "corruption", "{table}");
        let told = error.to_string();
        assert!(told.contains(table) && told.contains(column), "{told}");
    }
}

async fn list(backend: &impl EngineBackend, table: &str, ids: &Ids) -> Result<Seen, EngineError> {
    let default = &Namespace::new("default");
    Ok(match table {
        "ff_schedule" => {
            let page = backend.list_schedules(ListSchedulesArgs::default()).await?;
            (page.schedules.len(), page.unreadable)
        }
        // Budgets and quotas share a table, and one of each is damaged at once.
        "ff_limit" => {
            let quotas = backend.list_quotas(default, None, 10).await?;
            let budgets = backend.list_budgets(default, None, 10).await?;
            assert_eq!(
                (quotas.len(), &quotas.unreadable.len()),
                (budgets.len(), &budgets.unreadable.len())
            );
            (budgets.items.len(), budgets.unreadable)
        }
        "ff_limit_state" => {
            let mut budgets = backend.list_budgets(default, None, 10).await?;
            budgets.unreadable.retain(|record| record.table == table);
            (budgets.items.len(), budgets.unreadable)
        }
        "ff_webhook" => {
            let webhooks = backend.list_webhooks(Some(default), None, 10).await?;
            assert_eq!(webhooks, backend.list_webhooks(None, None, 10).await?);
            (webhooks.items.len(), webhooks.unreadable)
        }
        "ff_webhook_delivery" => {
            let webhooks = backend.list_webhooks(None, None, 10).await?;
            let listed = backend.list_webhook_deliveries(webhooks[0].webhook_id).await?;
            (listed.items.len(), listed.unreadable)
        }
        "ff_api_token" => {
            let tokens = backend.list_tokens(None, 10).await?;
            (tokens.items.len(), tokens.unreadable)
        }
        "ff_worker" => {
            let workers = backend.list_workers(ListWorkersArgs::default()).await?;
            (workers.items.len(), workers.unreadable)
        }
        "ff_bulk" => {
            let page = backend.list_bulk(ListBulkArgs::default()).await?;
            (page.operations.len(), page.unreadable)
        }
        "ff_bulk_failure" => {
            let page = backend.list_bulk(ListBulkArgs::default()).await?;
            let id = page.operations[0].bulk_id;
            let page = backend.list_bulk_failures(id, None, 10).await?;
            (page.failures.len(), page.unreadable)
        }
        "ff_edge" => {
            let args = FlowGraphArgs { flow_id: ids.flow, cursor: None, limit: 0 };
            let graph = backend.flow_graph(args).await?;
            (graph.edges.len(), graph.unreadable)
        }
        other => return list_of_one(backend, other, ids).await,
    })
}

/// The lists of one execution.
async fn list_of_one(
    backend: &impl EngineBackend,
    table: &str,
    ids: &Ids,
) -> Result<Seen, EngineError> {
    Ok(match table {
        "ff_step" => {
            let steps = backend.list_steps(&ids.execution, 0, 10).await?;
            (steps.items.len(), steps.unreadable)
        }
        "ff_waitpoint" => {
            let of_one = ListWaitpointsArgs {
                execution_id: Some(ids.execution.clone()),
                ..ListWaitpointsArgs::default()
            };
            let page = backend.list_waitpoints(of_one).await?;
            let of_all = ListWaitpointsArgs {
                namespace: Some(Namespace::new("default")),
                ..ListWaitpointsArgs::default()
            };
            assert_eq!(backend.list_waitpoints(of_all).await?.unreadable, page.unreadable);
            (page.waitpoints.len(), page.unreadable)
        }
        "ff_signal" => {
            let execution_id = ids.execution.clone();
            let args = ListSignalsArgs { execution_id, after: 0, limit: 10 };
            let signals = backend.list_signals(args).await?;
            (signals.items.len(), signals.unreadable)
        }
        other => panic!("nothing lists {other}"),
    })
}

/// Two rows of each kind, the second of which will be damaged.
async fn rows<B: EngineBackend>(backend: &B, sql: &impl AsyncFn(String)) -> Ids {
    let mut webhook = Uuid::nil();
    for (at, name) in ["one", "two"].into_iter().enumerate() {
        limits(backend, name).await;
        let timing = Timing::every(Duration::from_secs(3_600));
        let id = ScheduleId::new("default", name);
        let schedule = PutScheduleArgs::new(id, timing, ScheduleTemplate::new("lane", "kind"));
        backend.put_schedule(schedule).await.unwrap();
        let args = CreateWebhookArgs {
            namespace: Namespace::new("default"),
            name: name.into(),
            url: format!("https://example.com/{name}"),
            event_types: vec![EventType::Submitted],
            lane_id: None,
            secret: vec![1; 32],
            created_by: "root".into(),
        };
        webhook = backend.create_webhook(args).await.unwrap().webhook_id;
        let token = CreateTokenArgs {
            hash: [at as u8 + 1; 32],
            name: name.into(),
            scopes: vec!["read".into()],
            namespaces: vec!["default".into()],
            created_by: "root".into(),
            expires_in: None,
        };
        backend.create_token(token).await.unwrap();
        let worker = RegisterWorkerArgs {
            worker_id: WorkerId::new("program"),
            worker_instance_id: WorkerInstanceId::new(name),
            namespace: None,
            lanes: [LaneId::new("lane")].into(),
            capabilities: Default::default(),
            liveness_ttl_ms: 600_000,
        };
        backend.register_worker(worker).await.unwrap();
        let filter = BulkFilter { lane_id: Some(LaneId::new("none")), ..BulkFilter::default() };
        let action = BulkAction::SetTags { tags: BTreeMap::from([("a.b".into(), None)]) };
        let args = StartBulkArgs { filter, action, by: String::new(), request_id: None };
        backend.start_bulk(args).await.unwrap();
    }
    for number in [1, 2] {
        sql(format!(
            "INSERT INTO ff_webhook_delivery (webhook_id, slot, number, event_id, event_type, \
             at_ms, duration_ms) SELECT webhook_id, {number}, {number}, 'e', 'submitted', 0, 1 \
             FROM ff_webhook"
        ))
        .await;
        sql(format!(
            "INSERT INTO ff_bulk_failure (bulk_id, number, partition_key, execution_id, code, \
             reason) SELECT bulk_id, {number}, 0, bulk_id, 'code', 'reason' FROM ff_bulk"
        ))
        .await;
    }
    let page = backend.list_bulk(ListBulkArgs::default()).await.unwrap();
    let bulk = page.operations[0].bulk_id;
    let execution = execution(backend).await;
    Ids { execution, webhook, bulk, flow: flow(backend).await }
}

async fn limits(backend: &impl EngineBackend, name: &str) {
    let limits = DimensionLimits { hard: Some(10), soft: None };
    let budget = PutBudgetArgs {
        namespace: Namespace::new("default"),
        budget_id: BudgetId::new(name),
        dimensions: BTreeMap::from([("tokens".to_owned(), limits)]),
        ..PutBudgetArgs::default()
    };
    backend.put_budget(budget).await.unwrap();
    let quota = PutQuotaArgs {
        namespace: Namespace::new("default"),
        quota_id: QuotaId::new(name),
        lane_id: Some(LaneId::new("elsewhere")),
        concurrency: Some(1),
        ..PutQuotaArgs::default()
    };
    backend.put_quota(quota).await.unwrap();
}

/// An execution with steps, waitpoints and signals.
async fn execution(backend: &impl EngineBackend) -> ExecutionId {
    backend.submit(vec![Submission::new("records", "kind")]).await.unwrap();
    let claimed = backend.claim_many(claim_from("records")).await.unwrap().remove(0);
    for name in ["one", "two"] {
        backend.record_step(&claimed.handle, name, vec![1]).await.unwrap();
        let plain = CreateWaitpointArgs::new(name, Duration::from_secs(600));
        let args = CreateWaitpointArgs { token: None, ..plain };
        let made = backend.create_waitpoint(&claimed.handle, args).await.unwrap().waitpoint;
        let target = SignalTarget::Waitpoint {
            execution_id: claimed.execution_id.clone(),
            waitpoint_id: made.waitpoint_id,
        };
        backend.deliver_signal(DeliverSignalArgs::new(target, name)).await.unwrap();
    }
    claimed.execution_id
}

async fn flow(backend: &impl EngineBackend) -> FlowId {
    let node = |name: &str| FlowNode::new(name, Submission::new("flow", "kind"));
    let args = SubmitFlowArgs {
        namespace: Namespace::new("default"),
        flow_kind: "kind".into(),
        nodes: ["a", "b", "c"].map(node).to_vec(),
        edges: vec![FlowEdge::new("a", "c"), FlowEdge::new("b", "c")],
        ..SubmitFlowArgs::default()
    };
    backend.submit_flow(args).await.unwrap().flow_id()
}
