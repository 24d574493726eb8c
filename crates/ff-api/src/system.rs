//! What the server says about itself.

use serde::{Deserialize, Serialize};

use ff_core::contracts::Durability;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Health {
    /// `ok`, or why not.
    pub status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Version {
    pub version: String,
    /// The name of the store: `sqlite` or `postgres`.
    pub store: String,
    pub durability: Durability,
}
