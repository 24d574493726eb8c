//! The public place in the log: one opaque string that knows which log it belongs to.
//!
//! A cursor holds the last event seen in each shard: its number, and a mark made from its content.
//! After a restore of the store the numbers come again and the marks do not, so a cursor of the
//! lost history is refused instead of skipping what is new.
//!
//! Numbers count the events of every tenant, so a cursor is sealed with a key of the log: it can be
//! neither read nor made up. The same place always has the same cursor.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::engine_error::{EngineError, ValidationKind};
use crate::partition::crc16;
use crate::rows::EventRow;
use crate::store::{LogBounds, LogSecret};

const PREFIX: &str = "ffc2.";
/// What cursors were before they were sealed: readable numbers, and no marks.
const FORMER_VERSION: u8 = 1;
const MAX_SHARDS: usize = 1024;
const HISTORY: usize = 16;
const SEAL: usize = 16;
const PLACE: usize = 12;

/// The last event seen in each shard of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub history_id: Uuid,
    pub places: Vec<Place>,
}

/// The last event seen in a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// 0 before the first one.
    pub seq: u64,
    /// [`EventRow::mark`] of the event; 0 if it is not known.
    pub mark: u32,
}

/// What the cursors of one log are sealed with.
pub struct CursorKey {
    seal: Hmac<Sha256>,
    mask: Hmac<Sha256>,
    name: Hmac<Sha256>,
}

impl CursorKey {
    pub fn new(secret: &LogSecret) -> Self {
        let derived = Hkdf::<Sha256>::new(None, &secret.0);
        let key = |purpose: &[u8]| {
            let mut key = [0; 32];
            derived.expand(purpose, &mut key).expect("32 bytes are fewer than HKDF can give");
            Hmac::new_from_slice(&key).expect("HMAC takes a key of any length")
        };
        Self { seal: key(b"cursor seal"), mask: key(b"cursor mask"), name: key(b"event name") }
    }

    /// Names an event, the same for every reader. What is written at the same place after a restore
    /// has another name, so that a receiver does not take it for a repetition.
    pub fn event_name(&self, event: &EventRow) -> String {
        let name = self.name.clone();
        let name =
            name.chain_update(event.shard.to_be_bytes()).chain_update(event.seq.to_be_bytes());
        let name = name.chain_update(event.mark().to_be_bytes()).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode(&name[..SEAL])
    }

    fn sealed(&self, history: &[u8], places: &[u8]) -> Hmac<Sha256> {
        self.seal.clone().chain_update(history).chain_update(places)
    }

    /// Hides the places, or shows them again.
    fn mask(&self, seal: &[u8], places: &mut [u8]) {
        for (block, bytes) in places.chunks_mut(32).enumerate() {
            let mask =
                self.mask.clone().chain_update(seal).chain_update((block as u32).to_be_bytes());
            let mask = mask.finalize().into_bytes();
            bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        }
    }
}

