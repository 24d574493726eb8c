//! Bodies that never come or come byte by byte, on every route, with and without a token.

use std::net::SocketAddr;
use std::time::Duration;

use ff_server::{Access, Config, Route};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::server::{ROOT, Server, at, claim, config};
use crate::walk;

/// Slow clients come from an address of their own, as they would outside of a test.
const ADDRESS: [u8; 4] = [127, 0, 0, 66];
const ANNOUNCED: usize = 20;
const DRIP: Duration = Duration::from_millis(40);
/// Long enough for a slow machine, short enough to notice a hang.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug)]
enum Habit {
    /// Announces a body and sends none of it.
    Open,
    /// Sends the body byte by byte.
    Slow,
}

/// Sends a request in that way, and waits until the server says something or closes.
async fn ended(server: SocketAddr, head: String, habit: Habit) -> String {
    let exchange = async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((ADDRESS, 0).into()).unwrap();
        let Ok(mut stream) = socket.connect(server).await else { return String::new() };
        let _ = stream.write_all(head.as_bytes()).await;
        if let Habit::Slow = habit {
            for _ in 0..ANNOUNCED {
                tokio::time::sleep(DRIP).await;
                if stream.write_all(b" ").await.is_err() {
                    break;
                }
            }
        }
        answer(&mut stream).await
    };
    let answered = tokio::time::timeout(PATIENCE, exchange).await;
    answered.unwrap_or_else(|_| panic!("{habit:?} is held open: {head}"))
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 64];
    let read = stream.read(&mut bytes).await.unwrap_or_default();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

fn head(route: &Route, token: Option<&str>) -> String {
    let mut head = format!("{} {} HTTP/1.1\r\nhost: x\r\n", route.method, walk::address(route));
    if let Some(token) = token {
        head += &format!("authorization: Bearer {token}\r\n");
    }
    head + &format!("content-type: application/json\r\ncontent-length: {ANNOUNCED}\r\n\r\n")
}

#[tokio::test]
async fn slow_bodies_on_every_route_keep_no_other_request_waiting() {
    let quick = Duration::from_millis(500);
    let settings = Config { header_timeout: quick, body_idle: quick, ..config() };
    let server = Server::start_with(settings).await;
    let mut slow = Vec::new();
    for route in ff_server::table() {
        for token in [None, Some("ff_wrong"), Some(ROOT)] {
            for habit in [Habit::Open, Habit::Slow] {
                let head = head(&route, token);
                let shown = format!("{habit:?} {} {} {token:?}", route.method, route.path);
                let ending = ended(server.client.address, head, habit);
                let may_succeed = token == Some(ROOT) || route.access == Access::Public;
                slow.push((shown, may_succeed, tokio::spawn(ending)));
            }
        }
    }
    // All of this is answered while they are at it.
    while slow.iter().any(|(_, _, one)| !one.is_finished()) {
        server.client.get("/livez").await.expect(200);
        server.client.get("/readyz").await.expect(200);
        let id = server.submit("honest", json!(1)).await;
        server.client.get(&at(&id)).await.expect(200);
        let claimed = server.client.post("/v1/claims", claim("honest")).await.expect(200);
        assert_eq!(claimed["executions"][0]["execution_id"], id);
    }
    for (shown, may_succeed, one) in slow {
        let answer = one.await.unwrap();
        assert!(!answer.starts_with("HTTP/1.1 500"), "{shown}: {answer}");
        assert!(may_succeed || !answer.starts_with("HTTP/1.1 2"), "{shown}: {answer}");
    }
    server.stop().await;
}
