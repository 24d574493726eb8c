//! `flowfabric worker`: who is there to do the work.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Session, all, segment};
use crate::failure::{Exit, Failure};
use crate::output::{column, say};

#[derive(Subcommand)]
pub enum Worker {
    /// Workers that are alive.
    Ls {
        /// Only those that take work from this lane.
        #[arg(long)]
        lane: Option<String>,
    },
    /// Everything about one worker.
    Show { worker_instance_id: String },
    /// Strike a worker off the list; what it holds stays its own until it expires.
    Retire { worker_instance_id: String },
}

impl Worker {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Ls { lane } => {
                let workers = workers(session, lane).await?;
                let columns = [
                    column("INSTANCE", "worker_instance_id"),
                    column("WORKER", "worker_id"),
                    column("LANES", "lanes"),
                    column("CAPABILITIES", "capabilities"),
                    column("LAST SIGN", "last_heartbeat_at"),
                    column("UNTIL", "expires_at"),
                ];
                session.output.list(&json!({ "workers": workers }), "workers", &columns)
            }
            Self::Show { worker_instance_id } => {
                let workers = workers(session, None).await?;
                let known = |worker: &&Value| worker["worker_instance_id"] == *worker_instance_id;
                let worker = workers.iter().find(known);
                session.output.one(worker.ok_or_else(|| unknown(&worker_instance_id))?)
            }
            Self::Retire { worker_instance_id } => {
                let path = format!("/v1/workers/{}", segment(&worker_instance_id));
                let answer = session.client.call(Method::DELETE, &path, &[], None).await?;
                if answer["outcome"] != "retired" {
                    return Err(unknown(&worker_instance_id));
                }
                say(&format!("{worker_instance_id} is retired"));
                Ok(())
            }
        }
    }
}

fn unknown(instance: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("no worker {instance:?} is alive"))
        .hint("`flowfabric worker ls` lists those that are")
}

pub async fn workers(session: &Session, lane: Option<String>) -> Result<Vec<Value>, Failure> {
    let query: Vec<_> = lane.map(|lane| ("lane_id", lane)).into_iter().collect();
    let mut found = all(&session.client, "/v1/workers", "workers", &query).await?;
    match found["workers"].take() {
        Value::Array(workers) => Ok(workers),
        _ => Ok(Vec::new()),
    }
}
