//! What attempts say while they run, as pages and as a stream that can be resumed.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, Method};
use ff_api::{AppendFramesRequest, Scope, Span};
use ff_core::contracts::{
    AppendFramesArgs, AppendFramesOutcome, Frame, ReadStreamArgs, StreamCursor, StreamPage,
    StreamSummary, Visibility,
};
use ff_core::engine_backend::StreamOperations;
use ff_core::limits::STREAM_WAIT;
use ff_core::types::ExecutionId;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::call::{Answer, Call};
use crate::gate::Authorized;
use crate::refusal::{Answered, Refusal};
use crate::route::{MIB, Nothing, Route};
use crate::sse::{self, Item, Source};
use crate::wire;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long one look for frames waits; the stream looks again.
const LOOK: Duration = Duration::from_secs(10);

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, "/v1/leases/frames"),
            ("append_frames", "Says something to whoever follows the attempt; keeps the lease."),
            Scope::Work,
            append,
        )
        .body(4 * MIB),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/stream"),
            ("read_stream", "Frames of one attempt; waits for the next ones if asked to."),
            Scope::Read,
            read,
        )
        .waits(),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/stream/tail"),
            ("tail_stream", "Frames as they come; Last-Event-ID resumes."),
            Scope::Read,
            tail,
        )
        .streams(),
        Route::new(
            (Method::GET, "/v1/executions/{execution_id}/stream/summary"),
            ("read_summary", "What the summary frames of an attempt amount to."),
            Scope::Read,
            summary,
        ),
    ]
}

async fn append(call: Call<Nothing, AppendFramesRequest>) -> Answered<Answer<AppendFramesOutcome>> {
    let handle = wire::handle(&call.body.handle)?;
    let AppendFramesRequest { frames, append_id, .. } = call.body;
    let args = AppendFramesArgs { frames, append_id };
    Ok(Answer::json(call.door.backend().append_frames(&handle, args).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    /// The attempt of `from` if it names one, or the current attempt, when absent.
    attempt_index: Option<u32>,
    /// `start`, `end`, or the id of the last frame that was seen.
    from: Option<String>,
    /// 1 to 1,000; 100 if it is absent.
    limit: Option<usize>,
    /// Leaves out frames that may be trimmed early.
    #[serde(default)]
    durable_only: bool,
    /// How long to wait for the first frame, at most 30 seconds. Of no use to a tail.
    #[param(value_type = Option<String>)]
    wait: Option<Span>,
}

impl StreamQuery {
    fn args(&self, execution_id: ExecutionId, last: Option<&str>) -> Answered<ReadStreamArgs> {
        let from = last.or(self.from.as_deref());
        let from = from.map(str::parse::<StreamCursor>).transpose()?.unwrap_or_default();
        let wait = self.wait.unwrap_or_default().0.min(STREAM_WAIT);
        Ok(ReadStreamArgs {
            execution_id,
            attempt_index: self.attempt_index,
            from,
            limit: wire::limit(self.limit, 100)?,
            visibility: match self.durable_only {
                true => Visibility::ExcludeBestEffort,
                false => Visibility::All,
            },
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

async fn read(call: Call<StreamQuery, Nothing>) -> Answered<Answer<StreamPage>> {
    let args = call.query.args(call.execution_id()?, None)?;
    let quick = ReadStreamArgs { wait_ms: 0, ..args.clone() };
    let backend = call.door.backend();
    let page = tokio::select! {
        page = backend.read_stream(args) => page?,
        () = call.state.closing.cancelled() => backend.read_stream(quick).await?,
    };
    Ok(Answer::json(page))
}

async fn tail(call: Call<StreamQuery, Nothing>) -> Answered<Answer<Nothing>> {
    let last = last_event_id(&call.headers);
    let mut args = call.query.args(call.execution_id()?, last)?;
    // Whoever may not see the execution is told so before the stream begins.
    args.wait_ms = 0;
    let first = ReadStreamArgs { limit: 1, ..args.clone() };
    call.door.backend().read_stream(first).await?;
    args.wait_ms = u64::try_from(LOOK.as_millis()).unwrap_or(u64::MAX);
    let door = call.door.clone();
    let frames = Frames { door, args, ready: Vec::new().into_iter(), closed: None, over: false };
    Ok(Answer::stream(sse::body(&call.state, &call.door, frames)?))
}

fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(LAST_EVENT_ID)?.to_str().ok().filter(|value| !value.is_empty())
}

async fn summary(call: Call<StreamQuery, Nothing>) -> Answered<Answer<StreamSummary>> {
    let (id, attempt) = (call.execution_id()?, call.query.attempt_index);
    let summary = call.door.backend().read_summary(&id, attempt).await?;
    summary.map(Answer::json).ok_or_else(|| Refusal::not_found("summary"))
}

struct Frames {
    door: Authorized,
    args: ReadStreamArgs,
    ready: std::vec::IntoIter<Frame>,
    closed: Option<Item>,
    over: bool,
}

impl Source for Frames {
    async fn next(&mut self) -> Answered<Option<Item>> {
        loop {
            if let Some(frame) = self.ready.next() {
                return Item::new(frame.id.to_string(), "frame", &frame).map(Some);
            }
            if let Some(closed) = self.closed.take() {
                self.over = true;
                return Ok(Some(closed));
            }
            if self.over {
                return Ok(None);
            }
            let page = self.door.backend().read_stream(self.args.clone()).await?;
            self.args.from = page.next;
            if let Some(closed) = &page.closed {
                self.closed = Some(Item::new(page.next.to_string(), "closed", closed)?);
            }
            self.ready = page.frames.into_iter();
        }
    }
}
