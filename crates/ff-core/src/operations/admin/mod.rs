//! Running the engine: lanes.

mod pause_lane;

pub use pause_lane::{PauseLane, ResumeLane};
