//! The server, as the commands call it: JSON in, JSON out, and streams of events.

use std::time::Duration;

use ff_api::Problem;
use futures_util::StreamExt;
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::sse::Blocks;

/// Longer than any request that the server answers.
const PATIENCE: Duration = Duration::from_secs(90);
const CONNECT: Duration = Duration::from_secs(5);
/// Four of the signs of life that a silent stream gives.
const SILENCE: Duration = Duration::from_secs(60);

pub struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
    namespace: Option<String>,
    /// How long a stream may say nothing at all.
    silence: Duration,
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
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { http, url, token, namespace, silence: SILENCE })
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
        let mut blocks = Blocks::default();
        loop {
            let piece = tokio::time::timeout(self.silence, stream.next()).await;
            let Some(piece) = piece.map_err(|_| self.silent())? else { return Ok(()) };
            let piece = piece.map_err(|error| self.unreachable(&error))?;
            if !blocks.feed(&piece) {
                return Err(Failure::new(Exit::Failure, format!("{path} sends no events"))
                    .hint("is that really a FlowFabric server? look at `/version`"));
            }
            while let Some(message) = blocks.next() {
                if !hear(message)? {
                    return Ok(());
                }
            }
        }
    }

    /// A server that lives says so every fifteen seconds.
    fn silent(&self) -> Failure {
        let seconds = self.silence.as_secs();
        Failure::new(Exit::Unavailable, format!("{} has been silent for {seconds} s", self.url))
            .hint("follow it again, behind the cursor of the last event: `events --after CURSOR`")
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
            return Failure::new(Exit::Timeout, format!("{} does not answer: {why}", self.url))
                .hint("`flowfabric doctor` looks at the store of a server that hangs");
        }
        Failure::new(Exit::Unavailable, format!("{} cannot be reached: {why}", self.url))
            .hint("start one with `flowfabric dev`, or name another with --url or FF_URL")
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that sends one event, in two pieces that split a character, and falls silent.
    async fn falls_silent() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = socket.read(&mut request).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            socket.write_all(head.as_bytes()).await.unwrap();
            let (first, second) = "data: {\"name\":\"ü\"}\n\n".as_bytes().split_at(16);
            socket.write_all(first).await.unwrap();
            socket.flush().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            socket.write_all(second).await.unwrap();
            std::future::pending::<()>().await;
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn a_stream_that_falls_silent_is_given_up() {
        let mut client = Client::new(&falls_silent().await, None, None).unwrap();
        client.silence = Duration::from_millis(200);
        let mut heard = Vec::new();
        let followed = client.follow("/v1/events/stream", &[], |message| {
            heard.push(message);
            Ok(true)
        });
        let failure = followed.await.unwrap_err();
        assert_eq!(heard[0]["name"], "ü");
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.to_string().contains("try:"), "{failure}");
    }
}
