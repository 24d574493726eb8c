//! What a holder leaves behind while it works: steps and frames.

use std::sync::Arc;

use ff_core::backend::Handle;
use ff_core::contracts::{
    AppendFramesArgs, AppendFramesOutcome, FrameInput, RecordStepOutcome, Step,
};
use ff_core::engine_backend::{EngineBackend, StepOperations, StreamOperations};
use ff_core::engine_error::EngineError;
use uuid::Uuid;

use super::work::bytes;
use crate::history::{self, Lease, Outcome};

/// The steps of an execution, in the order in which a worker takes them.
pub const STEPS: [&str; 3] = ["fetch", "charge", "send"];
const FRAME_TYPE: &str = "chaos";

/// What follows from a seed, as a step keeps it.
pub fn value(seed: u64) -> u64 {
    history::hash(&bytes(seed))
}

pub fn named(steps: &[Step]) -> impl Iterator<Item = (String, u64)> {
    steps.iter().map(|step| (step.name.clone(), history::hash(&step.result)))
}

pub async fn record(
    backend: &dyn EngineBackend,
    lease: &Lease,
    name: &str,
    seed: u64,
) -> Result<Outcome, EngineError> {
    let recorded = backend.record_step(&Handle::decode(&lease.handle)?, name, bytes(seed)).await?;
    Ok(stands(&recorded, seed))
}

/// What a holder is told that stands.
pub fn stands(recorded: &RecordStepOutcome, seed: u64) -> Outcome {
    let value = match recorded {
        RecordStepOutcome::Recorded { .. } => value(seed),
        RecordStepOutcome::Kept { result, .. } => history::hash(result),
    };
    Outcome::Recorded { value }
}

pub async fn append(
    backend: &dyn EngineBackend,
    lease: &Lease,
    append_id: Uuid,
    frames: u32,
) -> Result<Outcome, EngineError> {
    let frames = said(append_id, frames);
    let args = AppendFramesArgs { frames, append_id: Some(append_id) };
    let done = backend.append_frames(&Handle::decode(&lease.handle)?, args).await?;
    Ok(place(&done))
}

/// Each frame says which call it belongs to, and the how manyth of it it is.
pub fn said(append_id: Uuid, frames: u32) -> Vec<FrameInput> {
    let frame = |at: u32| FrameInput::new(FRAME_TYPE, format!("{append_id}/{at}"));
    (0..frames).map(frame).collect()
}

pub fn place(done: &AppendFramesOutcome) -> Outcome {
    let (first, last) = (done.first, done.last);
    Outcome::Appended { attempt: first.attempt_index, first: first.sequence, last: last.sequence }
}

/// What a frame said of itself.
pub fn spoken(payload: &Arc<[u8]>) -> Option<(Uuid, u32)> {
    let (append_id, at) = std::str::from_utf8(payload).ok()?.split_once('/')?;
    Some((append_id.parse().ok()?, at.parse().ok()?))
}
