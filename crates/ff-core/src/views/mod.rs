//! Rows as users see them.

mod event;
mod execution;
mod explain;
mod suspension;

pub use event::event;
pub use execution::{counts, lane, list_cursor, page, parse_list_cursor, snapshot};
pub use explain::explain;
pub use suspension::{
    WaitpointCursor, explain_suspended, resume_signal, signal, suspension, waitpoint_key,
    waitpoint_page,
};
