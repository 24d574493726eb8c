//! Server-sent events: one-way, resumable, readable with curl.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tokio::time::Interval;

use crate::gate::Authorized;
use crate::refusal::{Answered, Refusal};
use crate::state::{State, StreamPlace};

/// How often a silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Where a stream's items come from.
pub trait Source: Send + 'static {
    /// The next one; waits for it, and loses nothing if it is dropped before. `None` means that
    /// there will be no more.
    fn next(&mut self) -> impl Future<Output = Answered<Option<Item>>> + Send;
}

/// One event of a stream.
pub struct Item {
    /// What `Last-Event-ID` resumes after.
    pub id: String,
    pub event: &'static str,
    pub data: String,
}

impl Item {
    pub fn new(id: String, event: &'static str, data: &impl Serialize) -> Answered<Self> {
        let data = serde_json::to_string(data);
        let data = data.map_err(|error| Refusal::new("internal", error.to_string()))?;
        Ok(Self { id, event, data })
    }

    fn text(&self) -> Bytes {
        let Self { id, event, data } = self;
        format!("id: {id}\nevent: {event}\ndata: {data}\n\n").into()
    }
}

struct Streaming<S> {
    source: S,
    state: Arc<State>,
    door: Authorized,
    /// Goes on whether events come or not: a busy stream must not outlive its token either.
    checks: Interval,
    _place: StreamPlace,
    ended: bool,
}

/// A body that ends when the source does, when the server closes or when the token is not good any
/// more. A client that comes back with the last id misses nothing.
pub fn body<S: Source>(state: &Arc<State>, door: &Authorized, source: S) -> Answered<Body> {
    let place = state.open_stream(door.principal())?;
    let (state, door, checks) = (state.clone(), door.clone(), state.gate.checks());
    let streaming = Streaming { source, state, door, checks, _place: place, ended: false };
    let hello = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(b":\n\n"))]);
    let items = stream::unfold(streaming, |mut streaming| async move {
        let bytes = streaming.next_bytes().await?;
        Some((Ok(bytes), streaming))
    });
    Ok(Body::from_stream(stream::StreamExt::chain(hello, items)))
}

impl<S: Source> Streaming<S> {
    async fn next_bytes(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let closing = self.state.closing.clone();
        let mut silence = pin!(tokio::time::sleep(KEEP_ALIVE));
        loop {
            tokio::select! {
                biased;
                () = closing.cancelled() => return None,
                _ = self.checks.tick() => {
                    if !self.state.gate.is_still_good(self.door.principal()).await {
                        return None;
                    }
                }
                next = self.source.next() => return match next {
                    Ok(item) => item.map(|item| item.text()),
                    Err(refusal) => {
                        self.ended = true;
                        let problem = serde_json::to_string(&refusal.problem(None)).ok()?;
                        Some(format!("event: problem\ndata: {problem}\n\n").into())
                    }
                },
                () = &mut silence => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }
}
