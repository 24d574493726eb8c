//! The server on real sockets over real SQLite files.

mod client;
mod docs;
mod events;
mod executions;
mod hostile;
mod limits;
mod server;
mod streams;
mod suspension;
mod system;
mod tokens;
mod walk;
mod workers;