impl Cursor {
    pub fn encode(&self, key: &CursorKey) -> String {
        let mut places = Vec::with_capacity(self.places.len() * PLACE);
        for place in &self.places {
            places.extend_from_slice(&place.seq.to_be_bytes());
            places.extend_from_slice(&place.mark.to_be_bytes());
        }
        let seal = key.sealed(self.history_id.as_bytes(), &places).finalize().into_bytes();
        let seal = &seal[..SEAL];
        key.mask(seal, &mut places);
        let bytes = [self.history_id.as_bytes(), seal, &places].concat();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads a cursor of this log. One of the former format is read only for callers that see the
    /// whole log: it can be made up, and what is refused would tell others how long the log is.
    pub fn decode(
        text: &str,
        log: &LogBounds,
        key: &CursorKey,
        sees_all: bool,
    ) -> Result<Self, EngineError> {
        if let Some(former) = decode_former(text) {
            if sees_all {
                return Ok(former);
            }
            let detail = "the cursor has the format of an earlier version, which names every \
                          tenant's events; begin again with the oldest or the latest event";
            return Err(EngineError::validation(ValidationKind::InvalidCursor, detail));
        }
        let (history_id, seal, mut places) = split(text).ok_or_else(unreadable)?;
        if history_id != log.history_id {
            return Err(other_history());
        }
        key.mask(&seal, &mut places);
        let sealed = key.sealed(history_id.as_bytes(), &places);
        sealed.verify_truncated_left(&seal).map_err(|_| unreadable())?;
        let place = |bytes: &[u8]| {
            let (seq, mark) = bytes.split_first_chunk::<8>()?;
            let mark = u32::from_be_bytes(mark.try_into().ok()?);
            Some(Place { seq: u64::from_be_bytes(*seq), mark })
        };
        let places = places.chunks(PLACE).map(place).collect::<Option<_>>();
        Ok(Self { history_id, places: places.ok_or_else(unreadable)? })
    }

    /// Refuses a place that this log cannot continue from, rather than skip anything silently.
    pub fn check(&self, log: &LogBounds) -> Result<(), EngineError> {
        let foreign = self.history_id != log.history_id
            || self.places.len() != log.shards.len()
            || self.places.iter().zip(&log.shards).any(|(place, shard)| place.seq > shard.head);
        if foreign {
            return Err(other_history());
        }
        let mut places = self.places.iter().zip(&log.shards);
        if places.any(|(place, shard)| place.seq + 1 < shard.floor) {
            let detail = "events after the cursor are past retention and have been forgotten";
            return Err(EngineError::validation(ValidationKind::CursorBelowRetention, detail));
        }
        Ok(())
    }

    /// Compares the places with the events that the log has there, and learns marks that were not
    /// known. False if an event is missing that should be there.
    pub fn compare(&mut self, log: &LogBounds, found: &[EventRow]) -> Result<bool, EngineError> {
        let mut complete = true;
        for (shard, (place, bounds)) in self.places.iter_mut().zip(&log.shards).enumerate() {
            let at_place =
                |event: &&EventRow| usize::from(event.shard) == shard && event.seq == place.seq;
            let mark = match found.iter().find(at_place) {
                Some(event) => event.mark(),
                // What retention has forgotten is known by the mark that it has left.
                None if place.seq + 1 == bounds.floor => bounds.floor_mark,
                None => {
                    complete = false;
                    0
                }
            };
            if place.mark != 0 && mark != 0 && place.mark != mark {
                return Err(other_history());
            }
            place.mark = place.mark.max(mark);
        }
        Ok(complete)
    }
}

pub(super) fn other_history() -> EngineError {
    let detail = "the cursor belongs to another log, or to a state of this one that was lost by a \
                  restore";
    EngineError::validation(ValidationKind::CursorFromOtherHistory, detail)
}

fn unreadable() -> EngineError {
    EngineError::validation(ValidationKind::InvalidCursor, "the cursor cannot be read")
}

fn split(text: &str) -> Option<(Uuid, [u8; SEAL], Vec<u8>)> {
    let text = text.strip_prefix(PREFIX)?;
    if text.len() > 2 * (HISTORY + SEAL + MAX_SHARDS * PLACE) {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (history, rest) = bytes.split_first_chunk::<HISTORY>()?;
    let (seal, places) = rest.split_first_chunk::<SEAL>()?;
    places.len().is_multiple_of(PLACE).then_some(())?;
    Some((Uuid::from_bytes(*history), *seal, places.to_vec()))
}

/// Hexadecimal digits of a version, the log's identity, the numbers and a checksum.
fn decode_former(text: &str) -> Option<Cursor> {
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
    let (history, mut rest) = body_rest.split_first_chunk::<HISTORY>()?;
    if *version != FORMER_VERSION || u16::from_be_bytes(*crc) != crc16(body) {
        return None;
    }
    let mut places = Vec::new();
    while !rest.is_empty() {
        let (seq, after) = take_varint(rest)?;
        places.push(Place { seq, mark: 0 });
        rest = after;
    }
    Some(Cursor { history_id: Uuid::from_bytes(*history), places })
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
    use crate::contracts::EventType;
    use crate::store::ShardBounds;
    use crate::types::TimestampMs;

    fn log(shards: &[(u64, u64)]) -> LogBounds {
        let bounds =
            |(floor, head): &(u64, u64)| ShardBounds { floor: *floor, head: *head, floor_mark: 9 };
        LogBounds {
            history_id: Uuid::from_u128(7),
            secret: LogSecret([1; 32]),
            shards: shards.iter().map(bounds).collect(),
        }
    }

    fn cursor(seen: &[u64]) -> Cursor {
        let places = seen.iter().map(|seq| Place { seq: *seq, mark: 3 }).collect();
        Cursor { history_id: Uuid::from_u128(7), places }
    }

    fn key() -> CursorKey {
        CursorKey::new(&LogSecret([1; 32]))
    }

    fn event(seq: u64, at: i64) -> EventRow {
        let event = EventRow::bare(EventType::Submitted, "default".into(), TimestampMs(at));
        EventRow { seq, ..event }
    }

    #[test]
    fn round_trip() {
        for seen in [vec![], vec![0], vec![1, 127, 128, u64::MAX]] {
            let cursor = cursor(&seen);
            let text = cursor.encode(&key());
            assert_eq!(Cursor::decode(&text, &log(&[]), &key(), false).unwrap(), cursor);
            assert_eq!(text, cursor.encode(&key()), "the same place has the same cursor");
        }
    }

    #[test]
    fn any_change_is_noticed() {
        let text = cursor(&[300, 5]).encode(&key());
        for at in 0..text.len() {
            for digit in ["0", "7", "f", "A", "_"] {
                let mut changed = text.clone();
                changed.replace_range(at..=at, digit);
                if changed != text {
                    let read = Cursor::decode(&changed, &log(&[]), &key(), true);
                    assert!(read.is_err(), "{changed}");
                }
            }
        }
        for bad in ["", "é", PREFIX, "ffc2.AAAA"] {
            assert!(Cursor::decode(bad, &log(&[]), &key(), true).is_err(), "{bad:?}");
        }
    }

    /// Neither what is in it nor how long it is tells how many events there are.
    #[test]
    fn nothing_can_be_read_from_a_cursor() {
        let (few, many) = (cursor(&[1, 2]).encode(&key()), cursor(&[u64::MAX, 2]).encode(&key()));
        assert_eq!(few.len(), many.len());
        let body = |text: &str| URL_SAFE_NO_PAD.decode(&text[PREFIX.len()..]).unwrap();
        let (few, many) = (body(&few), body(&many));
        assert_eq!(few[..HISTORY], many[..HISTORY]);
        let same = few[HISTORY..].iter().zip(&many[HISTORY..]).filter(|(a, b)| a == b).count();
        assert!(same < 8, "{same} bytes of 40 are the same");
    }

    #[test]
    fn foreign_and_trimmed_places_are_refused() {
        let log = log(&[(10, 20)]);
        assert!(cursor(&[9]).check(&log).is_ok());
        assert!(cursor(&[20]).check(&log).is_ok());
        let code = |seen: &[u64]| cursor(seen).check(&log).unwrap_err().code();
        assert_eq!(code(&[8]), "cursor_below_retention");
        assert_eq!(code(&[21]), "cursor_from_other_history");
        assert_eq!(code(&[9, 9]), "cursor_from_other_history");
    }

    #[test]
    fn a_place_is_known_by_its_event() {
        let log = log(&[(10, 20)]);
        let at = |seq, mark| Cursor { places: vec![Place { seq, mark }], ..cursor(&[]) };
        let mark = event(15, 1).mark();
        assert!(at(15, mark).compare(&log, &[event(15, 1)]).unwrap());
        assert!(at(15, mark).compare(&log, &[event(15, 2)]).is_err(), "written after a restore");
        assert!(!at(15, mark).compare(&log, &[]).unwrap(), "it is missing");
        assert!(at(9, 9).compare(&log, &[]).unwrap(), "retention has left its mark");
        assert!(at(9, 8).compare(&log, &[]).is_err());
        let mut former = at(15, 0);
        assert!(former.compare(&log, &[event(15, 1)]).unwrap());
        assert_eq!(former.places[0].mark, mark, "it is learned");
    }

    #[test]
    fn cursors_of_the_former_format_are_for_those_who_see_the_whole_log() {
        let mut bytes = vec![FORMER_VERSION];
        bytes.extend_from_slice(Uuid::from_u128(7).as_bytes());
        bytes.extend_from_slice(&[9, 5]);
        bytes.extend_from_slice(&crc16(&bytes).to_be_bytes());
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let read = Cursor::decode(&text, &log(&[]), &key(), true).unwrap();
        assert_eq!(read.places.iter().map(|place| place.seq).collect::<Vec<_>>(), [9, 5]);
        let refused = Cursor::decode(&text, &log(&[]), &key(), false).unwrap_err();
        assert_eq!(refused.code(), "invalid_cursor");
    }
}
