//! Reads a stream from a place, and waits there for what comes.

use std::time::Duration;

use tokio::time::Instant;

use super::visible;
use crate::contracts::{
    Frame, FrameId, FrameMode, ReadStreamArgs, StreamCursor, StreamPage, Visibility,
};
use crate::engine::{Engine, check_count};
use crate::engine_error::{EngineError, ValidationKind};
use crate::limits;
use crate::rows::{FrameRow, Record, StreamKey, StreamRow, values};
use crate::store::{Query, Scan};
use crate::types::Namespace;
use crate::views;

/// Frames are read in portions that fit into memory, whatever their size.
const PORTION: usize = 128;

pub(super) struct StreamReader<'e> {
    engine: &'e Engine,
    scope: Option<&'e Namespace>,
    args: ReadStreamArgs,
}

/// Frames that follow a place.
struct Portion {
    frames: Vec<Frame>,
    /// The last place that was looked at.
    last: u64,
    /// The first frame that is kept behind the place.
    first: Option<u64>,
    at_end: bool,
    bytes: usize,
}

impl Portion {
    /// Nothing has been read yet.
    fn after(place: u64) -> Self {
        Self { frames: Vec::new(), last: place, first: None, at_end: false, bytes: 0 }
    }

    /// Takes the rows behind its end, of which so many were asked for, and says whether to ask for
    /// more. Frames may have been trimmed since the rows before were read: the page then ends
    /// before the hole, and the next one tells of it.
    fn goes_on_with(
        &mut self,
        rows: Vec<FrameRow>,
        asked: usize,
        wants: impl Fn(FrameMode) -> bool,
    ) -> bool {
        let first = rows.first().map(|row| row.key.sequence);
        if first.is_some_and(|first| first > self.last + 1) {
            if !self.frames.is_empty() {
                self.at_end = false;
                return false;
            }
            self.first = first;
        }
        self.at_end = rows.len() < asked;
        self.first = self.first.or(first);
        self.last = rows.last().map_or(self.last, |row| row.key.sequence);
        self.bytes += rows.iter().map(|row| row.payload.len()).sum::<usize>();
        let wanted = rows.into_iter().filter(|row| wants(row.mode.0));
        self.frames.extend(wanted.map(views::frame));
        !self.at_end
    }
}

impl<'e> StreamReader<'e> {
    pub fn new(
        engine: &'e Engine,
        scope: Option<&'e Namespace>,
        mut args: ReadStreamArgs,
    ) -> Result<Self, EngineError> {
        if args.limit == 0 {
            args.limit = 100;
        }
        check_count("frames", args.limit, limits::STREAM_PAGE)?;
        let limit_ms = limits::STREAM_WAIT.as_millis();
        if u128::from(args.wait_ms) > limit_ms {
            let detail = format!("{} ms to wait, the limit is {limit_ms}", args.wait_ms);
            return Err(EngineError::invalid(detail));
        }
        if let (StreamCursor::After(id), Some(wanted)) = (args.from, args.attempt_index)
            && id.attempt_index != wanted
        {
            let detail = format!("cursor {id} does not belong to attempt {wanted}");
            return Err(EngineError::validation(ValidationKind::InvalidCursor, detail));
        }
        Ok(Self { engine, scope, args })
    }

    pub async fn read(mut self) -> Result<StreamPage, EngineError> {
        let deadline = Instant::now() + Duration::from_millis(self.args.wait_ms);
        // Listening begins before the look, so that nothing falls between the two.
        let mut follower = self.engine.store().listen().follow(self.args.execution_id.key());
        loop {
            follower.seen();
            let page = self.look().await?;
            let tells =
                !page.frames.is_empty() || page.closed.is_some() || page.trimmed_to.is_some();
            let now = Instant::now();
            if tells || now >= deadline {
                return Ok(page);
            }
            // What was passed over need not be looked at again.
            self.args.from = page.next;
            let patience = self.engine.store().follower_patience().min(deadline - now);
            let _ = tokio::time::timeout(patience, follower.rung()).await;
        }
    }

