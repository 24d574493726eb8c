//! The server, as the commands call it: JSON in, JSON out, and streams of events.

use std::time::Duration;

use ff_api::Problem;
use futures_util::StreamExt;
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use crate::failure::{Exit, Failure};

/// Longer than any request that the server answers.
const PATIENCE: Duration = Duration::from_secs(90);
const CONNECT: Duration = Duration::from_secs(5);

pub struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
    namespace: Option<String>,
}

impl Client {
    pub fn new(
        url: &str,
        token: Option<String>,
        namespace: Option<String>,
    ) -> Result<Self, Failure> {
        // Whoever came first has installed the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .user_agent(concat!("flowfabric/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token, namespace })
    }

    pub async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, Failure> {
        self.call(Method::GET, path, query, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.call(Method::POST, path, &[], Some(body)).await
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let response = self.send(method, path, query, body, Some(PATIENCE)).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            Failure::new(Exit::Failure, format!("the answer to {path} is no JSON: {error}"))
                .hint("is that really a FlowFabric server? look at `/version`")
        })
    }

    /// Follows a stream and hands the data of each message on until the hearer has had enough.
    pub async fn follow(
        &self,
        path: &str,
        query: &[(&str, String)],
        mut hear: impl FnMut(Value) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let response = self.send(Method::GET, path, query, None, None).await?;
        let mut stream = response.bytes_stream();
        let mut buffer = String::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| self.unreachable(&error))?;
            buffer += &String::from_utf8_lossy(&chunk);
            while let Some(end) = buffer.find("\n\n") {
                let block: String = buffer.drain(..end + 2).collect();
                if let Some(message) = message(&block)
                    && !hear(message)?
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
        patience: Option<Duration>,
    ) -> Result<Response, Failure> {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).query(query);
        if let Some(patience) = patience {
            request = request.timeout(patience);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(namespace) = &self.namespace {
            request = request.query(&[("namespace", namespace)]);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        Err(match serde_json::from_str::<Problem>(&text) {
            Ok(problem) => Failure::refused(&problem),
            Err(_) => Failure::new(Exit::Failure, format!("{path} answered {status}"))
                .hint("is that really a FlowFabric server? look at `/version`"),
        })
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            why = format!("{why}: {cause}");
            source = cause.source();
        }
        if error.is_timeout() {
            return Failure::new(Exit::Timeout, format!("{} does not answer: {why}", self.url));
        }
        Failure::new(Exit::Unavailable, format!("{} cannot be reached: {why}", self.url))
            .hint("start one with `flowfabric dev`, or name another with --url or FF_URL")
    }
}

/// The data of one block of a stream of server-sent events; comments and pings have none.
fn message(block: &str) -> Option<Value> {
    let data: Vec<&str> =
        block.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
    serde_json::from_str(&data.join("\n")).ok()
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn blocks_with_data_are_messages() {
        let read = message("id: 7\nevent: completed\ndata: {\"a\":\ndata: 1}\n\n").unwrap();
        assert_eq!(read["a"].as_i64(), Some(1));
        assert!(message(": ping\n\n").is_none());
    }
}
