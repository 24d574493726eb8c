//! Payloads and results in JSON: a value as it is, or any bytes in base64.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::strict;

/// The encoding of a payload that was given as a JSON value.
pub const JSON: &str = "json";

/// The two fields that stand for one sequence of bytes; at most one of them is given.
pub type Bytes = (Option<Box<RawValue>>, Option<String>);

/// Why the two fields cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesError {
    Both,
    NotBase64,
}

impl fmt::Display for BytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "a value and its base64 form exclude each other",
            Self::NotBase64 => "the bytes are not valid base64",
        })
    }
}

impl std::error::Error for BytesError {}

/// Reads a field that is there, so that `null` is a value and not an absence.
pub fn present<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(given).map(Some)
}

/// The bytes that two fields stand for, if any.
pub fn read(value: Option<&RawValue>, base64: Option<&str>) -> Result<Option<Vec<u8>>, BytesError> {
    match (value, base64) {
        (Some(_), Some(_)) => Err(BytesError::Both),
        (Some(value), None) => Ok(Some(value.get().as_bytes().to_vec())),
        (None, Some(text)) => STANDARD.decode(text).map(Some).map_err(|_| BytesError::NotBase64),
        (None, None) => Ok(None),
    }
}

/// The fields for some bytes: JSON that every reader understands alike stays readable, anything
/// else becomes base64.
pub fn write(bytes: &[u8]) -> Bytes {
    match serde_json::from_slice::<Box<RawValue>>(bytes) {
        // White space around the value would be lost.
        Ok(value) if value.get().len() == bytes.len() && strict::check(bytes).is_ok() => {
            (Some(value), None)
        }
        _ => (None, Some(STANDARD.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive() {
        for bytes in [
            &b"{\"a\": [1, 2]}"[..],
            b"null",
            b" 1",
            b"",
            b"\xff\0",
            b"{",
            b"\"\\ud800\"",
            b"1e400",
        ] {
            let (value, base64) = write(bytes);
            let back = read(value.as_deref(), base64.as_deref());
            assert_eq!(back.as_ref().map(Option::as_deref), Ok(Some(bytes)));
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let value = RawValue::from_string("1".into()).unwrap();
        assert_eq!(read(Some(&value), Some("MQ==")), Err(BytesError::Both));
        assert_eq!(read(None, Some("?")), Err(BytesError::NotBase64));
        assert_eq!(read(None, None), Ok(None));
    }
}
