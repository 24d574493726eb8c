//! The SQLite store against real files and shared memory.

mod conformance;
mod contract;
mod files;
mod model;
mod records;
mod transactional;
