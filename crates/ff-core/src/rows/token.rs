//! `ff_api_token`: who may call the server. The engine keeps tokens and does not judge by them.

use std::sync::Arc;

use uuid::Uuid;

use super::{Json, record};
use crate::types::TimestampMs;

record! {
    /// A token, known by its hash alone.
    pub struct TokenRow in "ff_api_token" {
        key TokenKey {
            /// The first half of the hash.
            id: Uuid = [token_id: Uuid],
        }
        hash: Arc<[u8]> = [token_hash: Bytes],
        name: Arc<str> = [name: Text],
        scopes: Json<Vec<String>> = [scopes: Json],
        namespaces: Json<Vec<String>> = [namespaces: Json],
        created_by: Arc<str> = [created_by: Text],
        created_at: TimestampMs = [created_at_ms: Int],
        expires_at: Option<TimestampMs> = [expires_at_ms: Int],
        last_used_at: Option<TimestampMs> = [last_used_at_ms: Int],
        revoked_at: Option<TimestampMs> = [revoked_at_ms: Int],
    }
}
