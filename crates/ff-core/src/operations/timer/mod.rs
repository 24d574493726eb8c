//! What happens by itself when time passes.

mod retain;
mod sweep;

pub use retain::{Retain, Retention};
pub use sweep::Sweep;
