//! How a stream forgets its oldest frames. Only a prefix is ever trimmed, so that what is kept has
//! no holes, and a little more than the limit is kept, so that it does not happen at every append.

use crate::contracts::FrameMode;
use crate::policy::StreamPolicy;
use crate::rows::{FrameRow, StreamRow};

/// At most so many frames are looked at in one go, unless more are appended.
const TRIM: usize = 256;

/// How many of the oldest frames an append of so many must look at; 0 while nothing is to be
/// trimmed.
pub(super) fn to_look_at(stream: &StreamRow, policy: &StreamPolicy, appended: usize) -> usize {
    let over = |have: u64, most: u64| have > most.saturating_add(most / 8);
    let early = stream.early_until.saturating_sub(stream.first_sequence);
    let full = over(stream.frame_count(), policy.max_frames)
        || over(stream.bytes, policy.max_bytes)
        || over(early, policy.max_early_frames);
    if full { TRIM.max(2 * appended) } else { 0 }
}

/// Takes the oldest frames out of the stream, as far as the policy asks for it, and says how many
/// of those given went.
pub(super) fn trim(stream: &mut StreamRow, policy: &StreamPolicy, oldest: &[FrameRow]) -> usize {
    let mut ahead = oldest.iter().peekable();
    let mut gone = 0;
    for frame in oldest {
        while let Some(next) = ahead.next_if(|next| next.key.sequence <= stream.early_until) {
            if next.key.sequence == stream.early_until && next.mode.0 != FrameMode::Durable {
                stream.early_until += 1;
            }
        }
        let early = stream.early_until.saturating_sub(stream.first_sequence);
        let over = stream.frame_count() > policy.max_frames
            || stream.bytes > policy.max_bytes
            || early > policy.max_early_frames;
        // What was said last is never trimmed.
        if !over || stream.frame_count() <= 1 {
            break;
        }
        stream.first_sequence = frame.key.sequence + 1;
        stream.early_until = stream.early_until.max(stream.first_sequence);
        stream.bytes = stream.bytes.saturating_sub(frame.payload.len() as u64);
        gone += 1;
    }
    gone
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::rows::{FrameKey, StreamKey, Word};
    use crate::types::{ExecutionKey, TimestampMs};

    fn stream_of(modes: &[FrameMode], bytes: usize) -> (StreamRow, Vec<FrameRow>) {
        let execution = ExecutionKey { partition: 0, id: Uuid::nil() };
        let key = StreamKey { execution, attempt_index: 0 };
        let mut stream = StreamRow::empty(key, TimestampMs(0));
        let frames = modes.iter().zip(1..).map(|(mode, sequence)| FrameRow {
            key: FrameKey { execution, attempt_index: 0, sequence },
            frame_type: "f".into(),
            mode: Word(*mode),
            payload: Arc::from(vec![0; bytes]),
            encoding: None,
            correlation_id: None,
            at: TimestampMs(0),
        });
        stream.next_sequence += modes.len() as u64;
        stream.bytes = (modes.len() * bytes) as u64;
        (stream, frames.collect())
    }

    #[test]
    fn the_policy_decides_how_much_goes() {
        use FrameMode::{BestEffort as B, Durable as D, Summary as S};
        let policy = |max_frames, max_bytes, max_early_frames| StreamPolicy {
            max_frames,
            max_bytes,
            max_early_frames,
        };
        let cases: &[(&[FrameMode], StreamPolicy, usize)] = &[
            (&[D, D, D, D], policy(4, 100, 4), 0),
            (&[D, D, D, D], policy(3, 100, 4), 1),
            (&[D, D, D, D], policy(100, 25, 4), 2),
            (&[D, D, D, D], policy(100, 0, 4), 3),
            (&[B, S, B, D], policy(100, 100, 1), 2),
            (&[B, S, D, B], policy(100, 100, 0), 2),
            (&[D, B, B, B], policy(100, 100, 1), 0),
            (&[D, B, B, B], policy(3, 100, 1), 3),
        ];
        for (modes, policy, expected) in cases {
            let (mut stream, frames) = stream_of(modes, 10);
            // As an append has counted them.
            stream.early_until = 1;
            assert_eq!(trim(&mut stream, policy, &frames), *expected, "{modes:?} {policy:?}");
            assert_eq!(stream.first_sequence, 1 + *expected as u64);
            assert_eq!(stream.bytes, 10 * (modes.len() - expected) as u64);
            assert!(stream.early_until >= stream.first_sequence);
        }
    }

    #[test]
    fn a_stream_within_its_limits_is_not_looked_at() {
        let (mut stream, _) = stream_of(&[FrameMode::Durable; 9], 1);
        let policy = StreamPolicy { max_frames: 8, max_bytes: 100, max_early_frames: 8 };
        assert_eq!(to_look_at(&stream, &policy, 1), 0);
        stream.next_sequence += 1;
        assert_eq!(to_look_at(&stream, &policy, 1), TRIM);
        assert_eq!(to_look_at(&stream, &policy, 1_000), 2_000);
    }
}
