//! Rows as users see them.

mod bulk;
mod event;
mod execution;
mod explain;
mod explain_dependencies;
mod explain_limit;
mod flow;
mod limit;
mod schedule;
mod step;
mod stream;
mod suspension;
mod token;
mod webhook;
mod worker;

pub use bulk::{bulk, bulk_failures, bulk_page, parse_bulk_cursor, parse_failure_cursor};
pub use event::event;
pub use execution::{counts, lane, list_cursor, page, parse_list_cursor, snapshot};
pub use explain::explain;
pub use explain_dependencies::{Dependencies, SHOWN_OPEN, explain_dependencies};
pub use explain_limit::{explain_limit, waits_for_limit};
pub use flow::{GraphCursor, flow, flow_graph, flow_page, projected, stored_states};
pub use limit::{budget, quota};
pub use schedule::{parse_schedule_cursor, schedule, schedule_page};
pub use step::steps;
pub use stream::{frame, stream_end, summary};
pub use suspension::{
    WaitpointCursor, explain_suspended, resume_signal, signal, suspension, waitpoint,
    waitpoint_key, waitpoint_page,
};
pub use token::token;
pub use webhook::{webhook, webhook_delivery};
pub use worker::worker;
