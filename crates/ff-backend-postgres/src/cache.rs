//! What is kept in memory between transactions, for one run of the server.
//!
//! Kept rows are compared by the id of the transaction that wrote them. A server that was restored,
//! or a standby that was promoted before it had received every commit, gives the same ids to other
//! transactions. So nothing that was kept outlives the server's run: a new connection begins with
//! an empty cache, and each transaction makes sure that the server which answers is the one that
//! its cache was filled from, because a pooler may connect to another server unseen.
//!
//! The server's start time stands for its run. It is another one after a restart, which a restore
//! needs, and on every other server of a cluster.

use std::sync::{Arc, Mutex, PoisonError};

use ff_core::engine_error::StoreError;
use sqlx::{Executor, PgConnection, Row};
use tokio::sync::OnceCell;

use crate::Identity;
use crate::claim::Outlines;
use crate::error::store_error;
use crate::graphs::Young;
use crate::held::Held;

/// When the server was started, in microseconds.
pub(crate) type ServerStart = i64;

/// What was learned during one run of the server.
#[derive(Default)]
pub(crate) struct Cache {
    pub server: ServerStart,
    pub identity: OnceCell<Identity>,
    pub outlines: Outlines,
    pub held: Held,
    pub young: Young,
}

/// The cache that new transactions use.
#[derive(Default)]
pub(crate) struct Caches(Mutex<Arc<Cache>>);

impl Caches {
    pub fn current(&self) -> Arc<Cache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The current cache if it was filled from this run of the server, otherwise an empty one that
    /// is used once.
    pub fn of(&self, server: ServerStart) -> Arc<Cache> {
        let current = self.current();
        if current.server == server { current } else { Cache::of(server) }
    }

    /// Begins anew. A transaction that still runs keeps what it learns in the cache that it has.
    pub fn reset(&self, server: ServerStart) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Cache::of(server);
    }
}

impl Cache {
    fn of(server: ServerStart) -> Arc<Self> {
        Arc::new(Self { server, ..Self::default() })
    }

    /// Refuses to go on with another run of the server than the one that the cache is of. The
    /// connection is dropped for it, and the next one begins with an empty cache.
    pub fn check(&self, server: ServerStart) -> Result<(), StoreError> {
        if server == self.server {
            return Ok(());
        }
        Err(StoreError::Unavailable("another server answers on this connection".to_owned()))
    }
}

/// Asks as plain text, which works behind a pooler, too.
pub(crate) async fn server_start(connection: &mut PgConnection) -> Result<ServerStart, StoreError> {
    let row = connection.fetch_one(crate::config::SERVER).await;
    let row = row.map_err(|error| store_error(&error))?;
    row.try_get(0).map_err(|error| store_error(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_kept_outlives_the_run_of_the_server() {
        let caches = Caches::default();
        caches.reset(1);
        let first = caches.of(1);
        assert!(Arc::ptr_eq(&first, &caches.current()));
        assert!(first.check(1).is_ok());
        assert!(matches!(first.check(2), Err(StoreError::Unavailable(_))));
        assert!(!Arc::ptr_eq(&caches.of(2), &caches.current()), "a lagging connection");
        // The same server again: transaction ids may have been lost with unflushed commits.
        caches.reset(1);
        assert!(!Arc::ptr_eq(&first, &caches.of(1)));
    }
}
