//! Streams: what an attempt says while it runs, and how others follow it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::engine_error::{EngineError, ValidationKind};
use crate::types::{ExecutionId, TimestampMs};

/// How much a frame is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FrameMode {
    /// Kept until the stream's limits are reached.
    #[default]
    Durable,
    /// A JSON merge patch for the stream's summary. The frame itself may be trimmed early, because
    /// the summary holds what it said.
    Summary,
    /// May be trimmed early.
    BestEffort,
}

/// Something to append to the stream of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FrameInput {
    /// What kind of frame it is, in the worker's own words: `stdout`, `token`, `event`.
    pub frame_type: String,
    #[serde(with = "super::base64")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub payload: Vec<u8>,
    #[serde(default)]
    pub mode: FrameMode,
    #[serde(default)]
    pub encoding: Option<String>,
    #[serde(default)]
    pub correlation_id: Option<String>,
}

impl FrameInput {
    pub fn new(frame_type: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        let (frame_type, payload) = (frame_type.into(), payload.into());
        Self { frame_type, payload, ..Self::default() }
    }

    #[must_use]
    pub fn mode(mut self, mode: FrameMode) -> Self {
        self.mode = mode;
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AppendFramesArgs {
    pub frames: Vec<FrameInput>,
    /// Names this call, so that a repeat is recognised. The stream remembers the last one: a
    /// writer repeats a call before it makes the next.
    #[serde(default)]
    pub append_id: Option<Uuid>,
}

/// Where the frames of one call are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AppendFramesOutcome {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub first: FrameId,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub last: FrameId,
    /// How many frames the stream keeps at present.
    pub frame_count: u64,
    /// Present if the call had summary frames.
    pub summary_version: Option<u64>,
    pub lease_expires_at: TimestampMs,
}

/// The place of a frame: the attempt, and its number in that attempt's stream, counted from 1
/// without holes. Written `attempt-number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId {
    pub attempt_index: u32,
    pub sequence: u64,
}

impl fmt::Display for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.attempt_index, self.sequence)
    }
}

impl FromStr for FrameId {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let parse = || {
            let (attempt, sequence) = text.split_once('-')?;
            (digits(attempt) && digits(sequence)).then_some(())?;
            Some(Self { attempt_index: attempt.parse().ok()?, sequence: sequence.parse().ok()? })
        };
        parse().ok_or_else(|| {
            let detail = "a place in a stream is `start`, `end` or `attempt-number`";
            EngineError::validation(ValidationKind::InvalidCursor, detail)
        })
    }
}

/// Where to read on in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StreamCursor {
    /// With the oldest frame that is kept.
    #[default]
    Start,
    /// With whatever comes next.
    End,
    /// After this frame.
    After(FrameId),
}

impl fmt::Display for StreamCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::End => f.write_str("end"),
            Self::After(id) => id.fmt(f),
        }
    }
}

impl FromStr for StreamCursor {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        match text {
            "start" => Ok(Self::Start),
            "end" => Ok(Self::End),
            id => id.parse().map(Self::After),
        }
    }
}

/// As text in JSON, as it is in a URL.
macro_rules! as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

as_text!(FrameId);
as_text!(StreamCursor);

/// Which frames a reader wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    #[default]
    All,
    ExcludeBestEffort,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReadStreamArgs {
    pub execution_id: ExecutionId,
    /// The attempt of the cursor if it names one, or the current attempt, when absent.
    #[serde(default)]
    pub attempt_index: Option<u32>,
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub from: StreamCursor,
    /// At most this many frames; 0 means 100.
    #[serde(default)]
    pub limit: usize,
    #[serde(default)]
    pub visibility: Visibility,
    /// How long to wait for something to tell, if there is nothing yet.
    #[serde(default)]
    pub wait_ms: u64,
}

impl ReadStreamArgs {
    /// Reads the current attempt from its start, without waiting.
    pub fn new(execution_id: ExecutionId) -> Self {
        Self {
            execution_id,
            attempt_index: None,
            from: StreamCursor::Start,
            limit: 0,
            visibility: Visibility::All,
            wait_ms: 0,
        }
    }
}

/// A stored frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Frame {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: FrameId,
    pub frame_type: String,
    #[serde(with = "super::base64")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub payload: Arc<[u8]>,
    pub mode: FrameMode,
    pub encoding: Option<String>,
    pub correlation_id: Option<String>,
    pub at: TimestampMs,
}

/// Frames that follow one another, and where to read on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamPage {
    pub attempt_index: u32,
    pub frames: Vec<Frame>,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub next: StreamCursor,
    /// Frames between the cursor and this place were trimmed: they are lost to this reader.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub trimmed_to: Option<FrameId>,
    /// Told with the last frames, never before them: nothing will come behind.
    pub closed: Option<StreamEnd>,
}

/// Why nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    AttemptSuccess,
    AttemptFailure,
    AttemptCancelled,
    /// The attempt ran longer than its policy allows.
    AttemptTimeout,
    LeaseExpired,
    /// The execution's deadline came.
    Expired,
    Skipped,
    /// The execution was taken up anew, or ended, without this attempt.
    Superseded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamEnd {
    pub reason: CloseReason,
    pub closed_at: Option<TimestampMs>,
    /// The attempt that goes on after this one, if there is one.
    pub next_attempt: Option<u32>,
}

/// All summary frames of a stream, merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamSummary {
    pub attempt_index: u32,
    pub document: serde_json::Value,
    /// Counts the patches.
    pub version: u64,
    pub first_applied_at: TimestampMs,
    pub last_updated_at: TimestampMs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_survive_their_text_form() {
        let id = FrameId { attempt_index: 3, sequence: u64::MAX };
        for cursor in [StreamCursor::Start, StreamCursor::End, StreamCursor::After(id)] {
            assert_eq!(cursor.to_string().parse::<StreamCursor>().unwrap(), cursor);
            let json = serde_json::to_string(&cursor).unwrap();
            assert_eq!(serde_json::from_str::<StreamCursor>(&json).unwrap(), cursor);
        }
        for bad in ["", "-", "+", "0", "0-", "-1", "a-1", "1-+2", "1-2-3", "1-99999999999999999999"]
        {
            let error = bad.parse::<StreamCursor>().unwrap_err();
            assert_eq!(error.code(), "invalid_cursor", "{bad:?}");
        }
    }

    #[test]
    fn frames_are_readable_json() {
        let frame = FrameInput::new("token", b"\x00\xff".to_vec()).mode(FrameMode::BestEffort);
        let json = serde_json::to_value(&frame).unwrap();
        assert_eq!(json["payload"], "AP8=");
        assert_eq!(json["mode"], "best_effort");
        assert_eq!(serde_json::from_value::<FrameInput>(json).unwrap(), frame);
        let short = r#"{"frame_type":"log","payload":"aGk="}"#;
        let plain = FrameInput::new("log", b"hi".to_vec());
        assert_eq!(serde_json::from_str::<FrameInput>(short).unwrap(), plain);
    }
}
