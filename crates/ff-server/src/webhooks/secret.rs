//! What webhooks sign with. It is made from a key of the host's and random bytes, and the store has
//! only those and the name of the key: whoever reads the database cannot sign.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ff_core::token::Keyring;

/// How a secret is written.
const PREFIX: &str = "whsec_";
const BYTES: usize = 32;
/// How what is stored begins, unless the host has no key: then it is the secret itself.
const MADE: &[u8] = b"ffw1";

/// A secret, and what the store keeps of it.
pub struct Minted {
    /// As its receiver has it; shown once.
    pub written: String,
    pub stored: Vec<u8>,
}

pub fn mint(keys: &Keyring) -> Result<Minted, getrandom::Error> {
    let mut salt = vec![0; BYTES];
    getrandom::fill(&mut salt)?;
    let made = keys.first().and_then(|kid| Some((kid, keys.webhook_secret(kid, &salt)?)));
    Ok(match made {
        Some((kid, secret)) => {
            let stored = [MADE, kid.as_bytes(), b".", &salt].concat();
            Minted { written: written(&secret), stored }
        }
        None => Minted { written: written(&salt), stored: salt },
    })
}

fn written(secret: &[u8]) -> String {
    format!("{PREFIX}{}", STANDARD.encode(secret))
}

/// The secret that was stored so, or why it cannot be known here.
pub fn open(keys: &Keyring, stored: &[u8]) -> Result<Vec<u8>, String> {
    if stored.len() == BYTES {
        return Ok(stored.to_vec());
    }
    let (kid, salt) = parts(stored).ok_or("the secret of this webhook cannot be read")?;
    let secret = keys.webhook_secret(kid, salt).ok_or_else(|| {
        format!(
            "this server does not have the key {kid:?} that the secret was made with: add it to \
             `waitpoint_secrets`, or rotate the secret"
        )
    })?;
    Ok(secret.to_vec())
}

fn parts(stored: &[u8]) -> Option<(&str, &[u8])> {
    let rest = stored.strip_prefix(MADE)?;
    let (kid, salt) = rest.split_at(rest.len().checked_sub(BYTES + 1)?);
    Some((std::str::from_utf8(kid).ok()?, &salt[1..]))
}

#[cfg(test)]
mod tests {
    use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets};

    use super::*;

    fn keys(secrets: &[(&str, u8)]) -> Keyring {
        let secret = |(kid, byte): &(&str, u8)| {
            WaitpointSecret::new(*kid, Secret::new([*byte; 32])).unwrap()
        };
        Keyring::new(&WaitpointSecrets::new(secrets.iter().map(secret)).unwrap())
    }

    #[test]
    fn what_is_stored_tells_nothing_without_the_key() {
        let own = keys(&[("k1", 7)]);
        let minted = mint(&own).unwrap();
        let secret = open(&own, &minted.stored).unwrap();
        assert_eq!(minted.written, written(&secret));
        assert!(!minted.stored.windows(8).any(|part| part == &secret[..8]));
        assert_eq!(open(&keys(&[("k2", 1), ("k1", 7)]), &minted.stored).unwrap(), secret);
        assert_ne!(open(&keys(&[("k1", 8)]), &minted.stored).unwrap(), secret);
        let why = open(&keys(&[("k2", 7)]), &minted.stored).unwrap_err();
        assert!(why.contains("k1") && why.contains("rotate"), "{why}");
        assert!(open(&own, b"ffw1").is_err() && open(&own, b"").is_err());
    }

    #[test]
    fn without_a_key_the_secret_itself_is_stored() {
        let minted = mint(&keys(&[])).unwrap();
        assert_eq!(minted.written, written(&open(&keys(&[]), &minted.stored).unwrap()));
    }
}
