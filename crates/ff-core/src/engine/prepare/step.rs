//! Checks what workers record.

use crate::engine::prepare::check_text;
use crate::engine_error::{EngineError, ValidationKind};
use crate::limits;

pub(crate) fn check_step_name(name: &str) -> Result<(), EngineError> {
    check_text("step name", name, 1, limits::STEP_NAME_BYTES)
}

pub(crate) fn check_step_result(result: &[u8]) -> Result<(), EngineError> {
    if result.len() <= limits::STEP_BYTES {
        return Ok(());
    }
    let (len, limit) = (result.len(), limits::STEP_BYTES);
    let detail = format!("the step's result is {len} bytes long, the limit is {limit}");
    Err(EngineError::validation(ValidationKind::PayloadTooLarge, detail))
}
