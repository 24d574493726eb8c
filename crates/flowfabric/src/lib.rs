//! FlowFabric: a durable execution engine that is embedded as a library.
//!
//! Work is submitted to a *lane*; a worker claims it under a *lease* and completes or fails it;
//! whatever dies in between, the work comes back. This crate gathers what a program needs: the
//! trait [`EngineBackend`], the types around it, the stores [`sqlite`] and [`postgres`], and client
//! and worker in [`sdk`].
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! use flowfabric::EngineBackend;
//! use flowfabric::contracts::Submission;
//! use flowfabric::sqlite::SqliteBackend;
//! use flowfabric::state::PublicState;
//!
//! let engine = SqliteBackend::new(":memory:").await?;
//! let outcomes = engine.submit(vec![Submission::new("mail", "welcome").payload("ada")]).await?;
//! let id = outcomes[0].execution_id().expect("a valid submission is accepted");
//! let snapshot = engine.describe_execution(id).await?.expect("it was just accepted");
//! assert_eq!(snapshot.public_state, PublicState::Waiting);
//! engine.close().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

#![forbid(unsafe_code)]

pub use ff_core::engine_backend::{
    Acting, BulkOperations, CounterOperations, EngineBackend, FlowOperations, LimitOperations,
    Namespaced, ScheduleOperations, StepOperations, StreamOperations, SuspensionOperations,
    TimerOperations, TokenOperations, WebhookOperations, WorkerOperations,
};
pub use ff_core::{
    backend, condition, contracts, engine, engine_error, limits, partition, policy, state, token,
    types,
};

/// Client and worker, for programs that would rather not call the engine themselves.
pub use ff_sdk as sdk;

/// How long finished executions are kept.
pub use ff_core::operations::timer::Retention;

#[cfg(feature = "postgres")]
pub use ff_backend_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use ff_backend_sqlite as sqlite;

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// The traits that the engine's sources declare for callers, by reading them: a trait that is
    /// forgotten above could not be named here either.
    fn declared() -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-core/src/engine_backend");
        let mut names = Vec::new();
        for file in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            let traits = text.lines().filter_map(|line| line.strip_prefix("pub trait "));
            names.extend(traits.map(|rest| rest.split(':').next().unwrap().to_owned()));
        }
        names
    }

    #[test]
    fn every_operation_trait_is_exported() {
        let own = include_str!("lib.rs");
        let exported = own.split_once("pub use ff_core::engine_backend::{").unwrap().1;
        let exported = exported.split_once("};").unwrap().0;
        let exported: Vec<&str> = exported.split(',').map(str::trim).collect();
        let declared = declared();
        assert!(declared.len() >= 12, "{declared:?}");
        for name in declared {
            assert!(exported.contains(&name.as_str()), "{name} is not exported");
        }
    }
}
