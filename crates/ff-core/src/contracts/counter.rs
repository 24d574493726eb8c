//! Counters that differ from what they count.

use serde::Serialize;

/// A counter that does not say how many there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// Whose counter it is.
    pub subject: String,
    pub counter: String,
    /// What it says.
    pub stored: i64,
    /// What there is.
    pub counted: i64,
}
