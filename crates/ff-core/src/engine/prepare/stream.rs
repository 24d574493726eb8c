//! Checks what workers say, and what readers ask for.

use serde_json::Value;

use crate::backend::Handle;
use crate::contracts::{AppendFramesArgs, FrameInput, FrameMode};
use crate::engine::prepare::{check_count, check_text};
use crate::engine_error::{EngineError, ValidationKind};
use crate::limits;
use crate::operations::stream::{AppendFrames, PreparedFrame, depth};

pub(crate) fn prepare_append(
    handle: &Handle,
    args: AppendFramesArgs,
) -> Result<AppendFrames, EngineError> {
    check_count("frames", args.frames.len(), limits::APPEND_FRAMES)?;
    let bytes: usize = args.frames.iter().map(|frame| frame.payload.len()).sum();
    if bytes > limits::APPEND_BYTES {
        let limit = limits::APPEND_BYTES;
        return too_large(format!("the frames are {bytes} bytes long, the limit is {limit}"));
    }
    let frames = args.frames.into_iter().map(prepare_frame).collect::<Result<_, _>>()?;
    Ok(AppendFrames { handle: handle.clone(), frames, append_id: args.append_id })
}

fn prepare_frame(frame: FrameInput) -> Result<PreparedFrame, EngineError> {
    check_text("frame type", &frame.frame_type, 1, limits::NAME_BYTES)?;
    for (what, text) in [("encoding", &frame.encoding), ("correlation id", &frame.correlation_id)] {
        check_text(what, text.as_deref().unwrap_or_default(), 0, limits::NAME_BYTES)?;
    }
    if frame.payload.len() > limits::FRAME_BYTES {
        let (len, limit) = (frame.payload.len(), limits::FRAME_BYTES);
        return too_large(format!("a frame is {len} bytes long, the limit is {limit}"));
    }
    let patch = match frame.mode {
        FrameMode::Summary => Some(read_patch(&frame.payload)?),
        FrameMode::Durable | FrameMode::BestEffort => None,
    };
    Ok(PreparedFrame {
        frame_type: frame.frame_type.into(),
        payload: frame.payload.into(),
        mode: frame.mode,
        encoding: frame.encoding.map(Into::into),
        correlation_id: frame.correlation_id.map(Into::into),
        patch,
    })
}

/// The merge patch that a summary frame is.
fn read_patch(payload: &[u8]) -> Result<Value, EngineError> {
    let patch: Value = serde_json::from_slice(payload)
        .map_err(|error| EngineError::invalid(format!("a summary frame is not JSON: {error}")))?;
    if !patch.is_object() {
        return Err(EngineError::invalid("a summary frame is not a JSON object"));
    }
    let (deep, limit) = (depth(&patch), limits::SUMMARY_DEPTH);
    if deep > limit {
        let detail = format!("a summary frame is {deep} levels deep, the limit is {limit}");
        return Err(EngineError::invalid(detail));
    }
    Ok(patch)
}

fn too_large<T>(detail: String) -> Result<T, EngineError> {
    Err(EngineError::validation(ValidationKind::PayloadTooLarge, detail))
}
