//! The HTTP server over any engine. One table of routes makes the router, the OpenAPI document and
//! the test that no route answers a caller who may not use it.

#![forbid(unsafe_code)]

mod activity;
mod admission;
mod body;
mod call;
pub mod config;
mod connections;
mod gate;
mod heads;
mod host;
mod listen;
mod metrics;
mod open;
mod openapi;
mod pipeline;
mod poll;
mod private;
mod query;
mod redact;
mod refusal;
mod remote;
mod replies;
mod root;
mod route;
mod routes;
mod secrets;
mod sse;
mod state;
mod tls;
mod upkeep;
mod webhooks;
mod wire;

pub use config::{Auth, Config, ConfigError, Layers, Origin, Shown};
pub use gate::{Principal, mint_token};
pub use listen::{Bound, ServeError, serve};
pub use open::{Backend, OpenError, open, open_existing};
pub use openapi::document as openapi;
pub use pipeline::router;
pub use refusal::CODES;
pub use root::{RootTokenError, root_token};
pub use route::{Access, Reach, Route};
pub use routes::table;
pub use state::State;
