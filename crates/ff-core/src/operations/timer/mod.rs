//! What happens by itself when time passes.

mod announce;
pub(crate) mod expected;
mod isolation;
mod rearm;
pub(crate) mod retain;
mod sweep;

pub use announce::Announce;
pub use isolation::{FIRST_PAUSE_MS, Isolation, TimerFault};
pub use rearm::Rearm;
pub use retain::{Retain, Retention};
pub(crate) use sweep::Sweeping;
pub use sweep::{Sweep, Swept};
