//! What may happen to the rows: one file per verb, each two pure functions.
//!
//! Nothing here is async, reads a clock, draws a random number, logs or does I/O. Time comes with
//! the world; identities and randomness come in as fields, drawn by the shell.

pub mod admin;
pub mod bulk;
pub mod execution;
pub mod flow;
pub mod limit;
pub mod schedule;
pub mod step;
pub mod stream;
pub mod suspension;
pub mod timer;
pub mod token;
pub mod webhook;
pub mod worker;

use crate::engine_error::EngineError;
use crate::store::{Change, Needs, World};

/// Something that an operator should hear of. Operations do not log: the engine does, once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// What it is about, by name or id.
    pub subject: String,
    pub what: &'static str,
    pub why: String,
}

pub trait Operation: Send + 'static {
    type Reply: Send + 'static;

    /// The word for this operation in metrics and errors.
    const NAME: &'static str;

    /// Not decided if whoever asked has gone.
    const NEEDS_CALLER: bool = false;

    /// Whether it may end a lease, so that what leases hold of limits must be at hand.
    const MAY_END_LEASES: bool = true;

    /// Whether the answer is what somebody who waits for it would stop waiting for.
    fn is_served(_: &Self::Reply) -> bool {
        true
    }

    /// How many single operations this one is worth, so that batches stay bounded.
    fn weight(&self) -> usize {
        1
    }

    /// Names everything that `decide` will look at.
    fn needs(&self, needs: &mut Needs);

    /// Names what else must be seen, now that what was named so far has been loaded. Asked again
    /// until it names nothing new.
    fn more(&self, _world: &World, _needs: &mut Needs) {}

    /// Decides, and says what to write. A refusal writes nothing.
    fn decide(&self, world: &World) -> Result<(Self::Reply, Change), EngineError>;
}
