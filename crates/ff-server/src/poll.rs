//! Long polls: look, wait for the bell, look again.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::state::State;

/// How often a long poll looks at most: every commit of anybody rings the bell.
const LOOK: Duration = Duration::from_millis(25);
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// Waits until it is worth looking again; says no when the time is up or the server closes.
pub async fn again<T>(state: &State, bell: &mut watch::Receiver<T>, deadline: Instant) -> bool {
    if Instant::now() >= deadline || state.closing.is_cancelled() {
        return false;
    }
    let changed = tokio::time::timeout(LOOK_ANYWAY, bell.changed());
    tokio::select! {
        () = state.closing.cancelled() => {}
        () = tokio::time::sleep_until(deadline) => {}
        _ = changed => tokio::time::sleep(LOOK).await,
    }
    true
}
