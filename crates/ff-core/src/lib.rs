//! FlowFabric's engine: every rule about state, written once and without I/O, and the shell that
//! runs it on a store.
//!
//! Read in this order: `rows` (what is stored), `operations` (what may happen to it), `store` (the
//! seam that a database implements), `engine` (batching, timers, subscriptions), and last
//! `engine_backend`, the trait that callers hold.

#![forbid(unsafe_code)]

pub mod types;

pub mod partition;

pub mod state;

pub mod policy;

pub mod limits;

pub mod capability;

pub mod condition;

pub mod token;

pub mod cron;

pub mod backend;

pub mod contracts;

pub mod engine_error;

pub mod rows;

pub mod store;

pub mod operations;

pub mod views;

pub mod engine;

pub mod engine_backend;

pub mod mutants;
