//! Identifiers that are a UUID and nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A random identifier.
            #[allow(clippy::new_without_default)]
            pub fn new() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.hyphenated())
            }
        }
    };
}

uuid_id!(
    /// A flow: a graph of executions.
    FlowId
);
uuid_id!(
    /// An edge of a flow's graph.
    EdgeId
);
uuid_id!(
    /// A lease, where a caller names one.
    LeaseId
);
uuid_id!(
    /// An attempt, where a caller names one.
    AttemptId
);
uuid_id!(
    /// One time that an execution is suspended.
    SuspensionId
);
uuid_id!(
    /// A place where signals for a suspended execution arrive.
    WaitpointId
);
uuid_id!(
    /// A signal.
    SignalId
);
