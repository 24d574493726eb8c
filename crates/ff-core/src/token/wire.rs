//! The text and the bytes of a token. Every field carries its length, so that no two different
//! tokens have the same bytes.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::NONCE_BYTES;
use crate::limits;
use crate::types::{ExecutionKey, TimestampMs};

/// A token as text. Whoever has it may signal, so it is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct WaitpointToken(String);

impl WaitpointToken {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for WaitpointToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitpointToken(redacted)")
    }
}

/// What a token allows, and whom it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenClaims {
    pub namespace: Arc<str>,
    pub execution: ExecutionKey,
    pub waitpoint: Uuid,
    /// How often the execution had been replayed: a token is good for one life.
    pub generation: u32,
    /// The only signals that it may bring; any if empty.
    pub signal_names: Vec<String>,
    pub expires_at: Option<TimestampMs>,
    pub nonce: [u8; NONCE_BYTES],
}

pub(super) const PREFIX: &str = "ffw1";

/// The parts of a token's text, not yet believed.
pub(super) struct Parts<'t> {
    pub kid: &'t str,
    pub payload: Vec<u8>,
    pub mac: Vec<u8>,
}

pub(super) fn split(token: &str) -> Option<Parts<'_>> {
    if token.len() > limits::WAITPOINT_TOKEN_BYTES {
        return None;
    }
    let mut parts = token.split('.');
    if parts.next()? != PREFIX {
        return None;
    }
    let kid = parts.next()?;
    // It takes one text for each row of bytes, so no changed token reads as the same one.
    let payload = URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
    let mac = URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
    parts.next().is_none().then_some(Parts { kid, payload, mac })
}

pub(super) fn join(kid: &str, payload: &[u8], mac: &[u8]) -> WaitpointToken {
    let (payload, mac) = (URL_SAFE_NO_PAD.encode(payload), URL_SAFE_NO_PAD.encode(mac));
    WaitpointToken(format!("{PREFIX}.{kid}.{payload}.{mac}"))
}

impl TokenClaims {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        put(&mut bytes, self.namespace.as_bytes());
        put(&mut bytes, &self.execution.partition.to_be_bytes());
        put(&mut bytes, self.execution.id.as_bytes());
        put(&mut bytes, self.waitpoint.as_bytes());
        put(&mut bytes, &self.generation.to_be_bytes());
        put(&mut bytes, &length(self.signal_names.len()));
        for name in &self.signal_names {
            put(&mut bytes, name.as_bytes());
        }
        match self.expires_at {
            Some(at) => put(&mut bytes, &at.0.to_be_bytes()),
            None => put(&mut bytes, &[]),
        }
        put(&mut bytes, &self.nonce);
        bytes
    }

    /// Reads what `encode` wrote and nothing else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let namespace = text(&mut rest)?.into();
        let partition = u16::from_be_bytes(fixed(&mut rest)?);
        let id = Uuid::from_bytes(fixed(&mut rest)?);
        let waitpoint = Uuid::from_bytes(fixed(&mut rest)?);
        let generation = u32::from_be_bytes(fixed(&mut rest)?);
        let count = usize::from(u16::from_be_bytes(fixed(&mut rest)?));
        let signal_names =
            (0..count).map(|_| text(&mut rest).map(String::from)).collect::<Option<_>>()?;
        let expires_at = match take(&mut rest)? {
            [] => None,
            at => Some(TimestampMs(i64::from_be_bytes(at.try_into().ok()?))),
        };
        let nonce = fixed(&mut rest)?;
        let execution = ExecutionKey { partition, id };
        rest.is_empty().then_some(Self {
            namespace,
            execution,
            waitpoint,
            generation,
            signal_names,
            expires_at,
            nonce,
        })
    }
}

/// Lengths fit, because every text in a token is bounded when its waitpoint is made.
fn length(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

pub(super) fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend_from_slice(&length(field.len()));
    bytes.extend_from_slice(field);
}

fn take<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (len, tail) = rest.split_first_chunk::<2>()?;
    let (field, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    *rest = tail;
    Some(field)
}

fn fixed<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take(rest)?.try_into().ok()
}

fn text<'b>(rest: &mut &'b [u8]) -> Option<&'b str> {
    std::str::from_utf8(take(rest)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..50_000 {
            let len = rng.usize(0..160);
            let bytes: Vec<u8> = (0..len).map(|_| rng.u8(0..4)).collect();
            if let Some(claims) = TokenClaims::decode(&bytes) {
                assert_eq!(claims.encode(), bytes);
            }
        }
    }
}
