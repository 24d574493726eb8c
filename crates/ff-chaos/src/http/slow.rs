//! Clients that keep a server busy without asking anything of it: bodies that never come or come
//! byte by byte, and streams that are never read.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::ROOT_TOKEN;
use super::client::Client;
use crate::history::{Recorder, Sitting};

/// An address of their own, so that a server can tell them from honest clients.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
const OF_EACH: usize = 24;
/// How long one of them holds a connection that the server does not end.
const LIFE: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(100);
const DRIP: Duration = Duration::from_millis(150);

/// How a client is slow.
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// Announces a body and sends none of it.
    OpenBody,
    /// Sends one byte after the other.
    SlowBody,
    /// Asks for a stream and reads nothing.
    SlowReader,
    /// Sends the head of a request line by line.
    SlowHead,
}

/// Opens slow connections until the process is killed; every other one with a token.
pub async fn run_until_killed(server: SocketAddr, dir: &Path, seed: u64) -> anyhow::Result<()> {
    let sitting = Sitting::next(dir, "slow");
    let url = format!("http://{server}");
    let operator = Client::new(&url, ROOT_TOKEN, Recorder::open(dir, &sitting)?)?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let token: Arc<str> = loop {
        match operator.mint(&mut rng).await {
            Some(minted) => break minted.token.into(),
            None => tokio::time::sleep(PAUSE).await,
        }
    };
    let mut running = tokio::task::JoinSet::new();
    let habits = [Habit::OpenBody, Habit::SlowBody, Habit::SlowReader, Habit::SlowHead];
    for habit in habits {
        for number in 0..OF_EACH {
            let token = token.clone();
            running.spawn(async move {
                loop {
                    let slow = dawdle(server, habit, number, &token);
                    let _ = tokio::time::timeout(LIFE, slow).await;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
    }
    running.join_next().await.context("nothing was started")?.context("a slow client panicked")
}

/// One connection; ends when the server ends it.
async fn dawdle(
    server: SocketAddr,
    habit: Habit,
    number: usize,
    token: &str,
) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    if let Habit::SlowReader = habit {
        socket.set_recv_buffer_size(4096)?;
    }
    socket.bind((ADDRESS, 0).into())?;
    let mut stream = socket.connect(server).await?;
    let token = match number % 2 {
        0 => format!("authorization: Bearer {token}\r\n"),
        _ => String::new(),
    };
    let json = "host: localhost\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n";
    match habit {
        Habit::OpenBody => {
            let path = ["/v1/signals", "/v1/executions", "/v1/claims"][number % 3];
            let head = format!("POST {path} HTTP/1.1\r\n{json}{token}\r\n");
            stream.write_all(head.as_bytes()).await?;
            end(&mut stream).await
        }
        Habit::SlowBody => {
            let head = format!("POST /v1/executions/batch HTTP/1.1\r\n{json}{token}\r\n");
            stream.write_all(head.as_bytes()).await?;
            drip(&mut stream, &[b' '; 100_000]).await
        }
        Habit::SlowReader => {
            let path = "/v1/events/stream?from=oldest&namespace=*";
            let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{token}\r\n");
            stream.write_all(head.as_bytes()).await?;
            std::future::pending().await
        }
        Habit::SlowHead => {
            let head = format!("GET /v1/executions HTTP/1.1\r\nhost: localhost\r\n{token}");
            drip(&mut stream, head.as_bytes()).await
        }
    }
}

async fn drip(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    for byte in bytes {
        stream.write_all(std::slice::from_ref(byte)).await?;
        tokio::time::sleep(DRIP).await;
    }
    Ok(())
}

/// Waits until the server has had enough.
async fn end(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}
