//! Submitting inside somebody's own transaction, from Rust and from SQL.

use std::time::Duration;

use ff_backend_postgres::PostgresBackend;
use ff_core::contracts::{EventType, Idempotency, IdempotencyScope, Submission, SubmitOutcome};
use ff_core::engine_backend::EngineBackend;
use ff_core::limits;
use ff_core::partition::PartitionConfig;
use ff_core::state::PublicState;
use ff_core::types::{ExecutionId, LaneId};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::database::{Schema, claim_from, url};

/// The user's own pool on the engine's schema.
async fn own_pool(schema: &Schema) -> PgPool {
    let options: PgConnectOptions = url().parse().expect("the URL");
    let options = options.options([("search_path", &schema.0)]);
    PgPoolOptions::new().max_connections(4).connect_with(options).await.expect("connect")
}

async fn types(backend: &PostgresBackend, id: &ExecutionId) -> Vec<EventType> {
    let history = backend.history(id, 0, 100).await.expect("history");
    history.into_iter().map(|event| event.event_type).collect()
}

async fn claim(backend: &PostgresBackend, lane: &str) -> Vec<ExecutionId> {
    let claimed = backend.claim_many(claim_from(lane, 10, Duration::ZERO)).await.expect("claim");
    claimed.into_iter().map(|one| one.execution_id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_share_the_fate_of_the_transaction() {
    let schema = Schema::new();
    let backend = schema.open().await;
    let pool = own_pool(&schema).await;
    sqlx::query("CREATE TABLE orders (id int)").execute(&pool).await.expect("create");

    let mut rolled_back = pool.begin().await.expect("begin");
    let outcomes = backend.submit_in(&mut rolled_back, vec![Submission::new("lane", "kind")]).await;
    assert!(matches!(outcomes.expect("submit")[..], [SubmitOutcome::Created { .. }]));
    rolled_back.rollback().await.expect("roll back");
    assert!(claim(&backend, "lane").await.is_empty());

    let mut transaction = pool.begin().await.expect("begin");
    sqlx::query("INSERT INTO orders VALUES (1)").execute(&mut *transaction).await.expect("insert");
    let item = Submission::new("lane", "kind").payload("bytes").tag("a.b", "c");
    let outcomes = backend.submit_in(&mut transaction, vec![item]).await.expect("submit");
    let id = outcomes[0].execution_id().expect("an id").clone();

    // The open transaction delays nobody, not in the same lane either.
    let others = backend.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    assert_eq!(claim(&backend, "lane").await, [others[0].execution_id().unwrap().clone()]);
    assert!(backend.describe_execution(&id).await.expect("describe").is_none());

    transaction.commit().await.expect("commit");
    assert_eq!(claim(&backend, "lane").await, std::slice::from_ref(&id));
    assert_eq!(types(&backend, &id).await, [EventType::Submitted, EventType::Claimed]);
    assert_eq!(&*backend.payload(&id).await.unwrap().unwrap(), b"bytes");
    backend.close().await;
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_claims_is_announced() {
    let schema = Schema::new();
    let backend = schema.open().await;
    let pool = own_pool(&schema).await;
    let mut transaction = pool.begin().await.expect("begin");
    let item = Submission::new("new-lane", "kind").delay(Duration::from_secs(3600));
    let outcomes = backend.submit_in(&mut transaction, vec![item]).await.expect("submit");
    transaction.commit().await.expect("commit");
    let id = outcomes[0].execution_id().expect("an id");
    backend.engine().sweep().await.expect("sweep");
    assert_eq!(types(&backend, id).await, [EventType::Submitted]);
    let snapshot = backend.describe_execution(id).await.unwrap().unwrap();
    assert_eq!((snapshot.public_state, snapshot.version), (PublicState::Delayed, 1));
    let lanes = backend.list_lanes().await.expect("lanes");
    assert!(lanes.iter().any(|lane| lane.lane_id.as_str() == "new-lane"));
    backend.close().await;
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_taken_leaves_the_transaction_usable() {
    let schema = Schema::new();
    let backend = schema.open().await;
    let pool = own_pool(&schema).await;
    let keyed = || {
        let idempotency = Idempotency { key: "key".into(), scope: IdempotencyScope::Default };
        Submission { idempotency: Some(idempotency), ..Submission::new("lane", "kind") }
    };
    let first = backend.submit(vec![keyed()]).await.expect("submit");
    let mut transaction = pool.begin().await.expect("begin");
    let second = backend.submit_in(&mut transaction, vec![keyed()]).await.expect("submit");
    assert!(matches!(&second[0], SubmitOutcome::Duplicate { .. }), "{second:?}");
    assert_eq!(second[0].execution_id(), first[0].execution_id());
    sqlx::query("SELECT 1").execute(&mut *transaction).await.expect("it goes on");
    transaction.commit().await.expect("commit");
    backend.close().await;
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_submits_as_rust_does() {
    let schema = Schema::new();
    let backend = schema.open().await;
    let pool = own_pool(&schema).await;
    let submit = |sql: &'static str| {
        let pool = pool.clone();
        async move { sqlx::query_scalar::<_, String>(sql).fetch_one(&pool).await }
    };
    // A worker that waits already is woken by the commit.
    let waiting = backend.clone();
    let waits = tokio::spawn(async move {
        waiting.claim_many(claim_from("lane", 1, Duration::from_secs(30))).await.expect("claim")
    });
    let id = submit("SELECT ff_submit('lane', 'kind', 'bytes'::bytea, priority => 7)").await;
    let id = ExecutionId::parse(&id.expect("submit")).expect("an id");
    let home = ExecutionId::solo(&LaneId::new("lane"), &PartitionConfig::default()).partition();
    assert_eq!(id.partition(), home);
    let claimed = tokio::time::timeout(Duration::from_secs(10), waits).await;
    let claimed = claimed.expect("the waiting worker was not woken").expect("claim");
    assert_eq!((&claimed[0].execution_id, &*claimed[0].payload), (&id, &b"bytes"[..]));
    assert_eq!(types(&backend, &id).await, [EventType::Submitted, EventType::Claimed]);

    // The same key and body in both languages is the same work, another body is refused.
    let keyed = "SELECT ff_submit('lane', 'kind', 'x'::bytea, idempotency_key => 'key')";
    let first = submit(keyed).await.expect("submit");
    assert_eq!(submit(keyed).await.expect("submit"), first);
    let idempotency = Idempotency { key: "key".into(), scope: IdempotencyScope::Default };
    let same = Submission {
        idempotency: Some(idempotency),
        ..Submission::new("lane", "kind").payload("x")
    };
    let same = backend.submit(vec![same]).await.expect("submit").remove(0);
    assert!(matches!(&same, SubmitOutcome::Duplicate { .. }), "{same:?}");
    assert_eq!(same.execution_id().unwrap().as_str(), first);
    submit("SELECT ff_submit('lane', 'kind', 'y'::bytea, idempotency_key => 'key')")
        .await
        .expect_err("another body");

    let delayed = submit("SELECT ff_submit('lane', 'kind', delay_ms => 1)").await.expect("submit");
    let delayed = ExecutionId::parse(&delayed).expect("an id");
    for bad in [
        "SELECT ff_submit('', 'kind')",
        "SELECT ff_submit(E'a\\nb', 'kind')",
        "SELECT ff_submit('lane', '')",
        "SELECT ff_submit('lane', 'kind', namespace => '')",
        "SELECT ff_submit('lane', 'kind', delay_ms => -1)",
        "SELECT ff_submit('lane', 'kind', tags => '[]')",
        "SELECT ff_submit('lane', 'kind', tags => '{\"a.b\": 1}')",
    ] {
        submit(bad).await.expect_err(bad);
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while backend.describe_execution(&delayed).await.unwrap().unwrap().public_state
        != PublicState::Waiting
    {
        assert!(tokio::time::Instant::now() < deadline, "the delay is not over");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    backend.close().await;
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_keeps_nobody_from_finishing() {
    let schema = Schema::new();
    let backend = schema.open().await;
    let pool = own_pool(&schema).await;
    let keyed = || {
        let scope = IdempotencyScope::UntilFinished;
        let idempotency = Some(Idempotency { key: "key".into(), scope });
        Submission { idempotency, ..Submission::new("lane", "kind") }
    };
    backend.submit(vec![keyed()]).await.expect("submit");
    let claimed = backend.claim_many(claim_from("lane", 1, Duration::ZERO)).await.expect("claim");
    let mut open = pool.begin().await.expect("begin");
    let again = backend.submit_in(&mut open, vec![keyed()]).await.expect("submit");
    assert!(matches!(&again[0], SubmitOutcome::Duplicate { .. }), "{again:?}");
    let sql = "SELECT ff_submit('lane', 'kind', idempotency_key => 'key')";
    let id: String = sqlx::query_scalar(sql).fetch_one(&mut *open).await.expect("submit");
    assert_eq!(Some(id.as_str()), again[0].execution_id().map(ExecutionId::as_str));
    backend.complete(&claimed[0].handle, None).await.expect("it gives its key back");
    open.rollback().await.expect("roll back");
    backend.close().await;
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_stands_in_nobodys_way() {
    let schema = Schema::new();
    let backend = schema.open().await;
    let pool = own_pool(&schema).await;
    let insert = "INSERT INTO ff_exec_core (partition_key, execution_id, namespace, lane_id, \
                  attempt_index, lifecycle_phase, version) \
                  VALUES (0, gen_random_uuid(), 'default', 'lane', -1, 'runnable', 1)";
    sqlx::query(insert).execute(&pool).await.expect("insert");
    let outcomes = backend.submit(vec![Submission::new("lane", "kind")]).await.expect("submit");
    let args = claim_from("lane", 1, Duration::ZERO);
    let claimed = backend.claim_many(args).await.expect("claim");
    assert_eq!(Some(&claimed[0].execution_id), outcomes[0].execution_id());
    backend.close().await;
    schema.drop().await;
}

/// Submissions at and just beyond each limit, by name.
fn edge_cases() -> Vec<(String, Submission)> {
    let item = || Submission::new("lane", "kind");
    let text = |bytes: usize| "x".repeat(bytes);
    let horizon = limits::HORIZON;
    let mut cases = vec![
        ("plain".to_owned(), item()),
        ("namespace with umlauts".to_owned(), item().namespace("büro")),
        ("namespace with a control character".to_owned(), item().namespace("a\u{85}b")),
        ("lane beyond ASCII".to_owned(), Submission::new("büro", "kind")),
        ("low priority".to_owned(), item().priority(-5)),
        ("high priority".to_owned(), item().priority(1_000_000)),
    ];
    for over in [0, 1] {
        let mut case = |what: &str, item| cases.push((format!("{what}, {over} over"), item));
        case("lane", Submission::new(text(limits::LANE_BYTES + over), "kind"));
        case("kind", Submission::new("lane", text(limits::KIND_BYTES + over)));
        case("namespace", item().namespace(text(limits::NAME_BYTES + over)));
        case("payload", item().payload(vec![7; PAYLOAD + over]));
        case("delay", item().delay(horizon + Duration::from_millis(over as u64)));
        let creator_identity = text(limits::NAME_BYTES + over);
        case("creator", Submission { creator_identity, ..item() });
        case("tag value", item().tag("a.b", text(limits::TAG_VALUE_BYTES + over)));
        let key = format!("a.{}", text(limits::TAG_KEY_BYTES - 2 + over));
        case("tag key", item().tag(key, "v"));
        let many = (0..limits::TAGS + over).fold(item(), |item, n| item.tag(format!("a.t{n}"), ""));
        case("tags", many);
        let key = text(limits::IDEMPOTENCY_KEY_BYTES + over);
        let idempotency = Some(Idempotency { key, scope: IdempotencyScope::Default });
        case("key", Submission { idempotency, ..item() });
    }
    for key in ["a", "A.b", "a.", "a..b", ".a", "1a.b", "a.b.c", "a_1.b_2", "a.b-c"] {
        cases.push((format!("tag {key:?}"), item().tag(key, "v")));
    }
    cases
}

const PAYLOAD: usize = 2_000;

/// What is accepted and what is stored is the same by both doors, with limits and partitions that
/// are not the usual ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_doors_have_the_same_rules() {
    let schema = Schema::new();
    let mut options = schema.options();
    options.engine.limits.payload_bytes = PAYLOAD;
    options.partitions = PartitionConfig { num_flow_partitions: 64, ..PartitionConfig::default() };
    let backend = PostgresBackend::open(options).await.expect("open");
    let pool = own_pool(&schema).await;
    let stored = "SELECT (to_jsonb(e) - 'execution_id' - 'created_at_ms' - 'not_before_ms' \
                  - 'version' - 'announced' - 'lease_epoch' || jsonb_build_object('delay', \
                  coalesce(not_before_ms - created_at_ms, 0)))::text \
                  FROM ff_exec_core AS e WHERE execution_id = $1";
    for (what, item) in edge_cases() {
        let key = item.idempotency.as_ref().map(|own| own.key.clone());
        let by_sql = sqlx::query_scalar::<_, String>(
            "SELECT ff_submit($1, $2, $3, namespace => $4, priority => $5, delay_ms => $6, \
             idempotency_key => $7, tags => $8::text::jsonb, creator => $9)",
        )
        .bind(item.lane_id.as_str())
        .bind(&item.execution_kind)
        .bind(item.input_payload.to_vec())
        .bind(item.namespace.as_str())
        .bind(item.priority)
        .bind(item.delay.unwrap_or_default().as_millis() as i64)
        .bind(key)
        .bind(serde_json::to_string(&item.tags).unwrap())
        .bind(&item.creator_identity)
        .fetch_one(&pool)
        .await;
        // The key is free again for the other door.
        sqlx::query("DELETE FROM ff_idempotency").execute(&pool).await.expect("delete");
        let by_rust = backend.submit(vec![item]).await.expect("submit").remove(0);
        let accepted = matches!(by_rust, SubmitOutcome::Created { .. });
        assert_eq!(by_sql.is_ok(), accepted, "{what}: {by_sql:?} and {by_rust:?}");
        if let (Ok(by_sql), Some(by_rust)) = (by_sql, by_rust.execution_id()) {
            let by_sql = ExecutionId::parse(&by_sql).expect("an id");
            let mut rows = Vec::new();
            for id in [&by_sql, by_rust] {
                let row = sqlx::query_scalar::<_, String>(stored).bind(id.uuid());
                rows.push(row.fetch_one(&pool).await.expect("the row"));
            }
            assert_eq!(rows[0], rows[1], "{what}");
        }
        sqlx::query("DELETE FROM ff_idempotency").execute(&pool).await.expect("delete");
    }
    backend.close().await;
    schema.drop().await;
}
