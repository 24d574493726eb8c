//! A small HTTP client that can also be rude: it sends exactly what it is told to.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Long enough for a slow machine, short enough to notice a hang.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub struct Client {
    pub address: SocketAddr,
    pub token: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    }

    /// The answer's JSON, if its status is the expected one.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// A problem with this status and code.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        let problem = self.expect(status);
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(problem["status"], status);
        assert!(problem["retryable"].is_boolean() && problem["detail"].is_string(), "{problem}");
        problem
    }
}

impl Client {
    pub fn with(&self, token: Option<&str>) -> Self {
        Self { address: self.address, token: token.map(str::to_owned) }
    }

    pub async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Response {
        self.send("POST", path, &[], Some(body)).await
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Response {
        let body = body.map(|body| body.to_string().into_bytes());
        self.send_bytes(method, path, headers, body.as_deref()).await
    }

    pub async fn send_bytes(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Response {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        head += "connection: close\r\n";
        if let Some(token) = &self.token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(body) = body {
            if !headers.iter().any(|(name, _)| *name == "content-type") {
                head += "content-type: application/json\r\n";
            }
            head += &format!("content-length: {}\r\n", body.len());
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend_from_slice(body.unwrap_or_default());
        let answer = self.raw(&bytes).await;
        parse(&answer).unwrap_or_else(|| panic!("{method} {path}: no answer: {answer:?}"))
    }

    /// Sends bytes and reads until the server closes.
    pub async fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            // A server that refuses early may close before everything is sent.
            let _ = stream.write_all(bytes).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            answer
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("the server hangs")
    }

    /// Opens a stream of events; nothing is read yet.
    pub async fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Stream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        if let Some(token) = &self.token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all((head + "\r\n").as_bytes()).await.unwrap();
        let mut stream = Stream { stream, text: String::new() };
        stream.read_until("\r\n\r\n").await;
        // The first comment says that the server listens to the log.
        stream.read_until(":\n\n").await;
        stream
    }
}

pub struct Stream {
    stream: TcpStream,
    text: String,
}

impl Stream {
    /// What came up to and with a mark.
    pub async fn read_until(&mut self, mark: &str) -> String {
        loop {
            if let Some(at) = self.text.find(mark) {
                let rest = self.text.split_off(at + mark.len());
                return std::mem::replace(&mut self.text, rest);
            }
            let mut buffer = [0; 4096];
            let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer));
            let read = read.await.expect("the stream hangs").unwrap();
            assert!(read > 0, "the stream ended: {}", self.text);
            self.text += std::str::from_utf8(&buffer[..read]).unwrap();
        }
    }

    /// The next event: its id, its type and its data.
    pub async fn event(&mut self) -> (String, String, Value) {
        self.read_until("id: ").await;
        let id = self.read_until("\n").await.trim().to_owned();
        self.read_until("event: ").await;
        let event = self.read_until("\n").await.trim().to_owned();
        self.read_until("data: ").await;
        let data = self.read_until("\n\n").await;
        (id, event, serde_json::from_str(&data).unwrap())
    }

    /// Reads to the end of the stream.
    pub async fn end(mut self) -> String {
        let mut rest = Vec::new();
        let read = self.stream.read_to_end(&mut rest);
        let _ = tokio::time::timeout(PATIENCE, read).await.expect("the stream hangs");
        self.text + &String::from_utf8_lossy(&rest)
    }
}

/// Splits an answer and joins its chunks.
pub fn parse(bytes: &[u8]) -> Option<Response> {
    let at = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = bytes[at + 4..].to_vec();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(&body)? } else { body };
    Some(Response { status, head, body })
}

fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let at = bytes.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..at]).ok()?, 16).ok()?;
        let chunk = bytes.get(at + 2..at + 2 + size)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunk);
        bytes = &bytes[at + 4 + size..];
    }
}
