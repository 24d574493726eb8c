//! The server on real sockets over real SQLite files.

mod budgets;
mod client;
mod docs;
mod events;
mod executions;
mod flows;
mod hostile;
mod limits;
mod operations;
mod server;
mod streams;
mod suspension;
mod system;
mod tokens;
mod walk;
mod workers;
