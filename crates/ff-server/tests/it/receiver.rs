//! A receiver of webhooks on a real socket, which answers as it is told to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub struct Receiver {
    pub address: SocketAddr,
    /// Whoever holds it keeps senders waiting for their answers.
    pub gate: Arc<tokio::sync::Mutex<()>>,
    answers: Arc<Mutex<VecDeque<String>>>,
    received: mpsc::UnboundedReceiver<Received>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Received {
    pub head: String,
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().unwrap_or_else(|| panic!("{name} is missing: {}", self.head)).1.trim()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The type of the event without its frame.
    pub fn event(&self) -> String {
        self.json()["data"]["event_type"].as_str().unwrap().to_owned()
    }
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, received) = mpsc::unbounded_channel();
        let answers: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let gate: Arc<tokio::sync::Mutex<()>> = Arc::default();
        let (queue, doorman) = (answers.clone(), gate.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, queue, gate) = (seen.clone(), queue.clone(), doorman.clone());
                tokio::spawn(async move {
                    let mut stream = stream;
                    if let Some(request) = read(&mut stream).await {
                        let _ = seen.send(request);
                        drop(gate.lock().await);
                        let answer = queue.lock().unwrap().pop_front();
                        let answer = answer.unwrap_or_else(|| "204 No Content".to_owned());
                        let answer = format!("HTTP/1.1 {answer}\r\nconnection: close\r\n\r\n");
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                });
            }
        });
        Self { address, gate, answers, received }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The next requests are answered so: a status line, perhaps with headers.
    pub fn answer(&self, answers: &[&str]) {
        self.answers.lock().unwrap().extend(answers.iter().map(|text| (*text).to_owned()));
    }

    pub async fn next(&mut self) -> Received {
        let next = tokio::time::timeout(Duration::from_secs(20), self.received.recv());
        next.await.expect("nothing was delivered").unwrap()
    }

    pub fn try_next(&mut self) -> Option<Received> {
        self.received.try_recv().ok()
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        let at = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(at) = at {
            let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let length = head.lines().filter_map(|line| line.split_once(": "));
            let mut length = length.filter(|(key, _)| key.eq_ignore_ascii_case("content-length"));
            let length: usize = length.next().map_or(0, |(_, value)| value.parse().unwrap());
            if bytes.len() >= at + 4 + length {
                return Some(Received { head, body: bytes[at + 4..at + 4 + length].to_vec() });
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
}
