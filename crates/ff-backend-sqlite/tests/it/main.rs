//! The SQLite store against real files and shared memory.

mod conformance;
mod contract;
mod damaged;
mod files;
mod flush;
mod model;
mod outside;
mod records;
mod restored;
mod transactional;
