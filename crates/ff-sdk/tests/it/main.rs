//! The SDK on real SQLite files, with a clock that stands still until a test moves it.

mod bed;
mod client;
mod drain;
mod faults;
mod flows;
mod handlers;
mod http;
mod leases;
mod place;
mod steps;
mod testing;
mod waits;
mod ways;
