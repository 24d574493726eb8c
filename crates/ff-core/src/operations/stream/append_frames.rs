//! The holder says something, in batches. Its lease is kept with it.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::merge_patch::merge_patch;
use super::trim::{to_look_at, trim};
use crate::backend::Handle;
use crate::contracts::{AppendFramesOutcome, FrameId, FrameMode};
use crate::engine_error::{EngineError, ValidationKind};
use crate::limits;
use crate::operations::Operation;
use crate::operations::execution::fence;
use crate::rows::{FrameKey, FrameRow, StreamKey, StreamRow, SummaryKey, SummaryRow, Word, values};
use crate::store::{Change, Needs, Scan, World};
use crate::types::TimestampMs;

#[derive(Debug)]
pub struct AppendFrames {
    pub handle: Handle,
    pub frames: Vec<PreparedFrame>,
    pub append_id: Option<Uuid>,
}

/// A frame that has been checked.
#[derive(Debug)]
pub struct PreparedFrame {
    pub frame_type: Arc<str>,
    pub payload: Arc<[u8]>,
    pub mode: FrameMode,
    pub encoding: Option<Arc<str>>,
    pub correlation_id: Option<Arc<str>>,
    /// The payload of a summary frame.
    pub patch: Option<Value>,
}

/// So many frames cost about as much as one other operation.
const FRAMES_PER_OPERATION: usize = 8;

impl Operation for AppendFrames {
    type Reply = AppendFramesOutcome;

    const NAME: &'static str = "append_frames";
    const MAY_END_LEASES: bool = false;

    fn weight(&self) -> usize {
        self.frames.len().div_ceil(FRAMES_PER_OPERATION)
    }

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
        needs.record::<StreamRow>(&self.key());
        if self.has_patches() {
            needs.record::<SummaryRow>(&self.summary_key());
        }
    }

    fn more(&self, world: &World, needs: &mut Needs) {
        if let Some(scan) = self.oldest(world) {
            needs.scan(&scan);
        }
    }

    fn decide(&self, world: &World) -> Result<(AppendFramesOutcome, Change), EngineError> {
        let mut change = Change::default();
        let held = fence::held(world, &self.handle)?;
        let known = world.record::<StreamRow>(&self.key());
        if let Some(stream) = known.as_ref().filter(|stream| self.is_repeat(stream)) {
            let expires_at = held.keep(&mut change, &self.handle, held.row.clone(), world.now);
            let summary = world.record::<SummaryRow>(&self.summary_key());
            let version = summary.filter(|_| self.has_patches()).map(|summary| summary.version);
            return Ok((self.outcome(stream, version, expires_at), change));
        }
        let mut stream = known.clone().unwrap_or_else(|| StreamRow::empty(self.key(), world.now));
        if let Some(scan) = self.oldest(world) {
            let policy = held.row.policy().stream_policy;
            let oldest = world.scan::<FrameRow>(&scan);
            let gone = trim(&mut stream, &policy, &oldest);
            oldest[..gone].iter().for_each(|frame| change.delete::<FrameRow>(&frame.key));
        }
        self.append(&mut stream, &mut change, world.now);
        match known {
            Some(_) => change.update(&stream),
            None => change.insert(&stream),
        }
        let version = self.merge(world, &mut change)?;
        let expires_at = held.keep(&mut change, &self.handle, held.row.clone(), world.now);
        Ok((self.outcome(&stream, version, expires_at), change))
    }
}

impl AppendFrames {
    fn key(&self) -> StreamKey {
        let handle = &self.handle;
        StreamKey { execution: handle.key(), attempt_index: handle.attempt_index() }
    }

    fn summary_key(&self) -> SummaryKey {
        let StreamKey { execution, attempt_index } = self.key();
        SummaryKey { execution, attempt_index }
    }

    fn has_patches(&self) -> bool {
        self.frames.iter().any(|frame| frame.patch.is_some())
    }

    fn is_repeat(&self, stream: &StreamRow) -> bool {
        self.append_id.is_some() && self.append_id == stream.append_id
    }

    /// The oldest frames, if some of them are to be trimmed. Whoever writes them holds the
    /// execution's lock.
    fn oldest(&self, world: &World) -> Option<Scan> {
        let stream = world.record::<StreamRow>(&self.key())?;
        let policy = world.execution(self.handle.key())?.policy().stream_policy;
        let look_at = to_look_at(&stream, &policy, self.frames.len());
        let StreamKey { execution, attempt_index } = stream.key;
        (look_at > 0).then(|| {
            Scan::of::<FrameRow>(values![execution, attempt_index])
                .after(values![stream.first_sequence - 1])
                .limit(look_at)
                .unlocked()
        })
    }

    fn append(&self, stream: &mut StreamRow, change: &mut Change, now: TimestampMs) {
        stream.append_id = self.append_id;
        stream.append_first = stream.next_sequence;
        stream.last_frame_at = now;
        let StreamKey { execution, attempt_index } = stream.key;
        for frame in &self.frames {
            let sequence = stream.next_sequence;
            change.insert(&FrameRow {
                key: FrameKey { execution, attempt_index, sequence },
                frame_type: frame.frame_type.clone(),
                mode: Word(frame.mode),
                payload: frame.payload.clone(),
                encoding: frame.encoding.clone(),
                correlation_id: frame.correlation_id.clone(),
                at: now,
            });
            stream.next_sequence += 1;
            stream.bytes += frame.payload.len() as u64;
            if frame.mode != FrameMode::Durable && stream.early_until == sequence {
                stream.early_until += 1;
            }
        }
    }

    /// Applies the patches to the summary; its version, if there were any.
    fn merge(&self, world: &World, change: &mut Change) -> Result<Option<u64>, EngineError> {
        if !self.has_patches() {
            return Ok(None);
        }
        let known = world.record::<SummaryRow>(&self.summary_key());
        let (mut document, mut version) = match &known {
            Some(row) => (serde_json::from_str(&row.document).unwrap_or_default(), row.version),
            None => (Value::Null, 0),
        };
        for patch in self.frames.iter().filter_map(|frame| frame.patch.clone()) {
            document = merge_patch(document, patch);
            version += 1;
        }
        let text = document.to_string();
        if text.len() > limits::SUMMARY_BYTES {
            let (len, limit) = (text.len(), limits::SUMMARY_BYTES);
            let detail = format!("the summary would be {len} bytes long, the limit is {limit}");
            return Err(EngineError::validation(ValidationKind::PayloadTooLarge, detail));
        }
        let first_applied_at = known.as_ref().map_or(world.now, |row| row.first_applied_at);
        let row = SummaryRow {
            key: self.summary_key(),
            document: text.into(),
            version,
            first_applied_at,
            last_updated_at: world.now,
        };
        match known {
            Some(_) => change.update(&row),
            None => change.insert(&row),
        }
        Ok(Some(version))
    }

    fn outcome(
        &self,
        stream: &StreamRow,
        summary_version: Option<u64>,
        lease_expires_at: TimestampMs,
    ) -> AppendFramesOutcome {
        let attempt_index = stream.key.attempt_index;
        AppendFramesOutcome {
            first: FrameId { attempt_index, sequence: stream.append_first },
            last: FrameId { attempt_index, sequence: stream.next_sequence - 1 },
            frame_count: stream.frame_count(),
            summary_version,
            lease_expires_at,
        }
    }
}
