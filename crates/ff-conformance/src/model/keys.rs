//! The keys that waitpoint tokens are made with. They belong to the whole store and not to a
//! sequence, so a group changes them between its steps, on both sides.

use fastrand::Rng;
use ff_core::contracts::{RotateWaitpointSecretArgs, WaitpointKeySnapshot};
use ff_core::engine_backend::SuspensionOperations;
use ff_core::token::{Secret, WaitpointSecret, WaitpointSecrets};

use super::Sides;
use super::step::text;

/// A key that was retired cannot come back, so a long run uses up many. One that has used up all of
/// them stays with the last.
const KEYS: usize = 300;

fn kid(at: usize) -> String {
    format!("k{at}")
}

pub fn secrets() -> WaitpointSecrets {
    let secrets = (0..KEYS).map(|at| {
        let mut bytes = [7; 32];
        bytes[..8].copy_from_slice(&(at as u64).to_be_bytes());
        WaitpointSecret::new(kid(at), Secret::new(bytes)).expect("a good secret")
    });
    WaitpointSecrets::new(secrets).expect("different ids")
}

/// The keys of one group: those from its first on.
pub struct Keys {
    first: usize,
    next: usize,
}

impl Keys {
    /// Both sides begin with the same key, whatever the groups before have used.
    pub async fn begin(sides: Sides<'_>, first: usize) -> Self {
        let first = first.min(KEYS - 1);
        for side in sides {
            let args = RotateWaitpointSecretArgs { new_kid: kid(first), grace_ms: 0 };
            side.rotate_waitpoint_secret(args).await.expect("a key that nobody has used");
        }
        Self { first, next: first + 1 }
    }

    /// The first that no group has used.
    pub fn end(&self) -> usize {
        self.next
    }

    /// Mostly nothing; sometimes another key, or one that is refused.
    pub async fn change(&mut self, plan: &mut Rng, sides: Sides<'_>) -> Result<(), String> {
        if plan.u32(..16) > 0 {
            return Ok(());
        }
        let grace_ms = [0, 1_000, 60_000][plan.usize(..3)];
        let again = plan.u32(..4) == 0 || self.next == KEYS;
        let at = if again { plan.usize(self.first..self.next) } else { self.next };
        self.next = self.next.max(at + 1);
        let mut answers = Vec::new();
        for side in sides {
            let args = RotateWaitpointSecretArgs { new_kid: kid(at), grace_ms };
            let rotated = side.rotate_waitpoint_secret(args).await;
            let seeded = side.seed_waitpoint_secret(&kid(at)).await;
            let listed = side.list_waitpoint_keys().await.map(|listed| self.own(listed.items));
            answers.push(text(&**side, &(rotated, seeded, listed)));
        }
        match answers[0] == answers[1] {
            true => Ok(()),
            false => Err(format!("the key {} on both sides:\n  {}", kid(at), answers.join("\n  "))),
        }
    }

    /// Without what other groups have used, which only one of the sides knows.
    fn own(&self, listed: Vec<WaitpointKeySnapshot>) -> Vec<WaitpointKeySnapshot> {
        let own: Vec<_> = (self.first..self.next).map(kid).collect();
        listed.into_iter().filter(|key| own.contains(&key.kid)).collect()
    }
}
