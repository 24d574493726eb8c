//! Client and worker for programs in Rust.
//!
//! A worker is a list of plain async functions. What they ask for as arguments is taken from the
//! execution; what they answer becomes its result; `?` means that the attempt failed and is tried
//! again.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! use ff_sdk::{Client, Input, Outcome, Task, Worker};
//! use ff_backend_sqlite::SqliteBackend;
//!
//! const GREET: Task<String, String> = Task::new("greet");
//!
//! async fn greet(Input(name): Input<String>) -> Outcome<String> {
//!     Ok(format!("Hello, {name}!"))
//! }
//!
//! let engine = SqliteBackend::new(":memory:").await?;
//! let client = Client::embedded(engine.clone());
//! let run = client.start(GREET, &"Ada".to_owned()).await?;
//! let greeted = async { assert_eq!(run.result().await.unwrap(), "Hello, Ada!") };
//! Worker::new(client.clone()).task(GREET, greet).run_until(greeted).await?;
//! engine.close().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

#![forbid(unsafe_code)]

mod client;
mod clock;
mod ctx;
mod error;
mod extract;
pub mod failure;
mod flow;
mod handler;
pub mod load;
mod task;
pub mod testing;
pub mod transport;
mod worker;

pub use client::{Client, Events, Frames, Run, Start};
pub use ctx::{Ctx, Growth};
pub use error::Error;
pub use extract::{Attempt, FromExecution, Input, Payload, State, States, Tags};
pub use failure::{Failure, Outcome};
pub use flow::{Flow, FlowRun, Needs, Node};
pub use handler::{Handler, IntoOutcome, Takes};
pub use task::{DEFAULT_LANE, Retry, Task};
pub use worker::{UnknownKind, Worker};

/// Compiles and runs the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sdk.md")]
struct Guide;
