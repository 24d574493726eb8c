//! Reads bodies: no more than allowed, no slower than allowed, no deeper than allowed.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::admission::{SMALL_BODY, Visit};
use crate::refusal::{Answered, Refusal};

/// How deep arrays and objects may be nested.
const DEPTH: usize = 64;

/// How large and how slow bodies may be.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// The largest body of any route.
    pub bytes: usize,
    pub idle: Duration,
    /// How long a body may be slower than `rate` at first.
    pub grace: Duration,
    /// Bytes that must arrive each second.
    pub rate: usize,
}

/// What a body may be on a route that takes none: clients that send an empty object are common.
const EMPTY_BYTES: usize = 64;

/// Reads the body of one request.
pub struct Reader<'v> {
    pub limits: BodyLimits,
    /// The largest body of the route; 0 if it takes none.
    pub max: usize,
    /// What the bytes are counted to; a probe has none.
    pub visit: Option<&'v mut Visit>,
}

impl Reader<'_> {
    pub async fn read(mut self, body: Body, headers: &HeaderMap) -> Answered<Bytes> {
        let takes_none = self.max == 0;
        self.max = if takes_none { EMPTY_BYTES } else { self.max.min(self.limits.bytes) };
        let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let declared = declared.and_then(|length| length.parse::<u64>().ok());
        let declared = declared.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let read = match declared {
            Some(length) if length > self.max => Err(self.too_large()),
            _ => self.frames(body, declared.unwrap_or_default()).await,
        };
        match read {
            Err(refusal) if takes_none && refusal.code == "body_too_large" => Err(unexpected()),
            Ok(read) if takes_none && !is_empty(&read) => Err(unexpected()),
            Ok(_) if takes_none => Ok(Bytes::new()),
            read => read,
        }
    }

    async fn frames(&mut self, mut body: Body, declared: usize) -> Answered<Bytes> {
        if let Some(visit) = &mut self.visit {
            visit.announce(declared, self.limits.idle).await?;
        }
        let begun = Instant::now();
        let mut read = BytesMut::with_capacity(declared.min(SMALL_BODY));
        loop {
            // The slowest that a body may be: after the grace, so many bytes each second.
            let earned = Duration::from_secs_f64(read.len() as f64 / self.limits.rate as f64);
            let due = begun + self.limits.grace + earned;
            let idle = Instant::now() + self.limits.idle;
            let frame = tokio::time::timeout_at(due.min(idle), body.frame()).await;
            let late = |_| self.late(due < idle);
            let Some(frame) = frame.map_err(late)? else {
                return Ok(read.freeze());
            };
            let broken = |_| Refusal::invalid("the body cannot be read");
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                let length = read.len() + data.len();
                if length > self.max {
                    return Err(self.too_large());
                }
                self.reserve(length).await?;
                if length > read.capacity() {
                    read.reserve(declared.max(length) - read.len());
                }
                read.extend_from_slice(&data);
            }
        }
    }

    async fn reserve(&mut self, bytes: usize) -> Answered<()> {
        match &mut self.visit {
            Some(visit) => visit.reserve(bytes, self.limits.idle).await,
            None => Ok(()),
        }
    }

    fn too_large(&self) -> Refusal {
        Refusal::new("body_too_large", format!("the limit is {} bytes", self.max))
    }

    fn late(&self, slow: bool) -> Refusal {
        let rate = self.limits.rate;
        let detail = match slow {
            true => format!("the body arrives slower than {rate} bytes per second (body_rate)"),
            false => "the body stopped arriving (body_idle)".to_owned(),
        };
        Refusal::new("request_timeout", detail)
    }
}

fn unexpected() -> Refusal {
    Refusal::new("unexpected_body", "this route takes no body; send none, or {}")
}

/// Whether a body says nothing: it is absent, `{}` or `null`.
fn is_empty(body: &[u8]) -> bool {
    let text: Vec<u8> = body.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    matches!(&*text, b"" | b"{}") || body.trim_ascii() == b"null"
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
    // Understood first: a list that is too long is refused as soon as it is.
    let understood = serde_json::from_slice(body).map_err(unreadable)?;
    ff_api::strict::check(body).map_err(unreadable)?;
    Ok(understood)
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
