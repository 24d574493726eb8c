//! Keeping API tokens.

mod create_token;
mod revoke_token;
mod touch_token;

pub use create_token::CreateToken;
pub use revoke_token::RevokeToken;
pub use touch_token::TouchToken;

use std::sync::Arc;

use serde_json::json;

use crate::contracts::EventType;
use crate::rows::{EventRow, TokenRow};
use crate::types::{Namespace, TimestampMs};

/// Whether a token is for a caller that sees one namespace to keep: it is good there and nowhere
/// else. A caller that sees all keeps all.
pub(crate) fn belongs_to(namespaces: &[String], scope: Option<&Namespace>) -> bool {
    let own = |scope: &Namespace| matches!(namespaces, [only] if only == scope.as_str());
    scope.is_none_or(own)
}

/// Who may come in is for the log, what opens the door is not.
fn token_event(row: &TokenRow, kind: EventType, at: TimestampMs, by: &Arc<str>) -> EventRow {
    let details = json!({ "token_id": row.key.id, "name": &*row.name, "scopes": row.scopes.0 });
    let by = Some(by.clone()).filter(|by| !by.is_empty());
    let namespace = match &row.namespaces.0[..] {
        [only] if only != "*" => only.as_str(),
        _ => "",
    };
    EventRow::bare(kind, namespace.into(), at).details(&details).by(by)
}
