//! `ff_stream` and its frames: what an attempt says while it runs.

use std::sync::Arc;

use uuid::Uuid;

use super::{Word, record};

use crate::contracts::FrameMode;
use crate::types::{ExecutionKey, TimestampMs};

record! {
    /// Where the stream of an attempt begins and ends.
    pub struct StreamRow in "ff_stream", guarded {
        key StreamKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
            attempt_index: u32 = [attempt_index: Int4],
        }
        /// The number of the oldest frame that is kept.
        first_sequence: u64 = [first_sequence: Int],
        /// The number that the next frame gets.
        next_sequence: u64 = [next_sequence: Int],
        /// No frame before this one is durable.
        early_until: u64 = [early_until: Int],
        /// Payloads that are kept.
        bytes: u64 = [bytes: Int],
        created_at: TimestampMs = [created_at_ms: Int],
        last_frame_at: TimestampMs = [last_frame_at_ms: Int],
        /// The last append, so that its repeat is recognised, and its first frame.
        append_id: Option<Uuid> = [append_id: Uuid],
        append_first: u64 = [append_first: Int],
    }
}

record! {
    pub struct FrameRow in "ff_stream_frame", guarded {
        key FrameKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
            attempt_index: u32 = [attempt_index: Int4],
            sequence: u64 = [sequence: Int],
        }
        frame_type: Arc<str> = [frame_type: Text],
        mode: Word<FrameMode> = [frame_mode: Text],
        payload: Arc<[u8]> = [payload: Bytes],
        encoding: Option<Arc<str>> = [encoding: Text],
        correlation_id: Option<Arc<str>> = [correlation_id: Text],
        at: TimestampMs = [at_ms: Int],
    }
}

record! {
    /// All summary frames of a stream, merged.
    pub struct SummaryRow in "ff_stream_summary", guarded {
        key SummaryKey {
            execution: ExecutionKey = [partition_key: Small, execution_id: Uuid],
            attempt_index: u32 = [attempt_index: Int4],
        }
        /// JSON, as a text: a database that reads it would refuse some of it.
        document: Arc<str> = [document: Text],
        version: u64 = [version: Int],
        first_applied_at: TimestampMs = [first_applied_at_ms: Int],
        last_updated_at: TimestampMs = [last_updated_at_ms: Int],
    }
}

impl StreamRow {
    /// A stream that nothing was said in yet.
    pub fn empty(key: StreamKey, now: TimestampMs) -> Self {
        Self {
            key,
            first_sequence: 1,
            next_sequence: 1,
            early_until: 1,
            bytes: 0,
            created_at: now,
            last_frame_at: now,
            append_id: None,
            append_first: 1,
        }
    }

    /// How many frames are kept.
    pub fn frame_count(&self) -> u64 {
        self.next_sequence - self.first_sequence
    }
}
