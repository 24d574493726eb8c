//! Webhooks: made, looked at, stopped, started and forgotten. A secret is shown once.

use axum::http::Method;
use ff_api::{
    CreateWebhookRequest, CreatedWebhook, RotateWebhookSecretRequest, Scope,
    WebhookDeliveriesAnswer, WebhooksAnswer,
};
use ff_core::contracts::{CreateWebhookArgs, Listed, RotateWebhookSecretArgs, WebhookSnapshot};
use ff_core::engine_backend::WebhookOperations;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{Nothing, Route};
use crate::webhooks::secret::{self, Minted};
use crate::wire;

pub fn routes() -> Vec<Route> {
    let mut routes = vec![
        Route::new(
            (Method::POST, "/v1/webhooks"),
            ("create_webhook", "Tells a receiver of events from now on; shows its secret."),
            Scope::Admin,
            create,
        )
        .remembered_by_nobody()
        .success(201),
        Route::new(
            (Method::GET, "/v1/webhooks"),
            ("list_webhooks", "The webhooks of the namespace; of all with `namespace=*`."),
            Scope::Admin,
            list,
        ),
        Route::new(
            (Method::GET, "/v1/webhooks/{webhook_id}"),
            ("describe_webhook", "The webhook and how far it has come."),
            Scope::Admin,
            describe,
        ),
        Route::new(
            (Method::DELETE, "/v1/webhooks/{webhook_id}"),
            ("delete_webhook", "Forgets the webhook."),
            Scope::Admin,
            delete,
        ),
    ];
    routes.extend(change_routes());
    routes
}

fn change_routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::GET, "/v1/webhooks/{webhook_id}/deliveries"),
            ("list_webhook_deliveries", "The last attempts, the newest first."),
            Scope::Admin,
            deliveries,
        ),
        Route::new(
            (Method::POST, "/v1/webhooks/{webhook_id}/pause"),
            ("pause_webhook", "Delivers nothing until it is resumed."),
            Scope::Admin,
            pause,
        ),
        Route::new(
            (Method::POST, "/v1/webhooks/{webhook_id}/resume"),
            ("resume_webhook", "Goes on with what was not delivered, at once."),
            Scope::Admin,
            resume,
        ),
        Route::new(
            (Method::POST, "/v1/webhooks/{webhook_id}/rotate"),
            ("rotate_webhook_secret", "Signs with another secret, which is shown here."),
            Scope::Admin,
            rotate,
        )
        .remembered_by_nobody(),
    ]
}

fn mint<Q, B>(call: &Call<Q, B>) -> Answered<Minted> {
    let keys = call.door.backend().engine().keyring();
    secret::mint(keys).map_err(|error| Refusal::new("internal", error.to_string()))
}

async fn create(call: Call<Nothing, CreateWebhookRequest>) -> Answered<Answer<CreatedWebhook>> {
    let Minted { written, stored } = mint(&call)?;
    let CreateWebhookRequest { url, name, event_types, lane_id } = call.body;
    call.state.webhooks.guard().check_url(&url).map_err(Refusal::invalid)?;
    let args = CreateWebhookArgs {
        namespace: call.door.namespace().ok().cloned().unwrap_or_default(),
        name,
        url,
        event_types,
        lane_id,
        secret: stored,
        created_by: call.door.principal().name.clone(),
    };
    let snapshot = call.door.backend().create_webhook(args).await?;
    call.state.webhooks.wake();
    Ok(Answer::created(CreatedWebhook { secret: written, snapshot }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct WebhookQuery {
    /// `next_after` of the page before.
    after: Option<Uuid>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list(call: Call<WebhookQuery, Nothing>) -> Answered<Answer<WebhooksAnswer>> {
    let limit = wire::limit(call.query.limit, 100)?;
    let namespace = call.door.namespace().ok();
    let found = call.door.backend().list_webhooks(namespace, call.query.after, limit).await?;
    let Listed { items: webhooks, unreadable } = found;
    let last = webhooks.last().filter(|_| webhooks.len() == limit);
    let next_after = last.map(|webhook| webhook.webhook_id);
    Ok(Answer::json(WebhooksAnswer { webhooks, next_after, unreadable }))
}

async fn describe(call: Call<Nothing, Nothing>) -> Answered<Answer<WebhookSnapshot>> {
    let id = call.uuid("webhook_id")?;
    Ok(Answer::json(call.door.backend().describe_webhook(id).await?))
}

async fn deliveries(call: Call<Nothing, Nothing>) -> Answered<Answer<WebhookDeliveriesAnswer>> {
    let id = call.uuid("webhook_id")?;
    let found = call.door.backend().list_webhook_deliveries(id).await?;
    let Listed { items: deliveries, unreadable } = found;
    Ok(Answer::json(WebhookDeliveriesAnswer { deliveries, unreadable }))
}

async fn delete(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    let (id, by) = (call.uuid("webhook_id")?, &call.door.principal().name);
    call.door.backend().delete_webhook(id, by).await?;
    call.state.webhooks.wake();
    Ok(Answer::nothing())
}

async fn pause(call: Call<Nothing, Nothing>) -> Answered<Answer<WebhookSnapshot>> {
    let (id, by) = (call.uuid("webhook_id")?, &call.door.principal().name);
    let webhook = call.door.backend().pause_webhook(id, by).await?;
    call.state.webhooks.wake();
    Ok(Answer::json(webhook))
}

async fn resume(call: Call<Nothing, Nothing>) -> Answered<Answer<WebhookSnapshot>> {
    let (id, by) = (call.uuid("webhook_id")?, &call.door.principal().name);
    let webhook = call.door.backend().resume_webhook(id, by).await?;
    call.state.webhooks.wake();
    Ok(Answer::json(webhook))
}

async fn rotate(
    call: Call<Nothing, RotateWebhookSecretRequest>,
) -> Answered<Answer<CreatedWebhook>> {
    let Minted { written, stored } = mint(&call)?;
    let args = RotateWebhookSecretArgs {
        webhook_id: call.uuid("webhook_id")?,
        secret: stored,
        grace: call.body.grace.0,
        by: call.door.principal().name.clone(),
    };
    let snapshot = call.door.backend().rotate_webhook_secret(args).await?;
    // Whoever delivers looks what to sign with.
    call.state.webhooks.wake();
    Ok(Answer::json(CreatedWebhook { secret: written, snapshot }))
}
