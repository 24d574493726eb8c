//! The thread that owns every write.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use ff_core::engine::{Pumping, Queue, message_of, pump};
use tokio::sync::oneshot;

use crate::lock::FileLock;
use crate::{SqliteError, SqliteStore};

/// A running writer. Stopping it works off the queue first.
pub(crate) struct Writer {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Writer {
    pub fn start(
        store: Arc<SqliteStore>,
        queue: Queue,
        max_batch: usize,
        lock: FileLock,
    ) -> Result<Self, SqliteError> {
        let (stop, stopped) = oneshot::channel();
        // The pump waits for jobs and for the time when there are none.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| SqliteError::Open(error.to_string()))?;
        let run = move || {
            let stopped = async {
                let _ = stopped.await;
            };
            let pumping = Pumping { max_batch, own_thread: true };
            // The pump goes on after panics of its own. If it ends, the engine does: the queue is
            // closed with it, the connection and the lock are given up, and every call is refused.
            let pumped = || runtime.block_on(pump(store.clone(), queue, pumping, stopped));
            if let Err(panic) = catch_unwind(AssertUnwindSafe(pumped)) {
                let why = message_of(&*panic);
                tracing::error!(why, "the SQLite writer has ended; every call is refused");
            }
            if let Some(connection) = store.writer().take() {
                connection.close();
            }
            drop(lock);
        };
        let thread = std::thread::Builder::new()
            .name("ff-sqlite-writer".to_owned())
            .spawn(run)
            .map_err(|error| SqliteError::Open(error.to_string()))?;
        Ok(Self { stop, thread })
    }

    pub fn stop(self) {
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::error!("the SQLite writer panicked");
        }
    }
}
