//! What happens by itself when time passes.

mod announce;
pub(crate) mod retain;
mod sweep;

pub use announce::Announce;
pub use retain::{Retain, Retention};
pub use sweep::Sweep;
pub(crate) use sweep::Sweeping;
