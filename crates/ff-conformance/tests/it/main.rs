//! The one test binary of this crate.

mod exercises;
mod model;
mod transitions;
