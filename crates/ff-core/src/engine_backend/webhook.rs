//! Webhooks, for those who keep them and for those who deliver.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::EngineBackend;
use crate::contracts::{
    ClaimWebhookOutcome, CreateWebhookArgs, EventFilter, Listed, ReportWebhookArgs,
    RotateWebhookSecretArgs, WebhookDelivery, WebhookSnapshot, WebhookState,
};
use crate::engine::{StartAt, check_count, check_duration, check_text, limit_namespace};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::webhook::{
    ClaimWebhook, CreateWebhook, DeleteWebhook, PauseWebhook, RECENT, ReportWebhook, ResumeWebhook,
    RotateWebhookSecret, Secret,
};
use crate::rows::{Record, WebhookDeliveryRow, WebhookKey, WebhookRow, values};
use crate::store::{Query, Scan};
use crate::types::Namespace;
use crate::views;

#[async_trait]
pub trait WebhookOperations: EngineBackend {
    /// Keeps a webhook: it is told of what happens from now on.
    async fn create_webhook(
        &self,
        args: CreateWebhookArgs,
    ) -> Result<WebhookSnapshot, EngineError> {
        let namespace = limit_namespace(self.scope(), &args.namespace)?;
        if !namespace.as_str().is_empty() {
            namespace.check()?;
        }
        check_text("webhook name", &args.name, 0, limits::NAME_BYTES)?;
        check_text("webhook url", &args.url, 1, limits::URL_BYTES)?;
        check_text("creator", &args.created_by, 0, limits::NAME_BYTES)?;
        check_secret(&args.secret)?;
        if let Some(lane) = &args.lane_id {
            lane.check()?;
        }
        let here = self.subscribe(EventFilter::default(), StartAt::Latest).await?.cursor();
        let operation = CreateWebhook {
            key: WebhookKey { id: Uuid::now_v7() },
            namespace: namespace.0.into(),
            name: args.name.into(),
            url: args.url.into(),
            event_types: args.event_types.iter().map(|kind| kind.as_str().to_owned()).collect(),
            lane: args.lane_id.map(|lane| lane.0.into()),
            secret: Secret(args.secret.into()),
            created_by: args.created_by.into(),
            cursor: here.into(),
        };
        self.engine().run_as(self.caller(), operation).await
    }

    /// The webhook, without its secret.
    async fn describe_webhook(&self, id: Uuid) -> Result<WebhookSnapshot, EngineError> {
        let keys = vec![WebhookRow::erase_key(&WebhookKey { id })];
        let rows = self.engine().query(Query::Records { keys, scans: Vec::new() }).await?;
        let rows =
            rows.records::<WebhookRow>().map_err(|error| self.engine().store_error(error))?;
        let visible =
            |row: &&WebhookRow| self.scope().is_none_or(|s| s.as_str() == &*row.namespace);
        let found = rows.first().filter(visible);
        found.map(views::webhook).ok_or(EngineError::NotFound { entity: "webhook" })
    }

