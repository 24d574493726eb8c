//! The keys behind waitpoint tokens: which one makes them, and which are still taken.

use axum::http::Method;
use ff_api::{RotateWaitpointSecretRequest, Scope, WaitpointKeysAnswer};
use ff_core::contracts::{
    Listed, RotateWaitpointSecretArgs, RotateWaitpointSecretResult, SeedWaitpointSecretResult,
};
use ff_core::engine_backend::SuspensionOperations;

use crate::call::{Answer, Call};
use crate::refusal::Answered;
use crate::route::{Nothing, Reach, Route};

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::GET, "/v1/waitpoint-keys"),
            ("list_waitpoint_keys", "Every key that tokens have been made with."),
            Scope::Admin,
            list,
        )
        .reach(Reach::Everything),
        Route::new(
            (Method::POST, "/v1/waitpoint-keys/{kid}/seed"),
            ("seed_waitpoint_secret", "Says which key makes tokens, if nobody has said so yet."),
            Scope::Admin,
            seed,
        )
        .reach(Reach::Everything),
        Route::new(
            (Method::POST, "/v1/waitpoint-keys/{kid}/rotate"),
            ("rotate_waitpoint_secret", "Makes tokens with another configured secret."),
            Scope::Admin,
            rotate,
        )
        .reach(Reach::Everything),
    ]
}

async fn list(call: Call<Nothing, Nothing>) -> Answered<Answer<WaitpointKeysAnswer>> {
    let Listed { items: keys, unreadable } = call.door.backend().list_waitpoint_keys().await?;
    Ok(Answer::json(WaitpointKeysAnswer { keys, unreadable }))
}

async fn seed(call: Call<Nothing, Nothing>) -> Answered<Answer<SeedWaitpointSecretResult>> {
    let kid = call.param("kid");
    Ok(Answer::json(call.door.backend().seed_waitpoint_secret(kid).await?))
}

async fn rotate(
    call: Call<Nothing, RotateWaitpointSecretRequest>,
) -> Answered<Answer<RotateWaitpointSecretResult>> {
    let grace = call.body.grace.0.as_millis();
    let args = RotateWaitpointSecretArgs {
        new_kid: call.param("kid").to_owned(),
        grace_ms: u64::try_from(grace).unwrap_or(u64::MAX),
    };
    let rotated = call.door.backend().rotate_waitpoint_secret(args).await?;
    let (remote, request_id) = (call.remote, &*call.request_id);
    tracing::info!(kid = call.param("kid"), %remote, request_id, "waitpoint keys were rotated");
    Ok(Answer::json(rotated))
}
