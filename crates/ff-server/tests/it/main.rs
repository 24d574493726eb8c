//! The server on real sockets over real SQLite files.

mod budgets;
mod bulk;
mod client;
mod docs;
mod events;
mod executions;
mod flows;
mod fuzz;
mod hostile;
mod limits;
mod lists;
mod operations;
mod postgres;
mod receiver;
mod revocation;
mod schedules;
mod server;
mod streams;
mod suspension;
mod system;
mod tls;
mod tokens;
mod walk;
mod webhooks;
mod workers;