    /// Webhooks in the order of their ids, after one of them; of one namespace, or of all and those
    /// for all.
    async fn list_webhooks(
        &self,
        namespace: Option<&Namespace>,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<WebhookSnapshot>, EngineError> {
        check_count("webhooks", limit, limits::PAGE)?;
        let namespace = match (self.scope(), namespace) {
            (None, None) => None,
            (scope, wanted) => {
                Some(limit_namespace(scope, wanted.unwrap_or(&Namespace::default()))?)
            }
        };
        let scan = match namespace {
            Some(namespace) => {
                let namespace: std::sync::Arc<str> = namespace.0.into();
                Scan::of::<WebhookRow>(values![namespace]).by(&WebhookRow::BY_NAMESPACE)
            }
            None => Scan::of::<WebhookRow>(Vec::new()),
        };
        let scan = scan.limit(limit);
        let scan = match after {
            Some(after) => scan.after(values![after]),
            None => scan,
        };
        let found = super::scan::find::<WebhookRow>(self.engine(), scan).await?;
        Ok(found.list(views::webhook))
    }

    /// Forgets a webhook; a delivery that is under way ends.
    async fn delete_webhook(&self, id: Uuid, by: &str) -> Result<(), EngineError> {
        check_text("by", by, 0, limits::NAME_BYTES)?;
        let (key, scope) = (WebhookKey { id }, self.scope().cloned());
        self.engine().run_as(self.caller(), DeleteWebhook { key, scope, by: by.into() }).await
    }

    /// Nothing is delivered until it is resumed; nothing is lost, as long as the log is kept.
    async fn pause_webhook(&self, id: Uuid, by: &str) -> Result<WebhookSnapshot, EngineError> {
        check_text("by", by, 0, limits::NAME_BYTES)?;
        let (key, scope) = (WebhookKey { id }, self.scope().cloned());
        self.engine().run_as(self.caller(), PauseWebhook { key, scope, by: by.into() }).await
    }

    /// Goes on with what was not delivered, at once, whatever had stopped it.
    async fn resume_webhook(&self, id: Uuid, by: &str) -> Result<WebhookSnapshot, EngineError> {
        check_text("by", by, 0, limits::NAME_BYTES)?;
        let (key, scope) = (WebhookKey { id }, self.scope().cloned());
        self.engine().run_as(self.caller(), ResumeWebhook { key, scope, by: by.into() }).await
    }

    /// Signs with another secret, and with the one before until the grace is over.
    async fn rotate_webhook_secret(
        &self,
        args: RotateWebhookSecretArgs,
    ) -> Result<WebhookSnapshot, EngineError> {
        check_secret(&args.secret)?;
        check_duration("grace", Some(args.grace))?;
        check_text("by", &args.by, 0, limits::NAME_BYTES)?;
        let operation = RotateWebhookSecret {
            key: WebhookKey { id: args.webhook_id },
            scope: self.scope().cloned(),
            secret: Secret(args.secret.into()),
            grace: args.grace,
            by: args.by.into(),
        };
        self.engine().run_as(self.caller(), operation).await
    }

    /// The last attempts of a webhook, the newest first.
    async fn list_webhook_deliveries(
        &self,
        id: Uuid,
    ) -> Result<Listed<WebhookDelivery>, EngineError> {
        self.describe_webhook(id).await?;
        let scan = Scan::of::<WebhookDeliveryRow>(values![id]).limit(RECENT as usize);
        let mut found = super::scan::find::<WebhookDeliveryRow>(self.engine(), scan).await?;
        found.records.sort_by_key(|row| std::cmp::Reverse(row.number));
        Ok(found.list(views::webhook_delivery))
    }

    // Delivering.

    /// Takes a webhook for a while, unless another deliverer has it.
    async fn claim_webhook(
        &self,
        id: Uuid,
        owner: Uuid,
        ttl: Duration,
    ) -> Result<ClaimWebhookOutcome, EngineError> {
        super::check_unscoped(self.scope(), "claim_webhook")?;
        check_duration("the webhook's lease", Some(ttl))?;
        self.engine().run(None, ClaimWebhook { key: WebhookKey { id }, owner, ttl }).await
    }

    /// Says how far a deliverer has come with a webhook that it holds.
    async fn report_webhook(&self, args: ReportWebhookArgs) -> Result<WebhookState, EngineError> {
        super::check_unscoped(self.scope(), "report_webhook")?;
        if args.attempts.len() >= RECENT as usize {
            return Err(EngineError::invalid(format!("a report has less than {RECENT} attempts")));
        }
        let mut args = args;
        for attempt in &mut args.attempts {
            if let Some(error) = &mut attempt.error {
                // A character has at most four bytes.
                let most = limits::REASON_BYTES / 4;
                *error = error.chars().filter(|c| !c.is_control()).take(most).collect();
            }
        }
        self.engine().run(None, ReportWebhook { args, entropy: fastrand::u64(..) }).await
    }
}

impl<B: EngineBackend + ?Sized> WebhookOperations for B {}

fn check_secret(secret: &[u8]) -> Result<(), EngineError> {
    match secret.len() {
        24..=128 => Ok(()),
        bytes => Err(EngineError::invalid(format!("a secret of {bytes} bytes; 24 to 128 go"))),
    }
}
