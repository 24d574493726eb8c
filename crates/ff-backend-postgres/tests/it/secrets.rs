//! Waitpoint tokens between engines on one schema that were not given the same secrets.

use std::sync::Arc;
use std::time::Duration;

use ff_backend_postgres::PostgresBackend;
use ff_core::condition::ResumeCondition;
use ff_core::contracts::{
    DeliverSignalArgs, RotateWaitpointSecretArgs, SignalTarget, Submission, SuspendArgs,
    SuspendOutcome,
};
use ff_core::engine_backend::{EngineBackend, SuspensionOperations};
use ff_core::engine_error::EngineError;
use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets, WaitpointToken};

use crate::database::{Schema, claim_from, pool, url};

async fn with_secrets(schema: &Schema, secrets: &[(&str, u8)]) -> Arc<PostgresBackend> {
    let mut options = schema.options();
    let secret = |(kid, byte): &(&str, u8)| {
        WaitpointSecret::new(*kid, Secret::new([*byte; 32])).expect("a good secret")
    };
    options.engine.waitpoint_secrets =
        WaitpointSecrets::new(secrets.iter().map(secret)).expect("good secrets");
    PostgresBackend::open(options).await.expect("open")
}

/// Suspends a new execution until somebody says yes.
async fn wait_for_yes(engine: &PostgresBackend) -> Result<WaitpointToken, EngineError> {
    engine.submit(vec![Submission::new("waits", "test")]).await.expect("submit");
    let claim = claim_from("waits", 1, Duration::from_secs(10));
    let claimed = engine.claim_many(claim).await.expect("claim").remove(0);
    let args = SuspendArgs::new(ResumeCondition::single("gate", "yes"));
    match engine.suspend(&claimed.handle, args).await {
        Ok(SuspendOutcome::Suspended(details)) => {
            Ok(details.waitpoints[0].token.clone().expect("a token"))
        }
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            engine.complete(&claimed.handle, None).await.expect("the lease is still held");
            Err(error)
        }
    }
}

async fn say_yes(engine: &PostgresBackend, token: &WaitpointToken) -> &'static str {
    let target = SignalTarget::Token(token.clone());
    match engine.deliver_signal(DeliverSignalArgs::new(target, "yes")).await {
        Ok(_) => "ok",
        Err(error) => error.code(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_has_the_secret_makes_and_takes_tokens() {
    let schema = Schema::new();
    let own = with_secrets(&schema, &[("k1", 1), ("k2", 2)]).await;
    let same = with_secrets(&schema, &[("k1", 1)]).await;
    let wrong = with_secrets(&schema, &[("k1", 9)]).await;

    let token = wait_for_yes(&own).await.expect("suspended");
    assert_eq!(say_yes(&wrong, &token).await, "invalid_token");
    assert_eq!(say_yes(&same, &token).await, "ok");
    let view = format!(
        "SELECT count(*), count(signal_id), count(waitpoint_id) FROM {}.ff_signal_event",
        schema.0
    );
    let pool = pool(&url(), 1).await;
    let told: (i64, i64, i64) = sqlx::query_as(&view).fetch_one(&pool).await.expect("the view");
    assert_eq!(told, (1, 1, 1), "one delivery, and none of the refused ones");
    pool.close().await;
    // What it made nobody else would take, so it makes nothing.
    let refused = wait_for_yes(&wrong).await.expect_err("another secret under the same name");
    assert_eq!(refused.code(), "waitpoint_secret_missing");

    let old = wait_for_yes(&same).await.expect("suspended");
    let rotate = RotateWaitpointSecretArgs { new_kid: "k2".into(), grace_ms: 600_000 };
    own.rotate_waitpoint_secret(rotate).await.expect("rotated");
    let new = wait_for_yes(&own).await.expect("suspended");
    assert_eq!(say_yes(&same, &new).await, "invalid_token", "it was not given the new secret");
    let refused = wait_for_yes(&same).await.expect_err("it was not given the new secret");
    assert_eq!(refused.code(), "waitpoint_secret_missing");
    assert_eq!(say_yes(&own, &new).await, "ok");
    assert_eq!(say_yes(&own, &old).await, "ok", "within the grace");
    for engine in [own, same, wrong] {
        engine.close().await;
    }
    schema.drop().await;
}
