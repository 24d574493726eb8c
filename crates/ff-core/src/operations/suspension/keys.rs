//! Which key tokens are made with, and whose tokens are taken.

use std::sync::Arc;

use crate::engine_error::{EngineError, ValidationKind};
use crate::rows::{Kid, WaitpointKeyRow, WaitpointRow, values};
use crate::store::{Change, Needs, Scan, World};
use crate::token::{self, VerifiedToken};
use crate::types::TimestampMs;

/// The keys that this host has the secrets of: each id with its check, the first choice first.
#[derive(Clone, Debug, Default)]
pub struct KnownKeys(pub Vec<(Arc<str>, Arc<str>)>);

/// Keys change rarely and are read by every token; nobody waits for anybody to read them.
pub(crate) fn all_keys() -> Scan {
    Scan::of::<WaitpointKeyRow>(values![]).unlocked()
}

/// The same for whoever changes them.
pub(super) fn all_keys_held() -> Scan {
    Scan::of::<WaitpointKeyRow>(values![])
}

pub(super) fn needs(needs: &mut Needs) {
    needs.scan(&all_keys());
}

impl KnownKeys {
    pub fn check_of(&self, kid: &str) -> Option<&Arc<str>> {
        self.0.iter().find(|known| &*known.0 == kid).map(|known| &known.1)
    }

    /// The key that tokens are made with at this moment. The very first token makes the first
    /// configured key that one.
    pub(super) fn active(
        &self,
        world: &World,
        change: &mut Change,
    ) -> Result<Arc<str>, EngineError> {
        let stored = world.scan::<WaitpointKeyRow>(&all_keys());
        let Some(active) = stored.into_iter().find(|key| key.active) else {
            let (kid, check) = self.0.first().ok_or_else(unconfigured)?;
            change.insert(&active_key(world, kid, check));
            return Ok(kid.clone());
        };
        let kid = active.key.kid;
        match self.check_of(&kid) {
            Some(check) if *check == active.secret_check => Ok(kid),
            Some(_) => Err(missing(format!(
                "the secret that this host has for the waitpoint key {kid:?} is not the one that \
                 tokens are made with: correct it in `EngineConfig::waitpoint_secrets`"
            ))),
            None => Err(missing(format!(
                "tokens are made with the waitpoint key {kid:?}, whose secret this host does not \
                 have: add it to `EngineConfig::waitpoint_secrets`"
            ))),
        }
    }

    /// Whether tokens of a key are taken at this moment.
    fn verifies(&self, stored: &[WaitpointKeyRow], kid: &str, now: TimestampMs) -> bool {
        let stored = stored.iter().find(|key| &*key.key.kid == kid);
        stored.is_some_and(|key| key.verifies(now) && self.check_of(kid) == Some(&key.secret_check))
    }

    /// A token's MAC was right; whether its key is still in use, and whether it is the token of
    /// this waitpoint, only the store can say. Its expiry is for the caller to look at.
    pub(crate) fn check_token(
        &self,
        stored: &[WaitpointKeyRow],
        token: &VerifiedToken,
        target: &WaitpointRow,
        now: TimestampMs,
    ) -> Result<(), EngineError> {
        match self.verifies(stored, &token.kid, now) && token.claims == target.claims() {
            true => Ok(()),
            false => Err(token::invalid()),
        }
    }
}

pub(super) fn active_key(world: &World, kid: &Arc<str>, check: &Arc<str>) -> WaitpointKeyRow {
    WaitpointKeyRow {
        key: Kid { kid: kid.clone() },
        active: true,
        verifies_until: None,
        secret_check: check.clone(),
        created_at: world.now,
    }
}

pub(crate) fn missing(detail: impl Into<String>) -> EngineError {
    EngineError::validation(ValidationKind::WaitpointSecretMissing, detail)
}

fn unconfigured() -> EngineError {
    missing(
        "no secret for waitpoint tokens is configured: give one in \
         `EngineConfig::waitpoint_secrets`, or ask for the waitpoint without a token",
    )
}
