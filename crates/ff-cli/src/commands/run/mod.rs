//! `flowfabric run`: start, watch and operate executions.

mod list;
mod operate;
mod start;
mod watch;

use clap::Subcommand;
pub use list::Filter;

pub use watch::LONG_POLL;

use super::waitpoint::signal_by_name;
use super::{Session, segment};
use crate::failure::Failure;

#[derive(Subcommand)]
pub enum Run {
    /// Submit one execution.
    Start(start::Start),
    /// List executions, newest first.
    Ls(list::List),
    /// Everything about one execution.
    Show {
        execution_id: String,
        /// Its events too.
        #[arg(long)]
        events: bool,
    },
    /// Why it is not running, and when that can change.
    Why { execution_id: String },
    /// Its events as they come, until it has ended.
    Tail { execution_id: String },
    /// How it ended. Exits with 2 if it failed, 3 if it was cancelled or has expired.
    Result(watch::Outcome),
    /// Cancel executions, by name or by what they match.
    Cancel(operate::Cancel),
    /// Hand a waiting execution out at once, whatever it was waiting for.
    Retry { execution_id: String },
    /// Run a finished execution again. A cancelled one cannot be: resubmit it.
    Replay { execution_id: String },
    /// Start the work of an ended execution anew, as an execution of its own.
    Resubmit {
        execution_id: String,
        /// What it is given instead of the original's input: JSON, `@file` or `@-`.
        #[arg(short, long)]
        input: Option<String>,
        /// The same resubmission under the same key is accepted once.
        #[arg(long)]
        idempotency_key: Option<String>,
    },
    /// Run a node of a flow, and all that depends on it, in a flow of their own.
    Fork {
        execution_id: String,
        /// What it is given instead of its own input: JSON, `@file` or `@-`.
        #[arg(short, long)]
        input: Option<String>,
        /// The last of its recorded steps that need not be done again.
        #[arg(long)]
        steps_up_to: Option<String>,
    },
    /// Say something to an execution that waits for a signal of this name.
    Signal {
        execution_id: String,
        name: String,
        /// JSON, `@file` or `@-`.
        #[arg(short, long)]
        input: Option<String>,
    },
    /// Change what goes first.
    Priority { execution_id: String, priority: i32 },
    /// Set or remove tags: `key=value` sets, `key=` removes.
    Tag {
        execution_id: String,
        #[arg(required = true)]
        tags: Vec<String>,
    },
    /// Take a lease away from its worker.
    Revoke {
        execution_id: String,
        #[arg(long, default_value = "")]
        reason: String,
    },
}

impl Run {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Start(start) => start.run(session).await,
            Self::Ls(list) => list.run(session).await,
            Self::Show { execution_id, events } => {
                watch::show(session, &execution_id, events).await
            }
            Self::Why { execution_id } => watch::why(session, &execution_id).await,
            Self::Tail { execution_id } => watch::tail(session, &execution_id).await,
            Self::Result(outcome) => outcome.run(session).await,
            Self::Cancel(cancel) => cancel.run(session).await,
            Self::Retry { execution_id } => operate::retry(session, &execution_id).await,
            Self::Replay { execution_id } => operate::replay(session, &execution_id).await,
            Self::Resubmit { execution_id, input, idempotency_key } => {
                let (input, key) = (input.as_deref(), idempotency_key.as_deref());
                operate::resubmit(session, &execution_id, input, key).await
            }
            Self::Fork { execution_id, input, steps_up_to } => {
                let (input, last) = (input.as_deref(), steps_up_to.as_deref());
                operate::fork(session, &execution_id, input, last).await
            }
            Self::Signal { execution_id, name, input } => {
                signal_by_name(session, &execution_id, &name, input.as_deref()).await
            }
            Self::Priority { execution_id, priority } => {
                operate::priority(session, &execution_id, priority).await
            }
            Self::Tag { execution_id, tags } => operate::tag(session, &execution_id, &tags).await,
            Self::Revoke { execution_id, reason } => {
                operate::revoke(session, &execution_id, &reason).await
            }
        }
    }
}

/// The path of an execution, or of something about it.
fn path(execution_id: &str, rest: &str) -> String {
    format!("/v1/executions/{}{rest}", segment(execution_id))
}
