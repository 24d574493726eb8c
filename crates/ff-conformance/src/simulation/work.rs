//! What workers do on the way: they record steps, sleep, and say things that others follow.

use std::sync::Arc;
use std::time::Duration;

use ff_core::backend::Handle;
use ff_core::contracts::{AppendFramesOutcome, FrameMode, RecordStepOutcome, SleepOutcome};
use ff_core::operations::step::{RecordStep, SleepStep};
use ff_core::operations::stream::{AppendFrames, PreparedFrame};
use uuid::Uuid;

use super::Simulation;
use super::message::{Answer, Verb};

/// Few names, so that a later attempt, or another worker, comes to the same step.
const STEPS: [&str; 3] = ["fetch", "charge", "tell"];
const NAP: &str = "nap";

pub(super) fn record(handle: Handle, name: &'static str, result: Arc<[u8]>) -> RecordStep {
    RecordStep { handle, name: name.into(), result }
}

/// The result that stands, which may be another's.
pub(super) fn recorded(own: Arc<[u8]>) -> impl FnOnce(RecordStepOutcome) -> Answer {
    move |outcome| match outcome {
        RecordStepOutcome::Recorded { lease_expires_at, .. } => {
            Answer::Recorded { result: own, until: lease_expires_at }
        }
        RecordStepOutcome::Kept { result, lease_expires_at, .. } => {
            Answer::Recorded { result, until: lease_expires_at }
        }
    }
}

pub(super) fn sleep(handle: Handle, duration: Duration) -> SleepStep {
    SleepStep { handle, name: NAP.into(), duration }
}

pub(super) fn slept(outcome: &SleepOutcome) -> Answer {
    match *outcome {
        SleepOutcome::Over { due_at, lease_expires_at } => {
            Answer::Slept { due_at, until: Some(lease_expires_at) }
        }
        SleepOutcome::PutDown { until } => Answer::Slept { due_at: until, until: None },
    }
}

pub(super) fn append(handle: Handle, append_id: Uuid) -> AppendFrames {
    let frame = PreparedFrame {
        frame_type: "said".into(),
        payload: append_id.as_bytes().as_slice().into(),
        mode: FrameMode::Durable,
        encoding: None,
        correlation_id: None,
        patch: None,
    };
    AppendFrames { handle, frames: vec![frame], append_id: Some(append_id) }
}

pub(super) fn appended(outcome: &AppendFramesOutcome) -> Answer {
    Answer::Appended { sequence: outcome.first.sequence, until: outcome.lease_expires_at }
}

impl Simulation {
    /// What a worker does with work in hand, one thing after the other.
    pub(super) fn draw_doing(&mut self, handle: Handle) -> Verb {
        if self.rng.bool() {
            let name = STEPS[self.rng.usize(0..STEPS.len())];
            let result = format!("{name} {}", self.rng.u64(..)).into_bytes().into();
            return Verb::Record(handle, name, result);
        }
        Verb::Append(handle, Uuid::from_u128(self.rng.u128(..)))
    }

    pub(super) fn draw_sleep(&mut self, handle: Handle) -> Verb {
        Verb::Sleep(handle, Duration::from_millis(self.rng.u64(0..1_500)))
    }
}
