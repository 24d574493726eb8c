//! What an execution has done stays done.

mod record_step;
mod reuse;
mod sleep_step;

pub use record_step::RecordStep;
pub use reuse::{adopt, steps_up_to};
pub use sleep_step::SleepStep;

use std::sync::Arc;

use crate::engine_error::{EngineError, ValidationKind};
use crate::limits;
use crate::rows::{ExecutionRow, StepCount};

/// The count with one more step, unless there are too many of them.
fn one_more(row: &ExecutionRow, name: &Arc<str>, result: &[u8]) -> Result<StepCount, EngineError> {
    let known = row.step_count();
    if known.count as usize >= limits::STEPS {
        let detail = format!("the execution has {} steps, which is the limit", known.count);
        return Err(EngineError::invalid(detail));
    }
    let bytes = known.bytes + (name.len() + result.len()) as u64;
    if bytes > limits::STEPS_BYTES as u64 {
        let limit = limits::STEPS_BYTES;
        let detail = format!("the execution's steps would be {bytes} bytes, the limit is {limit}");
        return Err(EngineError::validation(ValidationKind::PayloadTooLarge, detail));
    }
    Ok(StepCount { count: known.count + 1, bytes })
}
