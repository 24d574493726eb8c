//! Names that users choose: lanes, namespaces, workers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits;

/// A name that breaks a rule, and which one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct NameError {
    what: &'static str,
    problem: String,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            pub fn new(value: impl Into<String>) -> Self {
                Self(value.into())
            }

            /// Builds the name only if it is non-empty, short enough and printable.
            pub fn try_new(value: impl Into<String>) -> Result<Self, NameError> {
                let name = Self(value.into());
                name.check()?;
                Ok(name)
            }

            pub fn check(&self) -> Result<(), NameError> {
                check_name($what, &self.0, $max, $check)
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A queue. Lanes come into being when they are first used.
    LaneId, "lane id", limits::LANE_BYTES, printable_ascii
);
name!(
    /// A tenant: executions of one namespace are invisible to another.
    Namespace, "namespace", limits::NAME_BYTES, no_control
);
name!(
    /// The name of a worker program.
    WorkerId, "worker id", limits::NAME_BYTES, no_control
);
name!(
    /// One running process of a worker program.
    WorkerInstanceId, "worker instance id", limits::NAME_BYTES, no_control
);

name!(
    /// A budget, within its namespace.
    BudgetId, "budget id", limits::NAME_BYTES, no_control
);
name!(
    /// A quota, within its namespace.
    QuotaId, "quota id", limits::NAME_BYTES, no_control
);

fn printable_ascii(c: char) -> bool {
    matches!(c, ' '..='~')
}

fn no_control(c: char) -> bool {
    !c.is_control()
}

fn check_name(
    what: &'static str,
    value: &str,
    max: usize,
    allowed: fn(char) -> bool,
) -> Result<(), NameError> {
    let problem = if value.is_empty() {
        "is empty".to_owned()
    } else if value.len() > max {
        format!("is {} bytes long, the limit is {max}", value.len())
    } else if let Some(bad) = value.chars().find(|c| !allowed(*c)) {
        format!("contains {bad:?}, which is not allowed")
    } else {
        return Ok(());
    };
    Err(NameError { what, problem })
}
