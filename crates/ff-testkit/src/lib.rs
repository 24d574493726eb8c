//! Real servers for tests and benchmarks: private, temporary, on free ports.

#![forbid(unsafe_code)]

pub mod clock;
mod packages;
pub mod postgres;
