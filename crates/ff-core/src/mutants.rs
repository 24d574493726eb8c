//! Known bugs that the simulation must find, compiled in only with the feature `mutants`.
//!
//! A checker that has never failed proves nothing, so each classic bug of this field lives here
//! as a switch, and the test command proves that the simulation finds every one of them. The crash
//! test finds those that can be seen from outside a process, when it is asked to.

/// The bugs, named for what they break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A worker's write is accepted whatever its lease epoch is.
    NoFence,
    /// Callers are answered before their change is committed.
    AckBeforeCommit,
    /// A completion is accepted after a cancellation.
    CancelNotFinal,
    /// A lease timer takes the work back without looking whether the lease still stands.
    StaleRescue,
    /// Leases expire by the clock of the node that looks, not by the store's.
    ExpiryByNodeClock,
    /// A suspension does not look at what was signalled before it.
    SignalLost,
    /// An expired lease keeps its permits of quotas.
    PermitLeaked,
    /// A claim looks only at what a budget has used, and not at what others have reserved.
    BudgetOverspent,
    /// The children of a member that does not complete are not told.
    CascadeLost,
    /// What a commit has left for the sweeper to go on with is never taken up.
    CascadeForgotten,
    /// Parents that end after a group has decided make it decide again.
    GroupFiredTwice,
    /// Of several times that have come due, a schedule forgets all but the last.
    DueTimeLost,
    /// A bulk operation that was held up takes up again where it had begun to look.
    BulkTwice,
    /// A step that is recorded again takes the later result.
    StepTwice,
    /// A timer that finds that it is not due yet is not armed again.
    TimerForgotten,
}

impl Mutant {
    pub const ALL: [Self; 15] = [
        Self::NoFence,
        Self::AckBeforeCommit,
        Self::CancelNotFinal,
        Self::StaleRescue,
        Self::ExpiryByNodeClock,
        Self::SignalLost,
        Self::PermitLeaked,
        Self::BudgetOverspent,
        Self::CascadeLost,
        Self::CascadeForgotten,
        Self::GroupFiredTwice,
        Self::DueTimeLost,
        Self::BulkTwice,
        Self::StepTwice,
        Self::TimerForgotten,
    ];
}

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use super::Mutant;

    static EVERYWHERE: OnceLock<Mutant> = OnceLock::new();

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
        static NODE_CLOCK_SKEW_MS: Cell<i64> = const { Cell::new(0) };
    }

    /// Turns one bug on for this thread, or all of them off.
    pub fn activate(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }

    /// Turns one bug on for all threads of this process, for as long as it lives.
    pub fn activate_everywhere(mutant: Mutant) {
        let _ = EVERYWHERE.set(mutant);
    }

    pub fn set_node_clock_skew_ms(skew: i64) {
        NODE_CLOCK_SKEW_MS.set(skew);
    }

    pub(crate) fn active(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant) || EVERYWHERE.get() == Some(&mutant)
    }

    pub(crate) fn node_clock_skew_ms() -> i64 {
        if active(Mutant::ExpiryByNodeClock) { NODE_CLOCK_SKEW_MS.get() } else { 0 }
    }
}

#[cfg(not(feature = "mutants"))]
mod switch {
    use super::Mutant;

    pub(crate) const fn active(_: Mutant) -> bool {
        false
    }

    pub(crate) const fn node_clock_skew_ms() -> i64 {
        0
    }
}

#[cfg(feature = "mutants")]
pub use switch::{activate, activate_everywhere, set_node_clock_skew_ms};
pub(crate) use switch::{active, node_clock_skew_ms};
