//! What every backend must do: exercises for one at a time, a model to compare any with, and a
//! simulation of the core.

#![forbid(unsafe_code)]

pub mod damaged;
pub mod damaged_records;
pub mod exercise;
pub mod model;
pub mod simulation;
