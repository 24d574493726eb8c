//! Secrets of the host's configuration. None of them can be printed.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::engine_error::{EngineError, ValidationKind};
use crate::limits;

/// Bytes that no log, error or dump shows, and that are overwritten when the last copy goes.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<Vec<u8>>>);

impl Secret {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Arc::new(Zeroizing::new(bytes.into())))
    }

    pub(super) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// A secret and the id that tokens name it by.
#[derive(Clone, Debug)]
pub struct WaitpointSecret {
    kid: Arc<str>,
    secret: Secret,
}

impl WaitpointSecret {
    /// Refuses ids that a token cannot carry and secrets that could be guessed.
    pub fn new(kid: impl Into<String>, secret: Secret) -> Result<Self, EngineError> {
        let kid = kid.into();
        check_kid(&kid)?;
        let len = secret.expose().len();
        if len < limits::WAITPOINT_SECRET_BYTES {
            let least = limits::WAITPOINT_SECRET_BYTES;
            return Err(EngineError::invalid(format!(
                "the waitpoint secret {kid:?} has {len} bytes, it needs at least {least}"
            )));
        }
        Ok(Self { kid: kid.into(), secret })
    }

    pub fn kid(&self) -> &Arc<str> {
        &self.kid
    }

    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }
}

/// Whether a text can be the id of a key: a dot would end it inside a token.
pub(crate) fn check_kid(kid: &str) -> Result<(), EngineError> {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    if kid.is_empty() || kid.len() > limits::KID_BYTES || !kid.bytes().all(allowed) {
        let detail = format!(
            "the key id {kid:?} must be 1 to {} letters, digits, hyphens or underscores",
            limits::KID_BYTES
        );
        return Err(EngineError::validation(ValidationKind::InvalidKid, detail));
    }
    Ok(())
}

/// The secrets that a host gives its engine. The first is the one that tokens are made with until
/// the store says otherwise.
#[derive(Clone, Debug, Default)]
pub struct WaitpointSecrets(Vec<WaitpointSecret>);

impl WaitpointSecrets {
    /// Refuses two secrets under one id.
    pub fn new(secrets: impl IntoIterator<Item = WaitpointSecret>) -> Result<Self, EngineError> {
        let secrets: Vec<_> = secrets.into_iter().collect();
        for (at, secret) in secrets.iter().enumerate() {
            if secrets[..at].iter().any(|before| before.kid == secret.kid) {
                let detail = format!("two waitpoint secrets have the key id {:?}", secret.kid);
                return Err(EngineError::validation(ValidationKind::InvalidKid, detail));
            }
        }
        Ok(Self(secrets))
    }

    pub fn iter(&self) -> impl Iterator<Item = &WaitpointSecret> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_prints_a_secret() {
        let secret = WaitpointSecret::new("k1", Secret::new(*b"canary-canary-canary-canary-cana"));
        let secrets = WaitpointSecrets::new([secret.unwrap()]).unwrap();
        let printed = format!("{secrets:?} {secrets:#?}");
        assert!(!printed.contains("canary") && !printed.contains("99"), "{printed}");
        assert!(printed.contains("k1") && printed.contains("redacted"));
    }

    #[test]
    fn bad_secrets_are_refused() {
        let good = Secret::new([7; 32]);
        for kid in ["", "a.b", "a b", "ä", &"k".repeat(65)] {
            assert_eq!(
                WaitpointSecret::new(kid, good.clone()).unwrap_err().code(),
                "invalid_kid",
                "{kid:?}"
            );
        }
        assert!(WaitpointSecret::new("k", Secret::new([7; 31])).is_err());
        let one = WaitpointSecret::new("k", good).unwrap();
        assert!(WaitpointSecrets::new([one.clone(), one]).is_err());
    }
}
