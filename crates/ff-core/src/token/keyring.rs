//! Makes and checks tokens with the secrets that the host has given.

use std::fmt;
use std::sync::Arc;

use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::secret::{Secret, WaitpointSecrets};
use super::wire::{self, TokenClaims, WaitpointToken};
use crate::engine_error::{EngineError, ValidationKind};

/// What the keys below are for, so that one secret can serve other purposes too.
const PURPOSE: &[u8] = b"flowfabric waitpoint token v1";
const WEBHOOK: &[u8] = b"flowfabric webhook secret v1";
const CHECK: &[u8] = b"flowfabric waitpoint key check v1";

/// A token whose MAC is right. Only a keyring makes one.
#[derive(Clone, Debug)]
pub struct VerifiedToken {
    pub kid: Arc<str>,
    pub claims: TokenClaims,
}

/// The keys that tokens are made and checked with.
pub struct Keyring {
    keys: Vec<Key>,
    /// Does the same work for a token of an unknown key, and never says yes.
    stranger: Hmac<Sha256>,
}

struct Key {
    kid: Arc<str>,
    mac: Hmac<Sha256>,
    webhook: Hmac<Sha256>,
    check: Arc<str>,
}

impl Keyring {
    pub fn new(secrets: &WaitpointSecrets) -> Self {
        let keys = secrets.iter().map(|secret| Key {
            kid: secret.kid().clone(),
            mac: keyed(&derive(secret.secret(), PURPOSE)),
            webhook: keyed(&derive(secret.secret(), WEBHOOK)),
            check: hex(&derive(secret.secret(), CHECK)[..8]).into(),
        });
        Self { keys: keys.collect(), stranger: keyed(&[0; 32]) }
    }

    /// The first key of the configuration.
    pub fn first(&self) -> Option<&Arc<str>> {
        self.keys.first().map(|key| &key.kid)
    }

    /// Each key's id, and what tells two secrets under one id apart without telling either.
    pub fn checks(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.keys.iter().map(|key| (&key.kid, &key.check))
    }

    /// What a webhook signs with, made from a key and from bytes that the store may show to
    /// anybody; none if this host does not have the key.
    pub fn webhook_secret(&self, kid: &str, salt: &[u8]) -> Option<[u8; 32]> {
        let key = self.keys.iter().find(|key| &*key.kid == kid)?;
        Some(key.webhook.clone().chain_update(salt).finalize().into_bytes().into())
    }

    /// The token for these claims; none if this host does not have the key.
    pub fn mint(&self, kid: &str, claims: &TokenClaims) -> Option<WaitpointToken> {
        let key = self.keys.iter().find(|key| &*key.kid == kid)?;
        let payload = claims.encode();
        let mac = authenticated(&key.mac, kid, &payload).finalize().into_bytes();
        Some(wire::join(kid, &payload, &mac))
    }

    /// Checks a token before anything is looked up. Whatever is wrong with it, the answer is the
    /// same and takes the same work.
    pub fn verify(&self, token: &WaitpointToken) -> Result<VerifiedToken, EngineError> {
        let parts = wire::split(token.as_str()).ok_or_else(invalid)?;
        let key = self.keys.iter().find(|key| &*key.kid == parts.kid);
        let mac = key.map_or(&self.stranger, |key| &key.mac);
        let right = authenticated(mac, parts.kid, &parts.payload).verify_slice(&parts.mac).is_ok();
        match (key, right) {
            (Some(key), true) => {
                let claims = TokenClaims::decode(&parts.payload).ok_or_else(invalid)?;
                Ok(VerifiedToken { kid: key.kid.clone(), claims })
            }
            _ => Err(invalid()),
        }
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.kid)).finish()
    }
}

/// The one answer to every bad token.
pub(crate) fn invalid() -> EngineError {
    EngineError::validation(ValidationKind::InvalidToken, "the waitpoint token is not valid")
}

fn authenticated(mac: &Hmac<Sha256>, kid: &str, payload: &[u8]) -> Hmac<Sha256> {
    let mut covered = Vec::with_capacity(payload.len() + 128);
    wire::put(&mut covered, PURPOSE);
    wire::put(&mut covered, kid.as_bytes());
    wire::put(&mut covered, payload);
    mac.clone().chain_update(&covered)
}

