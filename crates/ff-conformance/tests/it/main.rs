//! The one test binary of this crate.

mod batch;
mod exercises;
mod idle;
mod left;
mod model;
mod transitions;
mod waits;
