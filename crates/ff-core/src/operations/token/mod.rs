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
use crate::types::TimestampMs;

/// Who may come in is for the log, what opens the door is not.
fn token_event(row: &TokenRow, kind: EventType, at: TimestampMs, by: &Arc<str>) -> EventRow {
    let details = json!({ "token_id": row.key.id, "name": &*row.name, "scopes": row.scopes.0 });
    let by = Some(by.clone()).filter(|by| !by.is_empty());
    EventRow::bare(kind, "".into(), at).details(&details).by(by)
}
