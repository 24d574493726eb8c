//! A token as its keeper sees it: everything except its hash.

use crate::contracts::StoredToken;
use crate::rows::TokenRow;

pub fn token(row: &TokenRow) -> StoredToken {
    StoredToken {
        token_id: row.key.id,
        name: row.name.to_string(),
        scopes: row.scopes.0.clone(),
        namespaces: row.namespaces.0.clone(),
        created_by: row.created_by.to_string(),
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
        revoked_at: row.revoked_at,
    }
}
