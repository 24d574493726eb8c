//! Clients that want to harm a server: they open much and send little, or send much at once. The
//! server answers probes and honest requests all the while, and its memory stays bounded.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::command;

const ROOT: &str = "ff_attack-root-token-0123456789abcdef012345";
/// Long enough for a slow machine, short enough to notice a hang.
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1024 * 1024;
/// What the process may ever have had in memory.
const MOST: usize = 256 * MIB;
/// Where attackers come from, and where honest clients do: both are this machine.
const ATTACKER: [u8; 4] = [127, 0, 0, 2];
const HONEST: [u8; 4] = [127, 0, 0, 1];

/// `flowfabric serve` in a folder of its own.
struct Server {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().to_str().expect("a plain path");
        let args = ["serve", "--listen", "127.0.0.1:0", "--data", data, "--log", "off"];
        let mut child = command::command(&args, &[("FF_ROOT_TOKEN", ROOT)])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut lines = BufReader::new(child.stderr.take().expect("its stderr")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ")?.split(';').next()?.parse().ok());
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address.expect("it says where it is"), _folder: folder }
    }

    /// The most that the process has had in memory, in bytes.
    fn peak(&self) -> usize {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
        let kib = line.trim().trim_end_matches("kB").trim();
        kib.parse::<usize>().expect("a number") * 1024
    }

    async fn connect(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from((from, 0))).expect("an address of this machine");
        socket.connect(self.address).await.expect("the server accepts")
    }

    /// Sends the head of a request and some of its body, and keeps the connection.
    async fn open(&self, target: &str, token: &str, length: usize, sent: &[u8]) -> TcpStream {
        let mut stream = self.connect(ATTACKER).await;
        let _ = stream.write_all(&request(target, token, length)).await;
        // A server that refuses early may close before everything is sent.
        let _ = stream.write_all(sent).await;
        stream
    }

    /// One whole exchange: the status and the body.
    async fn ask(&self, target: &str, token: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let exchange = async {
            let mut stream = self.connect(HONEST).await;
            let _ = stream.write_all(&request(target, token, body.len())).await;
            let _ = stream.write_all(body).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            answer
        };
        let answer = tokio::time::timeout(PATIENCE, exchange).await.expect("the server hangs");
        let text = String::from_utf8_lossy(&answer);
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.as_bytes().to_vec());
        (status, body.unwrap_or_default())
    }

    async fn token(&self, name: &str) -> String {
        let scopes = ["submit", "read", "work"];
        let body = json!({ "name": name, "scopes": scopes, "namespaces": ["default"] });
        let (status, made) = self.ask("POST /v1/tokens", ROOT, body.to_string().as_bytes()).await;
        assert_eq!(status, 201);
        let made: Value = serde_json::from_slice(&made).expect("JSON");
        made["token"].as_str().expect("a token").to_owned()
    }

    /// Probes are answered, and so is a request that does something.
    async fn serves(&self, token: &str, when: &str) {
        for probe in ["GET /livez", "GET /readyz"] {
            assert_eq!(self.ask(probe, "", b"").await.0, 200, "{probe} {when}");
        }
        assert_eq!(self.ask("GET /metrics", ROOT, b"").await.0, 200, "metrics {when}");
        let body = json!({ "lane_id": "l", "execution_kind": "k" }).to_string();
        let (status, answer) = self.ask("POST /v1/executions", token, body.as_bytes()).await;
        assert_eq!(status, 201, "{when}: {}", String::from_utf8_lossy(&answer));
        let peak = self.peak();
        assert!(peak < MOST, "{} MiB {when}", peak / MIB);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(target: &str, token: &str, length: usize) -> Vec<u8> {
    let mut head = format!("{target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    if !token.is_empty() {
        head += &format!("authorization: Bearer {token}\r\n");
    }
    if length > 0 {
        head += &format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    }
    (head + "\r\n").into_bytes()
}

/// A batch of submissions of so many MiB.
fn batch(mib: usize) -> Vec<u8> {
    let work = json!({ "lane_id": "l", "execution_kind": "k", "payload": "x".repeat(MIB - 100) });
    json!({ "executions": vec![work; mib] }).to_string().into_bytes()
}

#[tokio::test]
async fn open_and_slow_requests_keep_nothing_from_others() {
    let server = Server::start();
    let (attacker, honest) = (server.token("attacker").await, server.token("honest").await);
    server.serves(&honest, "at first").await;

    let mut held = Vec::new();
    let half = vec![b' '; 256 * 1024];
    for _ in 0..400 {
        held.push(server.open("POST /v1/signals", "", 2 * MIB - 1, &half).await);
    }
    for _ in 0..200 {
        held.push(server.open("GET /livez", "", 10, b"{").await);
        held.push(server.open("POST /approve/x/y", "", 2 * MIB, b"{").await);
    }
    server.serves(&honest, "while bodies without a token are open").await;
    held.clear();

    for _ in 0..700 {
        held.push(server.open("POST /v1/executions", &attacker, 2 * MIB - 1, &half).await);
    }
    server.serves(&honest, "while a token has many bodies open").await;
    for _ in 0..300 {
        held.push(server.open("POST /v1/executions", &attacker, 10, b"{").await);
    }
    server.serves(&honest, "while a token has more bodies open than it may").await;
    held.clear();

    for _ in 0..1_300 {
        let mut stream = server.connect(ATTACKER).await;
        let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nx: ").await;
        let _ = stream.write_all(&half[..20_000]).await;
        held.push(stream);
    }
    server.serves(&honest, "while heads do not end").await;
}

#[tokio::test]
async fn large_bodies_at_once_take_turns() {
    let server = Server::start();
    let (attacker, honest) = (server.token("attacker").await, server.token("honest").await);
    let large = batch(15);
    let send = async || {
        loop {
            let (status, answer) = server.ask("POST /v1/executions/batch", &attacker, &large).await;
            match status {
                200 | 201 => return,
                // It has been told to come back.
                429 | 503 | 0 => tokio::task::yield_now().await,
                _ => panic!("{status}: {}", String::from_utf8_lossy(&answer)),
            }
        }
    };
    let all = futures_util::future::join_all((0..24).map(|_| send()));
    let beside = async {
        for _ in 0..3 {
            server.serves(&honest, "while large bodies are sent").await;
        }
    };
    tokio::join!(all, beside);
    server.serves(&honest, "after large bodies").await;
}

/// Bodies of a few bytes a value, which take many times their size once they are understood.
fn dense() -> Vec<(&'static str, Vec<u8>)> {
    let fill = |item: &str| vec![item; 15 * MIB / (item.len() + 1)].join(",");
    let names = (0..15 * MIB / 13).map(|at| format!("\"{at:07}\":1")).collect::<Vec<_>>().join(",");
    let work = r#"{"lane_id":"l","execution_kind":"k"}"#;
    let node = format!(r#"{{"name":"n","work":{work}}}"#);
    let words = (0..15 * MIB / 10).map(|at| format!("\"{at:07}\"")).collect::<Vec<_>>().join(",");
    vec![
        ("POST /v1/executions/batch", format!(r#"{{"executions":[{}]}}"#, fill(work))),
        ("POST /v1/leases/batch", {
            let progress = r#"{"progress":{"handle":""}}"#;
            format!(r#"{{"operations":[{}]}}"#, fill(progress))
        }),
        ("POST /v1/flows", format!(r#"{{"nodes":[{}]}}"#, fill(&node))),
        ("POST /v1/flows", {
            format!(r#"{{"nodes":[{node}],"edges":[{}]}}"#, fill(r#"{"from":"n","to":"m"}"#))
        }),
        ("POST /v1/executions/batch", {
            let tagged = work.replace('}', r#","tags":{"#);
            format!(r#"{{"executions":[{tagged}{}}}}}]}}"#, names.replace(":1", ":\"\""))
        }),
        ("POST /v1/executions/batch", {
            let paid = work.replace('}', r#","payload":{"#);
            format!(r#"{{"executions":[{paid}{names}}}}}]}}"#)
        }),
        ("POST /v1/executions/batch", {
            let routed = work
                .replace('}', r#","policy":{"routing_requirements":{"required_capabilities":["#);
            format!(r#"{{"executions":[{routed}{words}]}}}}}}]}}"#)
        }),
    ]
    .into_iter()
    .map(|(target, body)| (target, body.into_bytes()))
    .collect()
}

#[tokio::test]
async fn bodies_do_not_grow_without_bound_when_they_are_read() {
    let server = Server::start();
    let honest = server.token("honest").await;
    let mut attackers = Vec::new();
    for at in 0..2 {
        attackers.push(server.token(&format!("attacker {at}")).await);
    }
    for (target, body) in dense() {
        let all = attackers.iter().map(|token| server.ask(target, token, &body));
        let answers = futures_util::future::join_all(all).await;
        for (status, answer) in answers {
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(matches!(status, 0 | 200 | 400..500 | 503), "{target}: {status} {answer}");
        }
        server.serves(&honest, &format!("after dense bodies for {target}")).await;
    }
}
