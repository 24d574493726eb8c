//! The server on real sockets over real SQLite files.

mod client;
mod events;
mod executions;
mod hostile;
mod limits;
mod server;
mod system;
mod walk;
mod workers;
