//! `flowfabric token`: who may do what.

use clap::Subcommand;
use ff_api::Span;
use reqwest::Method;
use serde_json::json;

use super::{Session, all, segment};
use crate::cli::span;
use crate::failure::Failure;
use crate::output::{column, say};

#[derive(Subcommand)]
pub enum Token {
    /// Make a token. It is shown once.
    Create {
        /// What people call it.
        name: String,
        /// What it may be used for: submit, read, work, signal, operate, admin.
        #[arg(long = "scope", required = true, value_delimiter = ',')]
        scopes: Vec<String>,
        /// Where it is good; `*` means everywhere.
        #[arg(long = "in", value_name = "NAMESPACE", default_value = "*", value_delimiter = ',')]
        namespaces: Vec<String>,
        /// How long it is good.
        #[arg(long, value_parser = span)]
        expires_in: Option<Span>,
    },
    /// Every token, without its secret.
    Ls,
    /// End a token at once.
    Revoke { token_id: String },
}

impl Token {
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let client = &session.client;
        match self {
            Self::Create { name, scopes, namespaces, expires_in } => {
                let mut body = json!({ "name": name, "scopes": scopes, "namespaces": namespaces });
                if let Some(expires_in) = expires_in {
                    body["expires_in"] = json!(expires_in);
                }
                let answer = client.post("/v1/tokens", &body).await?;
                session.output.one(&answer)?;
                say("keep it now: only its hash is stored");
                Ok(())
            }
            Self::Ls => {
                let answer = all(client, "/v1/tokens", "tokens", &[]).await?;
                let columns = [
                    column("ID", "token_id"),
                    column("NAME", "name"),
                    column("SCOPES", "scopes"),
                    column("NAMESPACES", "namespaces"),
                    column("EXPIRES", "expires_at"),
                    column("LAST USED", "last_used_at"),
                    column("REVOKED", "revoked_at"),
                ];
                session.output.list(&answer, "tokens", &columns)
            }
            Self::Revoke { token_id } => {
                let path = format!("/v1/tokens/{}", segment(&token_id));
                client.call(Method::DELETE, &path, &[], None).await?;
                say(&format!("token {token_id} is revoked"));
                Ok(())
            }
        }
    }
}
