//! Kills the engine again and again under load, and proves from what its clients wrote down that
//! nothing acknowledged was lost and nothing was accepted twice.
//!
//! Read in this order: `history` (what clients write down), `workload` (what they do), `victim` and
//! `harness` (who kills whom), `evidence` and `checker` (what must hold afterwards). `large` is a
//! play of its own.

#![forbid(unsafe_code)]

pub mod checker;
pub mod evidence;
pub mod graph;
pub mod harness;
pub mod history;
pub mod http;
pub mod large;
pub mod victim;
pub mod workload;
