//! Rows as users see them.

mod event;
mod execution;
mod explain;

pub use event::event;
pub use execution::{counts, lane, list_cursor, page, parse_list_cursor, snapshot};
pub use explain::explain;
