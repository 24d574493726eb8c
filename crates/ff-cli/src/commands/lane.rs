//! `flowfabric lane`: what waits where, and whether it is handed out.

use clap::Subcommand;
use ff_core::state::PublicState;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Session, segment};
use crate::failure::Failure;
use crate::output::{Column, column, say};

#[derive(Subcommand)]
pub enum Lane {
    /// Every lane that was ever used.
    Ls,
    /// How many executions are in each state.
    Counts,
    /// Hand out nothing of a lane until it is resumed.
    Pause {
        lane: String,
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Hand out its work again.
    Resume { lane: String },
}

impl Lane {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let client = &session.client;
        match self {
            Self::Ls => {
                let answer = client.get("/v1/lanes", &[]).await?;
                let columns = [
                    column("LANE", "lane_id"),
                    column("STATE", "state"),
                    column("REASON", "paused_reason"),
                    column("BY", "paused_by"),
                    column("SINCE", "paused_at"),
                ];
                session.output.list(&answer, "lanes", &columns)
            }
            Self::Counts => {
                let answer = client.get("/v1/counts", &[]).await?;
                let (counted, columns) = table_of_counts(answer);
                session.output.list(&counted, "counts", &columns)
            }
            Self::Pause { lane, reason } => {
                let path = format!("/v1/lanes/{}/pause", segment(&lane));
                client.post(&path, &json!({ "reason": reason })).await?;
                say(&format!("lane {lane} is paused; `flowfabric lane resume {lane}` ends that"));
                Ok(())
            }
            Self::Resume { lane } => {
                let path = format!("/v1/lanes/{}/resume", segment(&lane));
                client.call(Method::POST, &path, &[], None).await?;
                say(&format!("lane {lane} hands out its work again"));
                Ok(())
            }
        }
    }
}

/// Each state with its column. Those that are always shown come with `true`; the others are shown
/// if any lane has executions in them.
const STATES: [(PublicState, bool, Column); 12] = [
    (PublicState::Waiting, true, column("WAITING", "counts.waiting")),
    (PublicState::Delayed, true, column("DELAYED", "counts.delayed")),
    (PublicState::RateLimited, false, column("RATE_LIMITED", "counts.rate_limited")),
    (PublicState::WaitingChildren, false, column("WAITING_CHILDREN", "counts.waiting_children")),
    (PublicState::Active, true, column("ACTIVE", "counts.active")),
    (PublicState::Suspended, true, column("SUSPENDED", "counts.suspended")),
    (PublicState::Resumable, false, column("RESUMABLE", "counts.resumable")),
    (PublicState::Completed, true, column("COMPLETED", "counts.completed")),
    (PublicState::Failed, true, column("FAILED", "counts.failed")),
    (PublicState::Cancelled, true, column("CANCELLED", "counts.cancelled")),
    (PublicState::Expired, false, column("EXPIRED", "counts.expired")),
    (PublicState::Skipped, false, column("SKIPPED", "counts.skipped")),
];

/// The counts with a number for every state, and the columns to show.
fn table_of_counts(mut answer: Value) -> (Value, Vec<Column>) {
    let mut used = [0u64; STATES.len()];
    for lane in answer["counts"].as_array_mut().into_iter().flatten() {
        for ((state, ..), used) in STATES.iter().zip(&mut used) {
            let count = lane["counts"][state.as_str()].as_u64().unwrap_or_default();
            lane["counts"][state.as_str()] = count.into();
            *used += count;
        }
    }
    let shown = STATES.into_iter().zip(used).filter(|((_, always, _), used)| *always || *used > 0);
    let mut columns = vec![column("NAMESPACE", "namespace"), column("LANE", "lane_id")];
    columns.extend(shown.map(|((.., column), _)| column));
    (answer, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_state_is_left_out() {
        let named = STATES.map(|(state, ..)| state);
        assert_eq!(named, PublicState::ALL);
        let counts: serde_json::Map<String, Value> =
            PublicState::ALL.iter().map(|state| (state.as_str().to_owned(), 1.into())).collect();
        let (_, columns) = table_of_counts(json!({ "counts": [{ "counts": counts }] }));
        for (column, state) in columns[2..].iter().zip(PublicState::ALL) {
            assert_eq!(column.path, format!("counts.{}", state.as_str()));
            assert_eq!(column.head.to_lowercase(), state.as_str());
        }
        let (_, columns) = table_of_counts(json!({ "counts": [{ "counts": {} }] }));
        assert_eq!(columns.len(), 2 + 7);
    }
}