    /// The end of the stream is looked for first: what was said before it is then found.
    async fn look(&self) -> Result<StreamPage, EngineError> {
        let execution = self.args.execution_id.key();
        let rows = self.engine.query(Query::Execution(execution)).await?;
        let row = visible(self.scope, &rows);
        let row = row.ok_or(EngineError::NotFound { entity: "execution" })?;
        let of_cursor = match self.args.from {
            StreamCursor::After(id) => Some(id.attempt_index),
            StreamCursor::Start | StreamCursor::End => None,
        };
        let attempt_index = self.args.attempt_index.or(of_cursor).unwrap_or(row.attempt_index);
        let end = views::stream_end(row, &rows.attempts, attempt_index);
        let key = StreamKey { execution, attempt_index };
        let after = match self.args.from {
            StreamCursor::Start => 0,
            StreamCursor::After(id) => id.sequence,
            StreamCursor::End => self.last_sequence(&key).await?,
        };
        let portion = self.frames(&key, after).await?;
        let id = |sequence| FrameId { attempt_index, sequence };
        Ok(StreamPage {
            attempt_index,
            frames: portion.frames,
            next: StreamCursor::After(id(portion.last)),
            trimmed_to: portion.first.filter(|first| *first > after + 1).map(id),
            closed: end.filter(|_| portion.at_end),
        })
    }

    async fn last_sequence(&self, key: &StreamKey) -> Result<u64, EngineError> {
        let query = Query::Records { keys: vec![StreamRow::erase_key(key)], scans: Vec::new() };
        let rows = self.engine.query(query).await?.records::<StreamRow>();
        let rows = rows.map_err(|error| self.engine.store_error(error))?;
        Ok(rows.first().map_or(0, |stream| stream.next_sequence - 1))
    }

    async fn frames(&self, key: &StreamKey, after: u64) -> Result<Portion, EngineError> {
        let mut found = Portion::after(after);
        while found.frames.len() < self.args.limit && found.bytes < limits::STREAM_PAGE_BYTES {
            let asked = PORTION.min(self.args.limit - found.frames.len());
            let scan = Scan::of::<FrameRow>(values![key.execution, key.attempt_index])
                .after(values![found.last])
                .limit(asked);
            let query = Query::Records { keys: Vec::new(), scans: vec![scan] };
            let rows = self.engine.query(query).await?.records::<FrameRow>();
            let rows = rows.map_err(|error| self.engine.store_error(error))?;
            if !found.goes_on_with(rows, asked, |mode| self.wants(mode)) {
                break;
            }
        }
        Ok(found)
    }

    fn wants(&self, mode: FrameMode) -> bool {
        match self.args.visibility {
            Visibility::All => true,
            Visibility::ExcludeBestEffort => mode != FrameMode::BestEffort,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{FrameKey, Word};
    use crate::types::{ExecutionKey, TimestampMs};

    fn rows(sequences: std::ops::RangeInclusive<u64>, mode: FrameMode) -> Vec<FrameRow> {
        let execution = ExecutionKey { partition: 0, id: uuid::Uuid::nil() };
        let row = |sequence| FrameRow {
            key: FrameKey { execution, attempt_index: 0, sequence },
            frame_type: "text".into(),
            mode: Word(mode),
            payload: (*b"x").into(),
            encoding: None,
            correlation_id: None,
            at: TimestampMs(0),
        };
        sequences.map(row).collect()
    }

    #[test]
    fn a_page_ends_before_what_was_trimmed_meanwhile() {
        let durable = FrameMode::Durable;
        let mut page = Portion::after(0);
        assert!(page.goes_on_with(rows(1..=4, durable), 4, |_| true));
        assert!(!page.goes_on_with(rows(9..=10, durable), 4, |_| true));
        assert_eq!((page.frames.len(), page.first, page.last), (4, Some(1), 4));
        assert!(!page.at_end, "the stream may be closed, but this is not its end");
        // The next page begins behind the hole and says so.
        let mut next = Portion::after(page.last);
        assert!(!next.goes_on_with(rows(9..=10, durable), 4, |_| true));
        assert_eq!((next.frames.len(), next.first, next.at_end), (2, Some(9), true));
    }

    #[test]
    fn what_nobody_wanted_before_a_hole_is_passed_over() {
        let wants = |mode| mode != FrameMode::BestEffort;
        let mut page = Portion::after(0);
        assert!(page.goes_on_with(rows(1..=4, FrameMode::BestEffort), 4, wants));
        assert!(page.goes_on_with(rows(9..=12, FrameMode::Durable), 4, wants));
        assert_eq!((page.frames.len(), page.first, page.last), (4, Some(9), 12));
    }
}
