//! Tokens: `ff_` and 256 random bits. The server knows them by their hash alone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// A token that nobody has seen before.
pub fn mint_token() -> Result<String, getrandom::Error> {
    let mut bits = [0u8; 32];
    getrandom::fill(&mut bits)?;
    Ok(format!("ff_{}", URL_SAFE_NO_PAD.encode(bits)))
}

/// A token has as many bits as its hash, so a slow hash would protect nothing more.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
