//! What happens by itself when time passes.

mod announce;
mod isolation;
pub(crate) mod retain;
mod sweep;

pub use announce::Announce;
pub use isolation::{FIRST_PAUSE_MS, Isolation, TimerFault};
pub use retain::{Retain, Retention};
pub(crate) use sweep::Sweeping;
pub use sweep::{Sweep, Swept};
