//! The public place in the log: one opaque string that knows which log it belongs to.

use std::fmt::Write as _;

use uuid::Uuid;

use crate::engine_error::{EngineError, ValidationKind};
use crate::partition::crc16;
use crate::store::LogBounds;

const VERSION: u8 = 1;
const MAX_SHARDS: usize = 1024;

/// The last event seen in each shard of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub history_id: Uuid,
    pub seen: Vec<u64>,
}

impl Cursor {
    pub fn encode(&self) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(self.history_id.as_bytes());
        for seq in &self.seen {
            push_varint(&mut bytes, *seq);
        }
        bytes.extend_from_slice(&crc16(&bytes).to_be_bytes());
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    pub fn decode(text: &str) -> Result<Self, EngineError> {
        Self::decode_hex(text).ok_or_else(|| {
            EngineError::validation(ValidationKind::InvalidCursor, "the cursor cannot be read")
        })
    }

    /// Refuses a place that this log cannot continue from, rather than skip anything silently.
    pub fn check(&self, log: &LogBounds) -> Result<(), EngineError> {
        let foreign = self.history_id != log.history_id
            || self.seen.len() != log.shards.len()
            || self.seen.iter().zip(&log.shards).any(|(seen, (_, head))| seen > head);
        if foreign {
            let detail = "the cursor belongs to another log, or to a later state of this one";
            return Err(EngineError::validation(ValidationKind::CursorFromOtherHistory, detail));
        }
        let trimmed = self.seen.iter().zip(&log.shards).any(|(seen, (floor, _))| seen + 1 < *floor);
        if trimmed {
            let detail = "events after the cursor are past retention and have been forgotten";
            return Err(EngineError::validation(ValidationKind::CursorBelowRetention, detail));
        }
        Ok(())
    }

    fn decode_hex(text: &str) -> Option<Self> {
        if !text.len().is_multiple_of(2) || text.len() > 2 * (19 + MAX_SHARDS * 10) {
            return None;
        }
        let digits = text.as_bytes().chunks(2);
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).ok()?;
            pair.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
            u8::from_str_radix(pair, 16).ok()
        };
        let bytes: Vec<u8> = digits.map(byte).collect::<Option<_>>()?;
        let (body, crc) = bytes.split_last_chunk::<2>()?;
        let (version, body_rest) = body.split_first()?;
        let (history, mut rest) = body_rest.split_first_chunk::<16>()?;
        if *version != VERSION || u16::from_be_bytes(*crc) != crc16(body) {
            return None;
        }
        let mut seen = Vec::new();
        while !rest.is_empty() {
            let (seq, after) = take_varint(rest)?;
            seen.push(seq);
            rest = after;
        }
        Some(Self { history_id: Uuid::from_bytes(*history), seen })
    }
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        value |= bits.checked_shl(7 * at as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(seen: &[u64]) -> Cursor {
        Cursor { history_id: Uuid::from_u128(7), seen: seen.to_vec() }
    }

    #[test]
    fn round_trip() {
        for seen in [vec![], vec![0], vec![1, 127, 128, u64::MAX]] {
            let cursor = cursor(&seen);
            assert_eq!(Cursor::decode(&cursor.encode()).unwrap(), cursor);
        }
    }

    #[test]
    fn any_change_is_noticed() {
        let text = cursor(&[300, 5]).encode();
        for at in 0..text.len() {
            for digit in ['0', '7', 'f', 'x'] {
                let mut changed = text.clone();
                changed.replace_range(at..=at, &digit.to_string());
                if changed != text {
                    assert!(Cursor::decode(&changed).is_err(), "{changed}");
                }
            }
        }
        assert!(Cursor::decode("").is_err());
        assert!(Cursor::decode("é").is_err());
    }

    #[test]
    fn foreign_and_trimmed_places_are_refused() {
        let log = LogBounds { history_id: Uuid::from_u128(7), shards: vec![(10, 20)] };
        assert!(cursor(&[9]).check(&log).is_ok());
        assert!(cursor(&[20]).check(&log).is_ok());
        let code = |seen: &[u64]| cursor(seen).check(&log).unwrap_err().code();
        assert_eq!(code(&[8]), "cursor_below_retention");
        assert_eq!(code(&[21]), "cursor_from_other_history");
        assert_eq!(code(&[9, 9]), "cursor_from_other_history");
    }
}
