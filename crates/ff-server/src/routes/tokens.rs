//! Tokens: made once, shown once, revoked for good.

use axum::http::Method;
use ff_api::{CreateTokenRequest, CreatedToken, Scope, TokenList, TokenSnapshot};
use ff_core::contracts::{CreateTokenArgs, StoredToken};
use ff_core::engine_backend::TokenOperations;
use ff_core::types::{Namespace, TimestampMs};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::call::{Answer, Call};
use crate::gate::{Authorized, EVERYWHERE, Principal, hash, mint_token};
use crate::refusal::{Answered, Refusal};
use crate::route::{Nothing, Reach, Route};
use crate::wire;

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/tokens"),
            ("create_token", "Makes a token; no other answer shows it."),
            Scope::Admin,
            create,
        )
        .reach(Reach::Own)
        .remembered_by_nobody()
        .success(201),
        Route::new(
            (Method::GET, "/v1/tokens"),
            ("list_tokens", "Every token, without what opens the door."),
            Scope::Admin,
            list,
        )
        .reach(Reach::Own),
        Route::new(
            (Method::DELETE, "/v1/tokens/{token_id}"),
            ("revoke_token", "Ends a token; it stays on record."),
            Scope::Admin,
            revoke,
        )
        .reach(Reach::Own),
    ]
}

async fn create(call: Call<Nothing, CreateTokenRequest>) -> Answered<Answer<CreatedToken>> {
    let (body, now) = (call.body, call.state.gate.now());
    check_namespaces(&body.namespaces)?;
    if body.scopes.is_empty() {
        return Err(Refusal::invalid("a token needs at least one scope"));
    }
    if Principal::RESERVED.contains(&body.name.as_str()) {
        let detail = format!("the name {:?} is the server's own", body.name);
        return Err(Refusal::invalid(detail));
    }
    check_strength(&call.door, &body, now)?;
    let token = mint_token().map_err(|error| Refusal::new("internal", error.to_string()))?;
    let args = CreateTokenArgs {
        hash: hash(&token),
        name: body.name,
        scopes: body.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
        namespaces: body.namespaces,
        created_by: call.door.principal().name.clone(),
        expires_in: body.expires_in.map(|span| span.0),
    };
    let snapshot = snapshot(call.door.backend().create_token(args).await?);
    Ok(Answer::created(CreatedToken { token, snapshot }))
}

/// A token is no stronger than the one that it is made with, and does not outlive it.
fn check_strength(door: &Authorized, body: &CreateTokenRequest, now: TimestampMs) -> Answered<()> {
    let (principal, stronger) = (door.principal(), |detail| Refusal::new("forbidden", detail));
    if let Some(scope) = body.scopes.iter().find(|scope| !principal.has(**scope)) {
        let detail = format!("the token lacks the scope `{}` itself", scope.as_str());
        return Err(stronger(detail));
    }
    if let Ok(namespace) = door.namespace()
        && body.namespaces != [namespace.as_str()]
    {
        let detail = format!("a token that is made here is good in {namespace} alone");
        return Err(stronger(detail));
    }
    let end = body.expires_in.map(|span| now.after(span.0));
    match principal.expires_at {
        Some(own) if end.is_none_or(|end| end > own) => {
            let own = own.to_rfc3339();
            Err(stronger(format!("the token must expire by {own}, when this one does")))
        }
        _ => Ok(()),
    }
}

fn check_namespaces(namespaces: &[String]) -> Answered<()> {
    if namespaces.is_empty() {
        return Err(Refusal::invalid("a token needs at least one namespace; `*` means all"));
    }
    if namespaces.len() > 1 && namespaces.iter().any(|name| name == EVERYWHERE) {
        return Err(Refusal::invalid("`*` means all namespaces and stands alone"));
    }
    for name in namespaces {
        let checked = Namespace::try_new(name.as_str());
        checked.map_err(|error| Refusal::invalid(error.to_string()))?;
    }
    Ok(())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct TokenQuery {
    /// `next_after` of the page before.
    after: Option<Uuid>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
}

async fn list(call: Call<TokenQuery, Nothing>) -> Answered<Answer<TokenList>> {
    let limit = wire::limit(call.query.limit, 100)?;
    let stored = call.door.backend().list_tokens(call.query.after, limit).await?;
    let tokens: Vec<TokenSnapshot> = stored.items.into_iter().map(snapshot).collect();
    let last = tokens.last().filter(|_| tokens.len() == limit);
    let next_after = last.map(|token| token.token_id);
    Ok(Answer::json(TokenList { tokens, next_after, unreadable: stored.unreadable }))
}

async fn revoke(call: Call<Nothing, Nothing>) -> Answered<Answer<TokenSnapshot>> {
    let (token_id, by) = (call.uuid("token_id")?, &call.door.principal().name);
    let stored = call.door.backend().revoke_token(token_id, by).await?;
    call.state.gate.forget(token_id);
    Ok(Answer::json(snapshot(stored)))
}

fn snapshot(stored: StoredToken) -> TokenSnapshot {
    TokenSnapshot {
        token_id: stored.token_id,
        name: stored.name,
        scopes: stored.scopes.iter().filter_map(|word| Scope::parse(word)).collect(),
        namespaces: stored.namespaces,
        created_by: stored.created_by,
        created_at: stored.created_at,
        expires_at: stored.expires_at,
        last_used_at: stored.last_used_at,
        revoked_at: stored.revoked_at,
    }
}
