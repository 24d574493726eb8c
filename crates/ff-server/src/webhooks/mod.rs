//! Tells events to receivers outside, from the log, each webhook at its own pace. Nothing is
//! written while there is nothing to tell.

mod envelope;
mod follow;
pub mod guard;
mod places;
pub mod secret;
mod sender;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ff_core::contracts::{WebhookSnapshot, WebhookState};
use ff_core::engine::caught;
use ff_core::engine_backend::{EngineBackend, WebhookOperations};
use ff_core::engine_error::EngineError;
use ff_core::limits;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::follow::Follower;
use self::guard::Guard;
use self::sender::Sender;

/// How often the list is looked at for what other servers have changed.
const LOOK: Duration = Duration::from_secs(10);

/// All webhooks of one store, as one server sees them.
pub struct Webhooks {
    backend: Arc<dyn EngineBackend>,
    sender: Sender,
    owner: Uuid,
    /// Somebody has changed a webhook.
    changed: watch::Sender<u64>,
}

impl Webhooks {
    pub fn new(backend: Arc<dyn EngineBackend>, guard: Guard) -> Arc<Self> {
        // A file is open in one process only, so whoever was there before has gone.
        let alone = backend.engine().store().name() == "sqlite";
        let owner = if alone { Uuid::nil() } else { Uuid::new_v4() };
        Arc::new(Self {
            backend,
            sender: Sender::new(guard),
            owner,
            changed: watch::Sender::new(0),
        })
    }

    pub fn guard(&self) -> &Guard {
        self.sender.guard()
    }

    /// What this server has delivered, in Prometheus' text form.
    pub fn render(&self) -> String {
        let delivered = self.sender.delivered.load(Ordering::Relaxed);
        let failed = self.sender.failed.load(Ordering::Relaxed);
        format!(
            "# TYPE ff_webhook_attempts_total counter\n\
             ff_webhook_attempts_total{{outcome=\"delivered\"}} {delivered}\n\
             ff_webhook_attempts_total{{outcome=\"failed\"}} {failed}\n"
        )
    }

    /// A webhook was made, changed or deleted here.
    pub fn wake(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Delivers until the server closes, and lets attempts end that are under way.
    pub async fn run(self: Arc<Self>, closing: CancellationToken) {
        let tasks = TaskTracker::new();
        let followed: Arc<std::sync::Mutex<HashSet<Uuid>>> = Arc::default();
        let mut changed = self.changed.subscribe();
        let mut known = Vec::new();
        while !closing.is_cancelled() {
            changed.borrow_and_update();
            match self.list().await {
                Ok(found) => {
                    if found != known {
                        known = found;
                        self.wake();
                        changed.borrow_and_update();
                    }
                    for webhook in &known {
                        self.start(webhook, &followed, &tasks, &closing);
                    }
                }
                Err(error) => tracing::warn!(%error, "webhooks cannot be listed"),
            }
            tokio::select! {
                () = closing.cancelled() => {}
                _ = changed.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    /// Every active webhook, without what changes with each delivery.
    async fn list(&self) -> Result<Vec<Known>, EngineError> {
        let mut found: Vec<Known> = Vec::new();
        loop {
            let after = found.last().map(|last| last.id);
            let page = self.backend.list_webhooks(None, after, limits::PAGE).await?;
            let full = page.len() == limits::PAGE;
            found.extend(page.iter().map(Known::of));
            if !full {
                return Ok(found);
            }
        }
    }

    fn start(
        self: &Arc<Self>,
        webhook: &Known,
        followed: &Arc<std::sync::Mutex<HashSet<Uuid>>>,
        tasks: &TaskTracker,
        closing: &CancellationToken,
    ) {
        let lock = || followed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let id = webhook.id;
        if webhook.state != WebhookState::Active || !lock().insert(id) {
            return;
        }
        let follower = Follower {
            webhooks: self.clone(),
            id,
            changed: self.changed.subscribe(),
            closing: closing.clone(),
        };
        let followed = followed.clone();
        tasks.spawn(async move {
            // One that panics is started again with the next look at all webhooks.
            if let Err(why) = caught(follower.run()).await {
                tracing::error!(webhook = %id, why, "the deliveries of a webhook panicked");
            }
            followed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&id);
        });
    }
}

/// What the others may change about a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    id: Uuid,
    state: WebhookState,
    url: String,
}

impl Known {
    fn of(webhook: &WebhookSnapshot) -> Self {
        Self { id: webhook.webhook_id, state: webhook.state, url: webhook.url.clone() }
    }
}
