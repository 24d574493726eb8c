//! Reads bodies: no more than allowed, no slower than allowed, no deeper than allowed.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use crate::refusal::{Answered, Refusal};

/// How deep arrays and objects may be nested.
const DEPTH: usize = 64;

/// Reads a body whose parts arrive without long pauses.
pub async fn read(body: Body, headers: &HeaderMap, max: usize, idle: Duration) -> Answered<Bytes> {
    let too_large = || Refusal::new("body_too_large", format!("the limit is {max} bytes"));
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let declared = declared.and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > max as u64) {
        return Err(too_large());
    }
    let mut body = body;
    let mut read = BytesMut::new();
    loop {
        let frame = tokio::time::timeout(idle, body.frame()).await;
        let late = |_| Refusal::new("request_timeout", "the body stopped arriving");
        let Some(frame) = frame.map_err(late)? else {
            return Ok(read.freeze());
        };
        let broken = |_| Refusal::invalid("the body cannot be read");
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            if read.len() + data.len() > max {
                return Err(too_large());
            }
            read.extend_from_slice(&data);
        }
    }
}

/// A body must say that it is JSON. A page of another site cannot say so without being asked
/// whether it may.
pub fn check_type(headers: &HeaderMap, body: &[u8]) -> Answered<()> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let json = ["application/json", "application/merge-patch+json"]
        .iter()
        .any(|known| kind.eq_ignore_ascii_case(known));
    if body.is_empty() || json {
        return Ok(());
    }
    Err(Refusal::new("unsupported_media_type", "send the body as application/json"))
}

/// Reads JSON; nothing at all counts as an empty object.
pub fn parse<B: DeserializeOwned>(body: &[u8]) -> Answered<B> {
    let body = if body.is_empty() { b"{}" } else { body };
    if depth(body) > DEPTH {
        let detail = format!("the body is nested more than {DEPTH} levels deep");
        return Err(Refusal::invalid(detail));
    }
    // A list of its fields would also pass for a structure.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Refusal::invalid("the body must be a JSON object"));
    }
    let unreadable = |error| Refusal::invalid(format!("the body cannot be read: {error}"));
    ff_api::strict::check(body).map_err(unreadable)?;
    serde_json::from_slice(body).map_err(unreadable)
}

/// The deepest nesting of brackets outside strings. It is exact for valid JSON.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths() {
        for (json, expected) in
            [("1", 0), ("{}", 1), ("[[{}],[]]", 3), (r#"["[[[\"[["]"#, 1), (r#""\\"[["#, 2)]
        {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        let parsed = |levels| {
            let json = format!("{{\"a\":{}}}", nested(levels - 1));
            parse::<Box<serde_json::value::RawValue>>(json.as_bytes())
        };
        assert!(parsed(DEPTH).is_ok());
        assert!(parsed(DEPTH + 1).is_err());
        assert!(parse::<Vec<u8>>(b"[]").is_err());
    }
}
