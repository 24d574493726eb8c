//! `flowfabric lane`: what waits where, and whether it is handed out.

use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use super::{Session, segment};
use crate::failure::Failure;
use crate::output::{column, say};

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
                let columns = [
                    column("NAMESPACE", "namespace"),
                    column("LANE", "lane_id"),
                    column("WAITING", "counts.waiting"),
                    column("DELAYED", "counts.delayed"),
                    column("ACTIVE", "counts.active"),
                    column("SUSPENDED", "counts.suspended"),
                    column("COMPLETED", "counts.completed"),
                    column("FAILED", "counts.failed"),
                    column("CANCELLED", "counts.cancelled"),
                ];
                session.output.list(&answer, "counts", &columns)
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
