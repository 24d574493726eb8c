//! `flowfabric webhook`: who is told of events outside.

use clap::Subcommand;
use ff_api::Span;
use reqwest::Method;
use serde_json::json;

use super::{Session, all, segment};
use crate::cli::span;
use crate::failure::Failure;
use crate::output::{column, say};

#[derive(Subcommand)]
pub enum Webhook {
    /// Tell a receiver of events from now on. Its secret is shown once.
    Add {
        /// Its address.
        // The name `url` is taken by the server's.
        #[arg(value_name = "URL")]
        receiver: String,
        /// What people call it.
        #[arg(long, default_value = "")]
        name: String,
        /// Only events of these types.
        #[arg(long = "type", value_delimiter = ',')]
        types: Vec<String>,
        /// Only events of this lane.
        #[arg(long)]
        lane: Option<String>,
    },
    /// Every webhook and how it does.
    Ls,
    /// One webhook and how far it has come.
    Show { webhook_id: String },
    /// Its last attempts.
    Deliveries { webhook_id: String },
    /// Deliver nothing until it is resumed.
    Pause { webhook_id: String },
    /// Go on with what was not delivered, at once.
    Resume { webhook_id: String },
    /// Sign with another secret, which is shown once.
    Rotate {
        webhook_id: String,
        /// How long deliveries are signed with the old one too.
        #[arg(long, value_parser = span, default_value = "1d")]
        grace: Span,
    },
    /// Forget a webhook.
    Rm { webhook_id: String },
}

impl Webhook {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let client = &session.client;
        let at = |id: &str, verb: &str| format!("/v1/webhooks/{}{verb}", segment(id));
        match self {
            Self::Add { receiver, name, types, lane } => {
                let body =
                    json!({ "url": receiver, "name": name, "event_types": types, "lane_id": lane });
                session.output.one(&client.post("/v1/webhooks", &body).await?)?;
                say("keep the secret now: it is not shown again");
                Ok(())
            }
            Self::Ls => {
                let answer = all(client, "/v1/webhooks", "webhooks", &[]).await?;
                let columns = [
                    column("ID", "webhook_id"),
                    column("NAME", "name"),
                    column("STATE", "state"),
                    column("DELIVERED", "delivered"),
                    column("FAILURES", "failures"),
                    column("URL", "url"),
                ];
                session.output.list(&answer, "webhooks", &columns)
            }
            Self::Show { webhook_id } => {
                session.output.one(&client.get(&at(&webhook_id, ""), &[]).await?)
            }
            Self::Deliveries { webhook_id } => {
                let answer = client.get(&at(&webhook_id, "/deliveries"), &[]).await?;
                let columns = [
                    column("NUMBER", "number"),
                    column("AT", "at"),
                    column("TYPE", "event_type"),
                    column("STATUS", "status"),
                    column("MS", "duration_ms"),
                    column("ERROR", "error"),
                ];
                session.output.list(&answer, "deliveries", &columns)
            }
            Self::Pause { webhook_id } => {
                client.call(Method::POST, &at(&webhook_id, "/pause"), &[], None).await?;
                say(&format!("paused; `flowfabric webhook resume {webhook_id}` ends that"));
                Ok(())
            }
            Self::Resume { webhook_id } => {
                client.call(Method::POST, &at(&webhook_id, "/resume"), &[], None).await?;
                say("it goes on with what was not delivered");
                Ok(())
            }
            Self::Rotate { webhook_id, grace } => {
                let body = json!({ "grace": grace });
                session.output.one(&client.post(&at(&webhook_id, "/rotate"), &body).await?)?;
                say("keep the secret now: it is not shown again");
                Ok(())
            }
            Self::Rm { webhook_id } => {
                client.call(Method::DELETE, &at(&webhook_id, ""), &[], None).await?;
                say(&format!("webhook {webhook_id} is forgotten"));
                Ok(())
            }
        }
    }
}
