//! What attempts say while they run.

mod append_frames;
mod merge_patch;
mod trim;

pub use append_frames::{AppendFrames, PreparedFrame};
pub use merge_patch::{NULL, depth, merge_patch};
