//! The seam between the engine and a database: three verbs, and the values that cross it.

mod batch;
pub mod behind;
mod bells;
pub mod cells;
mod change;
pub mod damage;
mod followers;
mod graphs;
mod listing;
pub mod memory;
mod needs;
mod query;
mod records;
mod scan;
mod table;
mod world;

pub use batch::{Batch, Job, Reply, Unheard};
pub use bells::{Bells, ClaimWaiter};
pub use change::{Change, LogFloor, Records, Write};
pub use damage::Damage;
pub use followers::Follower;
pub use graphs::Graphs;
pub use listing::{Dialect, Statement};
pub use needs::{ClaimScan, MemberScan, Needs, RetentionScan, Walk};
pub use query::{
    CountRow, FlowListQuery, ListQuery, LogBounds, LogSecret, Query, Rows, ShardBounds,
};
pub use scan::{Lock, Scan, Scanned};
pub use table::Table;
pub use world::{Claimable, Walked, World};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::contracts::Durability;
use crate::engine_error::StoreError;
use crate::types::{FlowId, LaneId, TimestampMs};

/// What a database must do. No store decides anything about state.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The name in errors, lease ids and metrics.
    fn name(&self) -> &'static str;

    fn durability(&self) -> Durability;

    /// The store's clock, the only one that decides.
    fn now(&self) -> TimestampMs;

    /// Returns once the store's clock has reached the instant.
    async fn sleep_until(&self, at: TimestampMs);

    /// The partition of a flow and its members.
    fn flow_partition(&self, flow: &FlowId) -> u16;

    /// The partition of a new execution outside any flow.
    fn solo_partition(&self, lane: &LaneId) -> u16;

    /// Loads what the batch needs at one instant, lets it decide, writes and commits. The batch
    /// keeps the answers; whoever calls sends them once this has returned.
    async fn transact(&self, batch: &mut Batch) -> Result<(), StoreError>;

    /// The callers of the last batch have been answered: what its commit has left to do is in
    /// nobody's way now.
    fn answered(&self) {}

    /// A transaction panicked: what is kept in memory of earlier ones may not be what is stored.
    fn distrust(&self) {}

    /// Nobody waits, and nobody has come for this long: what has to be tidied up some time is in
    /// nobody's way now. Called only by a pump with a thread of its own.
    fn idle(&self, _quiet: Duration) {}

    /// Reads committed rows.
    async fn query(&self, query: Query) -> Result<Rows, StoreError>;

    /// How long whoever waits may trust the bells before it looks for itself.
    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }

    /// The same for whoever follows one execution: these bells ring only in the process that wrote.
    fn follower_patience(&self) -> Duration {
        self.patience()
    }

    /// Hints that something has changed. They may be lost; polling is what correctness rests on.
    fn listen(&self) -> &Arc<Bells>;
}
