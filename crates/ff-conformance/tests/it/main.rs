//! The one test binary of this crate.

mod exercises;
mod idle;
mod model;
mod transitions;
