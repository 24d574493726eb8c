//! Webhooks: one deliverer at a time, attempts that are counted and bounded, and an end to trying.

use std::time::Duration;

use ff_core::contracts::{
    ClaimWebhookOutcome, ClaimedWebhook, CreateWebhookArgs, EventFilter, EventType,
    ReportWebhookArgs, RotateWebhookSecretArgs, WebhookAttempt, WebhookSnapshot, WebhookState,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{Namespaced, WebhookOperations};
use ff_core::types::{LaneId, Namespace, TimestampMs};
use uuid::Uuid;

use super::{Fixture, LANE, code, item};

const LEASE: Duration = Duration::from_secs(60);
const ONE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

fn args() -> CreateWebhookArgs {
    CreateWebhookArgs {
        namespace: Namespace::new("default"),
        name: "hook".into(),
        url: "https://example.com/hook".into(),
        event_types: vec![EventType::Submitted],
        lane_id: Some(LaneId::new(LANE)),
        secret: vec![1; 32],
        created_by: "root".into(),
    }
}

fn attempt(error: Option<&str>) -> WebhookAttempt {
    WebhookAttempt {
        event_id: "e".into(),
        event_type: Some(EventType::Submitted),
        status: Some(if error.is_some() { 500 } else { 200 }),
        duration_ms: 5,
        error: error.map(ToOwned::to_owned),
    }
}

fn report(
    webhook: &WebhookSnapshot,
    owner: Uuid,
    attempts: Vec<WebhookAttempt>,
) -> ReportWebhookArgs {
    ReportWebhookArgs {
        webhook_id: webhook.webhook_id,
        owner,
        cursor: webhook.cursor.clone(),
        attempts,
        keep: None,
        retry_after: None,
        gone: false,
    }
}

async fn claimed(f: &Fixture, id: Uuid, owner: Uuid) -> ClaimedWebhook {
    match f.backend.claim_webhook(id, owner, LEASE).await.unwrap() {
        ClaimWebhookOutcome::Claimed(claimed) => *claimed,
        ClaimWebhookOutcome::Busy { until } => panic!("busy until {until:?}"),
        ClaimWebhookOutcome::Idle => panic!("idle"),
    }
}

async fn busy_until(f: &Fixture, id: Uuid, owner: Uuid) -> TimestampMs {
    match f.backend.claim_webhook(id, owner, LEASE).await.unwrap() {
        ClaimWebhookOutcome::Busy { until } => until,
        ClaimWebhookOutcome::Claimed(_) => panic!("claimed by two"),
        ClaimWebhookOutcome::Idle => panic!("idle"),
    }
}

pub async fn one_deliverer_at_a_time(f: &Fixture) {
    let made = f.backend.create_webhook(args()).await.unwrap();
    let id = made.webhook_id;
    assert_eq!(made.state, WebhookState::Active);
    f.submit(item()).await;
    let start = StartAt::After(made.cursor.clone());
    let mut log = f.backend.subscribe(EventFilter::default(), start).await.unwrap();
    while log.try_next().await.unwrap().is_some() {}
    assert_eq!(claimed(f, id, ONE).await.secrets, [vec![1; 32]]);
    assert_eq!(busy_until(f, id, OTHER).await, f.now().after(LEASE));
    // Its own claim is renewed.
    claimed(f, id, ONE).await;
    f.advance(60_000).await;
    claimed(f, id, OTHER).await;
    let late =
        ReportWebhookArgs { cursor: log.cursor(), ..report(&made, ONE, vec![attempt(None)]) };
    assert_eq!(code(&f.backend.report_webhook(late.clone()).await), "stale_lease");
    let good = ReportWebhookArgs { owner: OTHER, keep: Some(LEASE), ..late.clone() };
    f.backend.report_webhook(good).await.unwrap();
    assert_eq!(busy_until(f, id, ONE).await, f.now().after(LEASE));
    let last = ReportWebhookArgs { owner: OTHER, ..late };
    f.backend.report_webhook(last).await.unwrap();
    let webhook = claimed(f, id, ONE).await.webhook;
    assert_eq!((webhook.delivered, webhook.cursor), (2, log.cursor()));
}

pub async fn failures_back_off_and_end(f: &Fixture) {
    let made = f.backend.create_webhook(args()).await.unwrap();
    let id = made.webhook_id;
    let mut waits = Vec::new();
    for _ in 0..5 {
        let claimed = claimed(f, id, ONE).await;
        let args = report(&claimed.webhook, ONE, vec![attempt(Some("no"))]);
        f.backend.report_webhook(args).await.unwrap();
        let until = busy_until(f, id, ONE).await;
        waits.push(until.since(f.now()).as_millis() as u64);
        f.advance(until.since(f.now()).as_millis() as u64).await;
    }
    for (at, wait) in waits.iter().enumerate() {
        let least = 1_000 << at;
        assert!((least..least + least / 4 + 1).contains(wait), "{waits:?}");
    }
    let webhook = claimed(f, id, ONE).await.webhook;
    assert_eq!((webhook.failures, webhook.last_error.as_deref()), (5, Some("no")));
    let asked = Duration::from_secs(1_000);
    let args = report(&webhook, ONE, vec![attempt(Some("no"))]);
    let args = ReportWebhookArgs { retry_after: Some(asked), ..args };
    f.backend.report_webhook(args).await.unwrap();
    assert_eq!(busy_until(f, id, ONE).await, f.now().after(asked));
    f.advance(3 * 24 * 60 * 60 * 1000).await;
    let webhook = claimed(f, id, ONE).await.webhook;
    let args = report(&webhook, ONE, vec![attempt(Some("no"))]);
    assert_eq!(f.backend.report_webhook(args).await.unwrap(), WebhookState::Disabled);
    let idle = f.backend.claim_webhook(id, ONE, LEASE).await.unwrap();
    assert!(matches!(idle, ClaimWebhookOutcome::Idle));
    let resumed = f.backend.resume_webhook(id, "root").await.unwrap();
    assert_eq!((resumed.state, resumed.failures), (WebhookState::Active, 0));
    let gone = ReportWebhookArgs {
        gone: true,
        ..report(&claimed(f, id, ONE).await.webhook, ONE, vec![attempt(Some("gone"))])
    };
    assert_eq!(f.backend.report_webhook(gone).await.unwrap(), WebhookState::Disabled);
}

pub async fn attempts_are_bounded(f: &Fixture) {
    let made = f.backend.create_webhook(args()).await.unwrap();
    let id = made.webhook_id;
    for _ in 0..4 {
        let webhook = claimed(f, id, ONE).await.webhook;
        let attempts = (0..16).map(|_| attempt(None)).collect();
        f.backend.report_webhook(report(&webhook, ONE, attempts)).await.unwrap();
    }
    let numbers = f.backend.list_webhook_deliveries(id).await.unwrap();
    let numbers: Vec<u64> = numbers.iter().map(|delivery| delivery.number).collect();
    assert_eq!(numbers, (15..=64).rev().collect::<Vec<_>>());
    let webhook = claimed(f, id, ONE).await.webhook;
    let many = report(&webhook, ONE, (0..50).map(|_| attempt(None)).collect());
    assert_eq!(code(&f.backend.report_webhook(many).await), "invalid_input");
    f.backend.delete_webhook(id, "root").await.unwrap();
    assert_eq!(code(&f.backend.list_webhook_deliveries(id).await), "not_found");
    assert_eq!(code(&f.backend.claim_webhook(id, ONE, LEASE).await.map(drop)), "not_found");
}

pub async fn kept_apart_and_rotated(f: &Fixture) {
    let made = f.backend.create_webhook(args()).await.unwrap();
    let everywhere = CreateWebhookArgs { namespace: Namespace::default(), ..args() };
    f.backend.create_webhook(everywhere.clone()).await.unwrap();
    let id = made.webhook_id;
    let stranger = Namespaced::new(f.backend.clone(), Namespace::new("other"));
    assert_eq!(code(&stranger.describe_webhook(id).await), "not_found");
    assert_eq!(code(&stranger.delete_webhook(id, "x").await), "not_found");
    assert_eq!(code(&stranger.pause_webhook(id, "x").await), "not_found");
    assert!(stranger.list_webhooks(None, None, 10).await.unwrap().is_empty());
    let own = stranger.create_webhook(everywhere).await.unwrap();
    assert_eq!(own.namespace, Namespace::new("other"), "it is confined to its own");
    assert_eq!(f.backend.list_webhooks(None, None, 10).await.unwrap().len(), 3);
    let default = Namespace::new("default");
    let page = f.backend.list_webhooks(Some(&default), None, 10).await.unwrap();
    assert_eq!(page.items, std::slice::from_ref(&made));

    let grace = Duration::from_secs(60);
    let rotate = |secret: u8| RotateWebhookSecretArgs {
        webhook_id: id,
        secret: vec![secret; 32],
        grace,
        by: "root".into(),
    };
    f.backend.rotate_webhook_secret(rotate(2)).await.unwrap();
    assert_eq!(claimed(f, id, ONE).await.secrets, [vec![2; 32], vec![1; 32]]);
    f.advance(60_000).await;
    assert_eq!(claimed(f, id, ONE).await.secrets, [vec![2; 32]]);
    let short = RotateWebhookSecretArgs { secret: vec![0; 8], ..rotate(3) };
    assert_eq!(code(&f.backend.rotate_webhook_secret(short).await), "invalid_input");
    let nowhere = CreateWebhookArgs { url: String::new(), ..args() };
    assert_eq!(code(&f.backend.create_webhook(nowhere).await), "invalid_input");
    f.backend.pause_webhook(id, "root").await.unwrap();
    let idle = f.backend.claim_webhook(id, ONE, LEASE).await.unwrap();
    assert!(matches!(idle, ClaimWebhookOutcome::Idle));
}
