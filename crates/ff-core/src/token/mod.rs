//! Waitpoint tokens: what an outside caller shows to prove that it may signal a waitpoint.
//!
//! A token is `ffw1.<kid>.<payload>.<mac>`. The payload says everything that it allows, and the
//! MAC over it is checked before anything is looked up, so a forger learns nothing and costs the
//! store nothing. Secrets are the host's configuration and are never stored; a waitpoint keeps
//! only the id of its key and a nonce, from which whoever has the secret can make the token again.

mod keyring;
mod secret;
mod wire;

pub(crate) use keyring::invalid;
pub use keyring::{Keyring, VerifiedToken};
pub(crate) use secret::check_kid;
pub use secret::{Secret, WaitpointSecret, WaitpointSecrets};
pub use wire::{TokenClaims, WaitpointToken};

/// The bytes that make each token one of its kind.
pub const NONCE_BYTES: usize = 16;