fn derive(secret: &Secret, purpose: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    Hkdf::<Sha256>::new(None, secret.expose())
        .expand(purpose, &mut key)
        .expect("32 bytes are fewer than HKDF can give");
    key
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::WaitpointSecret;
    use super::*;
    use crate::types::{ExecutionKey, TimestampMs};

    fn ring(secrets: &[(&str, u8)]) -> Keyring {
        let secret = |(kid, byte): &(&str, u8)| {
            WaitpointSecret::new(*kid, Secret::new([*byte; 32])).unwrap()
        };
        Keyring::new(&WaitpointSecrets::new(secrets.iter().map(secret)).unwrap())
    }

    fn claims() -> TokenClaims {
        TokenClaims {
            namespace: "tenant".into(),
            execution: ExecutionKey { partition: 7, id: Uuid::from_u128(42) },
            waitpoint: Uuid::from_u128(43),
            generation: 2,
            signal_names: vec!["approve".into(), "reject".into()],
            expires_at: Some(TimestampMs(1_800_000_000_000)),
            nonce: [9; 16],
        }
    }

    fn refused(ring: &Keyring, token: &str) -> String {
        match ring.verify(&WaitpointToken::new(token)) {
            Ok(verified) => panic!("{token:?} was accepted as {verified:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_token_says_what_it_was_made_with() {
        let ring = ring(&[("k1", 1), ("k2", 2)]);
        for claims in [
            claims(),
            TokenClaims { signal_names: Vec::new(), expires_at: None, ..claims() },
            TokenClaims { namespace: "".into(), expires_at: Some(TimestampMs(-1)), ..claims() },
        ] {
            let token = ring.mint("k2", &claims).unwrap();
            assert!(token.as_str().starts_with("ffw1.k2."));
            assert_eq!(ring.mint("k2", &claims), Some(token.clone()), "it can be made again");
            let verified = ring.verify(&token).unwrap();
            assert_eq!((&*verified.kid, verified.claims), ("k2", claims));
        }
        assert_eq!(ring.mint("k3", &claims()), None);
    }

    #[test]
    fn every_changed_bit_is_refused() {
        let ring = ring(&[("k1", 1), ("k2", 2), ("k3", 3)]);
        let token = ring.mint("k1", &claims()).unwrap();
        let bytes = token.as_str().as_bytes();
        let mut changed = 0;
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.to_vec();
                other[at] ^= 1 << bit;
                if let Ok(text) = String::from_utf8(other) {
                    refused(&ring, &text);
                    changed += 1;
                }
            }
            refused(&ring, &token.as_str()[..at]);
        }
        assert!(changed > 1_000, "only {changed} changes were tried");
    }

    #[test]
    fn every_forgery_gets_the_same_answer() {
        let own = ring(&[("k1", 1), ("k2", 2)]);
        let token = own.mint("k1", &claims()).unwrap();
        let parts: Vec<&str> = token.as_str().split('.').collect();
        let other = ring(&[("k1", 8)]).mint("k1", &claims()).unwrap();
        let unknown = ring(&[("k9", 9)]).mint("k9", &claims()).unwrap();
        let renamed = format!("ffw1.k2.{}.{}", parts[2], parts[3]);
        let huge = format!("ffw1.k1.{}.{}", "A".repeat(100_000), parts[3]);
        let first = refused(&own, "");
        assert_eq!(first, "invalid_token: the waitpoint token is not valid");
        for forged in [
            other.as_str(),
            unknown.as_str(),
            &renamed,
            &huge,
            "ffw1.k1..",
            "ffw1...",
            "ffw1.k1",
            &format!("{}.", token.as_str()),
            &format!("ffw2.{}.{}.{}", parts[1], parts[2], parts[3]),
            &format!("ffw1.k1.{}.", parts[2]),
            &format!("ffw1.k1..{}", parts[3]),
        ] {
            assert_eq!(refused(&own, forged), first);
        }
    }

    #[test]
    fn random_forgeries_are_never_accepted() {
        let ring = ring(&[("k1", 1)]);
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..20_000 {
            let mut forged = claims();
            forged.generation = rng.u32(..);
            let mut mac = [0; 32];
            rng.fill(&mut mac);
            let token = wire::join("k1", &forged.encode(), &mac[..rng.usize(0..=32)]);
            refused(&ring, token.as_str());
        }
    }

    #[test]
    fn another_purpose_is_another_key() {
        let secret = Secret::new([1; 32]);
        assert_ne!(derive(&secret, PURPOSE), derive(&secret, CHECK));
        assert_ne!(derive(&secret, PURPOSE), [1; 32]);
        let checks: Vec<_> =
            ring(&[("a", 1), ("b", 2)]).checks().map(|(_, check)| check.to_string()).collect();
        assert_ne!(checks[0], checks[1]);
        assert!(!format!("{:?}", ring(&[("a", 1)])).contains(&checks[0]));
    }
}
