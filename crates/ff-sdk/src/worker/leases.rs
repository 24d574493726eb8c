//! Keeps the leases of what is running, many in one call, on a thread of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::contracts::RenewOutcome;
use ff_core::engine::clock::Clock;
use ff_core::engine_error::EngineError;
use ff_core::limits;
use ff_core::types::TimestampMs;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::presence::Presence;
use crate::clock::backoff;
use crate::error::Error;
use crate::transport::Transport;

/// The shortest pause before a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// How long before the end of a lease its handler is stopped if no renewal succeeded.
pub(super) fn margin(lease: Duration) -> Duration {
    lease / 5
}

/// What the worker holds. The driver locks it once for each batch, the keeper once for each round.
pub(crate) struct Leases {
    held: Mutex<Held>,
    wake: Notify,
    lease: Duration,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Held {
    leases: HashMap<u64, Lease>,
    /// The keeper found nothing to keep and waits to be woken.
    parked: bool,
    closed: bool,
}

pub(crate) struct Lease {
    handle: Handle,
    stop: CancellationToken,
    renew_at: TimestampMs,
    /// After this the lease may be somebody else's.
    stop_at: TimestampMs,
}

enum Round {
    Renew(Vec<(u64, Handle)>),
    Wait(TimestampMs),
    Park,
    End,
}

impl Leases {
    pub fn new(lease: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { held: Mutex::default(), wake: Notify::new(), lease, clock }
    }

    /// A lease that was granted just now.
    pub fn granted(&self, handle: Handle, stop: CancellationToken) -> Lease {
        let mut lease = Lease { handle, stop, renew_at: TimestampMs(0), stop_at: TimestampMs(0) };
        self.extend(&mut lease, self.clock.now());
        lease
    }

    pub fn add(&self, leases: impl Iterator<Item = (u64, Lease)>) {
        let mut held = self.lock();
        held.leases.extend(leases);
        if std::mem::take(&mut held.parked) {
            self.wake.notify_one();
        }
    }

    pub fn remove(&self, tickets: impl Iterator<Item = u64>) {
        let mut held = self.lock();
        for ticket in tickets {
            held.leases.remove(&ticket);
        }
    }

    /// Whether a lease is still worth writing under.
    pub fn stands(&self, ticket: u64) -> bool {
        let held = self.lock();
        held.leases.get(&ticket).is_some_and(|lease| !lease.stop.is_cancelled())
    }

    /// Tells every handler to stop.
    pub fn stop_all(&self) {
        for lease in self.lock().leases.values() {
            lease.stop.cancel();
        }
    }

    /// Ends the keeper. What is still held is left to expire.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Starts the keeper on a thread of its own, so that no handler can keep it from running; it
    /// also tells that the worker is there. The answer comes when it has ended.
    pub fn keep_apart(
        self: &Arc<Self>,
        transport: Arc<dyn Transport>,
        presence: Presence,
    ) -> Result<oneshot::Receiver<()>, Error> {
        let failed = |error: std::io::Error| {
            Error::config(format!("the thread that keeps leases cannot be started: {error}"))
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (leases, (ended, end)) = (self.clone(), oneshot::channel());
        let thread = std::thread::Builder::new().name("ff-leases".to_owned());
        let keep = move || {
            runtime.block_on(presence.keep(leases.keep(transport)));
            let _ = ended.send(());
        };
        thread.spawn(keep).map_err(failed)?;
        Ok(end)
    }

    async fn keep(&self, transport: Arc<dyn Transport>) {
        let (mut failures, mut retry_at) = (0, None);
        loop {
            match self.round(retry_at) {
                Round::End => return,
                Round::Park => self.wake.notified().await,
                Round::Wait(until) => {
                    tokio::select! {
                        () = self.clock.sleep_until(until) => {}
                        () = self.wake.notified() => {}
                    }
                }
                Round::Renew(due) => {
                    let sent = self.clock.now();
                    if self.renew(&*transport, &due, sent).await {
                        (failures, retry_at) = (0, None);
                    } else {
                        let pause = backoff(failures, RETRY, self.lease / 12);
                        retry_at = Some(self.clock.now().after(pause));
                        failures += 1;
                    }
                }
            }
        }
    }

    /// Stops what is overdue and says what is to be done next.
    fn round(&self, retry_at: Option<TimestampMs>) -> Round {
        let now = self.clock.now();
        let mut held = self.lock();
        if held.closed {
            return Round::End;
        }
        if held.leases.is_empty() {
            held.parked = true;
            return Round::Park;
        }
        let mut next = now.after(self.lease);
        for lease in held.leases.values().filter(|lease| !lease.stop.is_cancelled()) {
            if lease.stop_at <= now {
                tracing::warn!(execution = %lease.handle.execution_id(), "no renewal in time");
                lease.stop.cancel();
            } else {
                let renew_at = lease.renew_at.max(retry_at.unwrap_or_default());
                next = next.min(renew_at).min(lease.stop_at);
            }
        }
        if next > now {
            return Round::Wait(next);
        }
        // Those that are nearly due come along.
        let soon = now.after(self.lease / 12);
        let due = held
            .leases
            .iter()
            .filter(|(_, lease)| lease.renew_at <= soon && !lease.stop.is_cancelled());
        let due = due.map(|(ticket, lease)| (*ticket, lease.handle.clone()));
        Round::Renew(due.take(limits::RENEW_BATCH).collect())
    }

    /// Renews, and stops what falls due meanwhile. False if it must be tried again.
    async fn renew(
        &self,
        transport: &dyn Transport,
        due: &[(u64, Handle)],
        sent: TimestampMs,
    ) -> bool {
        let handles: Vec<Handle> = due.iter().map(|(_, handle)| handle.clone()).collect();
        let outcome = tokio::select! {
            biased;
            outcome = transport.renew(&handles) => outcome,
            never = self.stop_overdue() => match never {},
            () = self.clock.sleep_until(sent.after(self.lease / 3)) => {
                Err(EngineError::Timeout { op: "renew", elapsed: self.lease / 3 })
            }
        };
        match outcome {
            Ok(outcomes) => {
                self.renewed(due, outcomes, sent);
                true
            }
            Err(error) => {
                tracing::warn!(%error, leases = due.len(), "leases could not be renewed");
                false
            }
        }
    }

    fn renewed(&self, due: &[(u64, Handle)], outcomes: Vec<RenewOutcome>, sent: TimestampMs) {
        let mut held = self.lock();
        for ((ticket, _), outcome) in due.iter().zip(outcomes) {
            let Some(lease) = held.leases.get_mut(ticket) else { continue };
            match outcome {
                RenewOutcome::Renewed { .. } => self.extend(lease, sent),
                RenewOutcome::Lost(error) => {
                    let execution = lease.handle.execution_id();
                    tracing::info!(%execution, %error, "the lease is lost");
                    lease.stop.cancel();
                }
            }
        }
    }

    /// Stops what is not renewed in time while a renewal hangs.
    async fn stop_overdue(&self) -> Infallible {
        loop {
            let now = self.clock.now();
            let mut next = now.after(self.lease / 12);
            for lease in self.lock().leases.values() {
                if lease.stop_at <= now {
                    lease.stop.cancel();
                } else {
                    next = next.min(lease.stop_at);
                }
            }
            self.clock.sleep_until(next).await;
        }
    }

    fn extend(&self, lease: &mut Lease, from: TimestampMs) {
        lease.renew_at = from.after(self.lease / 3);
        lease.stop_at = from.after(self.lease - margin(self.lease));
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
