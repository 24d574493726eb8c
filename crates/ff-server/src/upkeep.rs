//! What a running server does from time to time, and when it is sent SIGHUP: it takes over
//! certificates that were replaced.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::state::State;
use crate::tls::Certificate;

/// Looks at the certificate's files until the server closes.
pub async fn run(state: Arc<State>, tls: Option<Arc<Certificate>>, every: Duration) {
    let mut hangup = Hangup::new();
    let mut checks = tokio::time::interval(every);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let asked = tokio::select! {
            () = state.closing.cancelled() => return,
            () = hangup.received() => true,
            _ = checks.tick() => false,
        };
        let Some(tls) = tls.clone() else {
            if asked {
                tracing::info!("SIGHUP: there is no certificate to reload");
            }
            continue;
        };
        let reload = move || if asked { Some(tls.reload()) } else { tls.reload_if_replaced() };
        match tokio::task::spawn_blocking(reload).await.unwrap_or_default() {
            Some(Ok(())) => {
                state.metrics.tls_reloads_total.fetch_add(1, Ordering::Relaxed);
                tracing::info!("the TLS certificate was reloaded");
            }
            Some(Err(error)) => {
                state.metrics.tls_reload_failures_total.fetch_add(1, Ordering::Relaxed);
                tracing::error!(error, "the TLS certificate cannot be reloaded; the old one stays");
            }
            None => {}
        }
    }
}

/// SIGHUP, which would otherwise end the process.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    #[cfg(unix)]
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self { signal: signal(SignalKind::hangup()).ok() }
    }

    #[cfg(not(unix))]
    fn new() -> Self {
        Self {}
    }

    async fn received(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
