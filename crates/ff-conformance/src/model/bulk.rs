//! Bulk operations in a sequence. Their identities are drawn by each backend, so a sequence names
//! them by their age.

use ff_core::contracts::{BulkAction, BulkFilter, BulkSnapshot, ListBulkArgs, StartBulkArgs};
use ff_core::engine_backend::{BulkOperations, EngineBackend};
use ff_core::engine_error::EngineError;
use ff_core::limits;
use ff_core::state::PublicState;
use ff_core::types::Namespace;
use uuid::Uuid;

use super::generate::Sequence;
use super::step::text;

/// A call about bulk operations, and the namespace that they are in.
#[derive(Clone, Debug)]
pub struct BulkStep {
    namespace: Namespace,
    call: BulkCall,
}

#[derive(Clone, Debug)]
enum BulkCall {
    Preview(BulkFilter),
    Start(Box<StartBulkArgs>),
    /// Stopped before any sweep has taken it up.
    StartAndCancel(Box<StartBulkArgs>),
    /// The newest, which has mostly ended.
    Cancel,
    List,
    Describe,
    Failures,
}

const KINDS: [&str; 4] = ["kind", "created", "node", "due"];
const STATES: [PublicState; 6] = [
    PublicState::Waiting,
    PublicState::Delayed,
    PublicState::Active,
    PublicState::Completed,
    PublicState::Failed,
    PublicState::Cancelled,
];

impl BulkStep {
    pub async fn run(&self, on: &dyn EngineBackend) -> String {
        match self.call.clone() {
            BulkCall::Preview(filter) => text(on, &on.preview_bulk(filter).await),
            BulkCall::Start(args) => text(on, &on.start_bulk(*args).await.map(nameless)),
            BulkCall::StartAndCancel(args) => {
                let cancelled = match on.start_bulk(*args).await {
                    Ok(started) => on.cancel_bulk(started.bulk_id).await,
                    refused => refused,
                };
                text(on, &cancelled.map(nameless))
            }
            BulkCall::Cancel => {
                let id = self.newest(on).await;
                text(on, &on.cancel_bulk(id).await.map(nameless))
            }
            BulkCall::List => {
                let own = self.own(on).await;
                text(on, &own.map(|own| own.into_iter().map(nameless).collect::<Vec<_>>()))
            }
            BulkCall::Describe => {
                let id = self.newest(on).await;
                text(on, &on.describe_bulk(id).await.map(|found| found.map(nameless)))
            }
            BulkCall::Failures => {
                let id = self.newest(on).await;
                text(on, &on.list_bulk_failures(id, None, 3).await)
            }
        }
    }

    /// Those of the sequence, newest first.
    async fn own(&self, on: &dyn EngineBackend) -> Result<Vec<BulkSnapshot>, EngineError> {
        let args = ListBulkArgs { cursor: None, limit: limits::PAGE };
        let mut listed = on.list_bulk(args).await?.operations;
        listed.retain(|bulk| bulk.filter.namespace.as_ref() == Some(&self.namespace));
        Ok(listed)
    }

    async fn newest(&self, on: &dyn EngineBackend) -> Uuid {
        let own = self.own(on).await.unwrap_or_default();
        own.first().map_or(Uuid::nil(), |bulk| bulk.bulk_id)
    }
}

fn nameless(bulk: BulkSnapshot) -> BulkSnapshot {
    BulkSnapshot { bulk_id: Uuid::nil(), ..bulk }
}

impl Sequence {
    fn about_bulk(&self, call: BulkCall) -> BulkStep {
        BulkStep { namespace: self.namespace(), call }
    }

    pub(super) fn bulk_step(&mut self) -> BulkStep {
        let call = match self.rng().u32(..13) {
            0..2 => BulkCall::Preview(self.bulk_filter()),
            2..8 => BulkCall::Start(Box::new(self.start_bulk())),
            8 => BulkCall::StartAndCancel(Box::new(self.start_bulk())),
            9 => BulkCall::Cancel,
            10 => BulkCall::Failures,
            11 => BulkCall::Describe,
            _ => BulkCall::List,
        };
        self.about_bulk(call)
    }

    fn start_bulk(&mut self) -> StartBulkArgs {
        let action = match self.rng().u32(..8) {
            0 => BulkAction::Cancel { reason: "model".into() },
            1..4 => BulkAction::Replay,
            4..6 => BulkAction::ChangePriority { new_priority: self.rng().i32(-1..5) },
            _ => {
                let value = self.some(60, |own| own.rng().u32(..2).to_string());
                BulkAction::SetTags { tags: [("model.tag".to_owned(), value)].into() }
            }
        };
        // Few requests, so that some are made again.
        let request_id = self.some(30, |own| own.rng().u32(..3).to_string());
        StartBulkArgs { filter: self.bulk_filter(), action, by: "model".into(), request_id }
    }

    /// Never without a namespace, unless the caller has none but its own.
    fn bulk_filter(&mut self) -> BulkFilter {
        let confined = self.is_confined();
        BulkFilter {
            namespace: match self.rng().u32(..8) {
                0 if confined => None,
                // This one is refused.
                1 if confined => Some(Namespace::new("foreign")),
                _ => Some(self.namespace()),
            },
            lane_id: self.some(20, Self::any_lane),
            states: self.some(40, |own| vec![STATES[own.rng().usize(..6)]]).unwrap_or_default(),
            execution_kind: self.some(30, |own| KINDS[own.rng().usize(..4)].to_owned()),
            flow_id: self.some(15, Self::any_flow),
            tag: self.some(20, |_| ("model.tag".into(), "1".into())),
            created_from: None,
            created_before: self.some(20, |own| own.now()),
        }
    }

    /// Reads that show all that there is of the sequence's bulk operations.
    pub(super) fn every_bulk(&self) -> impl Iterator<Item = BulkStep> {
        [BulkCall::List, BulkCall::Failures].map(|call| self.about_bulk(call)).into_iter()
    }
}
