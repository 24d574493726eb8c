//! What attempts say is kept in order, as it was said, as long as the policy wants.

use ff_core::backend::Handle;
use ff_core::contracts::{
    AppendFramesArgs, AppendFramesOutcome, FrameId, FrameInput, FrameMode, ReadStreamArgs,
    StreamCursor, StreamPage, Submission, Visibility,
};
use ff_core::engine_backend::{Namespaced, StreamOperations};
use ff_core::engine_error::EngineError;
use ff_core::limits;
use ff_core::policy::{ExecutionPolicy, StreamPolicy};
use ff_core::types::{ExecutionId, Namespace};
use serde_json::{Value, json};
use uuid::Uuid;

use super::retention::HOUR_MS;
use super::{Fixture, LEASE_MS, code, item};

pub fn text(text: impl Into<String>) -> FrameInput {
    FrameInput::new("text", text.into())
}

pub async fn say(
    f: &Fixture,
    handle: &Handle,
    frames: Vec<FrameInput>,
) -> Result<AppendFramesOutcome, EngineError> {
    f.backend.append_frames(handle, AppendFramesArgs { frames, append_id: None }).await
}

pub fn read_args(id: &ExecutionId) -> ReadStreamArgs {
    ReadStreamArgs::new(id.clone())
}

pub async fn read(f: &Fixture, args: ReadStreamArgs) -> StreamPage {
    f.backend.read_stream(args).await.unwrap()
}

pub fn after(attempt_index: u32, sequence: u64) -> StreamCursor {
    StreamCursor::After(FrameId { attempt_index, sequence })
}

pub fn texts(page: &StreamPage) -> Vec<String> {
    let frames = page.frames.iter();
    frames.map(|frame| String::from_utf8_lossy(&frame.payload).into_owned()).collect()
}

fn keeps(policy: StreamPolicy) -> Submission {
    item().policy(ExecutionPolicy { stream_policy: policy, ..ExecutionPolicy::default() })
}

pub async fn numbered(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let empty = read(f, read_args(&id)).await;
    assert_eq!((empty.frames.len(), empty.next, empty.closed), (0, after(0, 0), None));
    f.advance(5_000).await;
    let first = say(f, &handle, vec![text("a"), text("b")]).await.unwrap();
    let id_of = |sequence| FrameId { attempt_index: 0, sequence };
    assert_eq!((first.first, first.last, first.frame_count), (id_of(1), id_of(2), 2));
    assert_eq!(first.lease_expires_at, f.now().after_ms(u64::from(LEASE_MS)));
    assert_eq!(f.snapshot(&id).await.lease.unwrap().expires_at, first.lease_expires_at);
    let second = say(f, &handle, vec![text("c")]).await.unwrap();
    assert_eq!((second.first, second.last, second.frame_count), (id_of(3), id_of(3), 3));
    let page = read(f, read_args(&id)).await;
    assert_eq!(texts(&page), ["a", "b", "c"]);
    let ids: Vec<_> = page.frames.iter().map(|frame| frame.id).collect();
    assert_eq!(ids, [id_of(1), id_of(2), id_of(3)]);
    assert_eq!(page.frames[0].at, f.now());
    assert_eq!((page.next, page.trimmed_to, page.closed), (after(0, 3), None, None));
    // Frames are no transitions.
    assert_eq!(f.snapshot(&id).await.version, 2);
}

pub async fn bytes(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let largest: Vec<u8> = every_byte.iter().copied().cycle().take(limits::FRAME_BYTES).collect();
    let frame = FrameInput {
        frame_type: "größe".into(),
        payload: every_byte,
        mode: FrameMode::BestEffort,
        encoding: Some("raw".into()),
        correlation_id: Some("call-1".into()),
    };
    let frames = vec![frame.clone(), text(""), FrameInput::new("blob", largest.clone())];
    say(f, &handle, frames).await.unwrap();
    let page = read(f, read_args(&id)).await;
    let stored = &page.frames[0];
    assert_eq!(*stored.payload, frame.payload[..]);
    assert_eq!((&stored.frame_type, stored.mode), (&frame.frame_type, frame.mode));
    assert_eq!(stored.encoding, frame.encoding);
    assert_eq!(stored.correlation_id, frame.correlation_id);
    assert!(page.frames[1].payload.is_empty());
    assert!(*page.frames[2].payload == largest[..], "a large frame changed");
}

pub async fn refused(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let before = f.picture(&id).await;
    let too_large = FrameInput::new("blob", vec![0; limits::FRAME_BYTES + 1]);
    let no_type = FrameInput::new("", b"x".to_vec());
    let summary = |payload: &str| text(payload).mode(FrameMode::Summary);
    let deep = "{\"a\":".repeat(limits::SUMMARY_DEPTH + 1) + "1" + &"}".repeat(33);
    for (frames, expected) in [
        (vec![], "invalid_input"),
        (vec![text("x"); limits::APPEND_FRAMES + 1], "invalid_input"),
        (vec![text("fine"), too_large], "payload_too_large"),
        (vec![text("x".repeat(limits::FRAME_BYTES)); 17], "payload_too_large"),
        (vec![no_type], "invalid_input"),
        (vec![summary("not json")], "invalid_input"),
        (vec![summary("[1]")], "invalid_input"),
        (vec![summary(&deep)], "invalid_input"),
    ] {
        assert_eq!(code(&say(f, &handle, frames).await), expected);
    }
    assert_eq!(f.picture(&id).await, before);
    let args = |limit, wait_ms| ReadStreamArgs { limit, wait_ms, ..read_args(&id) };
    let read = |args| f.backend.read_stream(args);
    assert_eq!(code(&read(args(limits::STREAM_PAGE + 1, 0)).await), "invalid_input");
    assert_eq!(code(&read(args(1, 30_001)).await), "invalid_input");
    let cursor = ReadStreamArgs { attempt_index: Some(1), from: after(0, 1), ..read_args(&id) };
    assert_eq!(code(&read(cursor).await), "invalid_cursor");
    assert_eq!(code(&read(read_args(&super::new_id())).await), "not_found");
    assert_eq!(code(&f.backend.read_summary(&super::new_id(), None).await), "not_found");
    let mut policy = ExecutionPolicy::default();
    policy.stream_policy.max_frames = limits::STREAM_FRAMES as u64 + 1;
    let refused = f.offer(item().policy(policy)).await;
    assert!(refused.execution_id().is_none(), "{refused:?}");
}

pub async fn summary(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    assert_eq!(f.backend.read_summary(&id, None).await.unwrap(), None);
    let patch = |patch: Value| text(patch.to_string()).mode(FrameMode::Summary);
    let first = vec![patch(json!({"done": 1, "of": 9, "now": {"file": "a"}}))];
    assert_eq!(say(f, &handle, first).await.unwrap().summary_version, Some(1));
    let started = f.now();
    f.advance(1_000).await;
    let more = vec![
        patch(json!({"done": 2, "of": null})),
        text("between"),
        patch(json!({"now": {"line": 3, "file": "__ff_null__", "nul": "a\u{0}b"}})),
    ];
    assert_eq!(say(f, &handle, more).await.unwrap().summary_version, Some(3));
    assert_eq!(say(f, &handle, vec![text("x")]).await.unwrap().summary_version, None);
    let summary = f.backend.read_summary(&id, None).await.unwrap().expect("there is one");
    let expected = json!({"done": 2, "now": {"file": null, "line": 3, "nul": "a\u{0}b"}});
    assert_eq!(summary.document, expected);
    assert_eq!((summary.version, summary.attempt_index), (3, 0));
    assert_eq!((summary.first_applied_at, summary.last_updated_at), (started, f.now()));
    let page = read(f, read_args(&id)).await;
    let modes: Vec<_> = page.frames.iter().map(|frame| frame.mode).collect();
    use FrameMode::{Durable, Summary};
    assert_eq!(modes, [Summary, Summary, Durable, Summary, Durable]);
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(f.backend.read_summary(&id, Some(0)).await.unwrap(), Some(summary));
}

pub async fn summary_limits(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let part = "x".repeat(limits::FRAME_BYTES - 64);
    let patch = |name: usize| text(json!({ name.to_string(): part }).to_string());
    let patch = |name| patch(name).mode(FrameMode::Summary);
    for name in 0..4 {
        say(f, &handle, vec![patch(name)]).await.unwrap();
    }
    let before = f.picture(&id).await;
    assert_eq!(code(&say(f, &handle, vec![patch(4)]).await), "payload_too_large");
    assert_eq!(f.picture(&id).await, before);
    assert_eq!(f.backend.read_summary(&id, None).await.unwrap().unwrap().version, 4);
    let smaller = text(json!({"0": null}).to_string()).mode(FrameMode::Summary);
    say(f, &handle, vec![smaller]).await.unwrap();
}

pub async fn trimmed(f: &Fixture) {
    let policy = StreamPolicy { max_frames: 16, ..StreamPolicy::default() };
    let (id, handle) = f.start(keeps(policy)).await;
    let mut kept = 0;
    for at in 1..=100 {
        kept = say(f, &handle, vec![text(at.to_string())]).await.unwrap().frame_count;
        assert!(kept <= 19, "{kept} frames are kept after {at}");
    }
    let oldest = 100 - kept + 1;
    let page = read(f, read_args(&id)).await;
    let place = FrameId { attempt_index: 0, sequence: oldest };
    assert_eq!(page.trimmed_to, Some(place), "a reader is told what it cannot see");
    let expected: Vec<String> = (oldest..=100).map(|at| at.to_string()).collect();
    assert_eq!(texts(&page), expected, "what is kept has no holes");
    let behind = read(f, ReadStreamArgs { from: after(0, 50), ..read_args(&id) }).await;
    assert_eq!(behind.trimmed_to, Some(place));
    let level = read(f, ReadStreamArgs { from: after(0, oldest - 1), ..read_args(&id) }).await;
    assert_eq!((level.trimmed_to, texts(&level)), (None, expected));

    // By size too, in large batches, and never more than is there.
    let policy = StreamPolicy { max_bytes: 1_000, ..StreamPolicy::default() };
    let (id, handle) = f.start(keeps(policy)).await;
    for _ in 0..30 {
        say(f, &handle, vec![text("x".repeat(10)); 30]).await.unwrap();
    }
    let page = read(f, ReadStreamArgs { limit: 1_000, ..read_args(&id) }).await;
    assert!((100..=142).contains(&page.frames.len()), "{} frames", page.frames.len());
    assert_eq!(page.next, after(0, 900));
}

pub async fn best_effort_goes_first(f: &Fixture) {
    let policy = StreamPolicy { max_early_frames: 8, ..StreamPolicy::default() };
    let (id, handle) = f.start(keeps(policy)).await;
    let token = |at: usize| text(at.to_string()).mode(FrameMode::BestEffort);
    for at in 1..=40 {
        say(f, &handle, vec![token(at)]).await.unwrap();
    }
    let early = read(f, read_args(&id)).await;
    assert!((8..=10).contains(&early.frames.len()), "{} frames", early.frames.len());
    assert_eq!(texts(&early).last().map(String::as_str), Some("40"));
    say(f, &handle, vec![text("kept")]).await.unwrap();
    for at in 42..=80 {
        say(f, &handle, vec![token(at)]).await.unwrap();
    }
    let page = read(f, read_args(&id)).await;
    let kept = texts(&page);
    assert!(kept.contains(&"kept".to_owned()), "a durable frame went before its time");
    assert_eq!(kept.len(), page.frames.len());
    assert_eq!(kept.last().map(String::as_str), Some("80"));
}

pub async fn repeated(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let args = |payload: &str, append_id| {
        let patch = text(r#"{"n":1}"#).mode(FrameMode::Summary);
        AppendFramesArgs { frames: vec![text(payload), patch], append_id: Some(append_id) }
    };
    let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let first = f.backend.append_frames(&handle, args("a", one)).await.unwrap();
    let again = f.backend.append_frames(&handle, args("a", one)).await.unwrap();
    assert_eq!(again, first);
    f.backend.append_frames(&handle, args("b", two)).await.unwrap();
    let again = f.backend.append_frames(&handle, args("b", two)).await.unwrap();
    assert_eq!((again.first.sequence, again.summary_version), (3, Some(2)));
    let page = read(f, read_args(&id)).await;
    assert_eq!(texts(&page), ["a", r#"{"n":1}"#, "b", r#"{"n":1}"#]);
    f.revoke(&id).await.unwrap();
    let late = f.backend.append_frames(&handle, args("b", two)).await;
    assert_eq!(code(&late), "execution_not_active", "a repeat does not pass the fence either");
}

pub async fn visibility(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let modes = [FrameMode::BestEffort, FrameMode::Durable, FrameMode::Summary];
    let frame = |mode| text(r#"{"a":1}"#).mode(mode);
    for _ in 0..3 {
        say(f, &handle, modes.into_iter().map(frame).collect()).await.unwrap();
    }
    let visibility = Visibility::ExcludeBestEffort;
    let args = ReadStreamArgs { visibility, limit: 5, ..read_args(&id) };
    let page = read(f, args.clone()).await;
    let seen: Vec<_> = page.frames.iter().map(|frame| frame.id.sequence).collect();
    assert_eq!(seen, [2, 3, 5, 6, 8]);
    let rest = read(f, ReadStreamArgs { from: page.next, ..args.clone() }).await;
    assert_eq!(rest.frames.len(), 1);
    say(f, &handle, vec![frame(FrameMode::BestEffort)]).await.unwrap();
    let none = read(f, ReadStreamArgs { from: rest.next, ..args }).await;
    assert_eq!((none.frames.len(), none.next, none.trimmed_to), (0, after(0, 10), None));
}

pub async fn pages(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    for at in 0..5 {
        let frames = (1..=100).map(|n| text((at * 100 + n).to_string())).collect();
        say(f, &handle, frames).await.unwrap();
    }
    f.backend.complete(&handle, None).await.unwrap();
    let mut seen = Vec::new();
    let mut args = ReadStreamArgs { limit: 150, ..read_args(&id) };
    loop {
        let page = read(f, args.clone()).await;
        seen.extend(texts(&page));
        args.from = page.next;
        if page.closed.is_some() {
            break;
        }
        assert_eq!(page.frames.len(), 150, "the end is told with the last frames only");
    }
    let expected: Vec<String> = (1..=500).map(|n| n.to_string()).collect();
    assert_eq!(seen, expected);
}

pub async fn foreign(f: &Fixture) {
    let (id, handle) = f.start(item().namespace("theirs")).await;
    say(f, &handle, vec![text("secret")]).await.unwrap();
    let me = Namespaced::new(f.backend.clone(), Namespace::new("mine"));
    assert_eq!(code(&me.read_stream(read_args(&id)).await), "not_found");
    assert_eq!(code(&me.read_summary(&id, None).await), "not_found");
    let args = AppendFramesArgs { frames: vec![text("forged")], append_id: None };
    assert_eq!(code(&me.append_frames(&handle, args).await), "not_found");
    assert_eq!(texts(&read(f, read_args(&id)).await), ["secret"]);
}

pub async fn forgotten(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let patch = text(r#"{"a":1}"#).mode(FrameMode::Summary);
    say(f, &handle, vec![text("old"), patch]).await.unwrap();
    f.backend.complete(&handle, None).await.unwrap();
    f.advance(HOUR_MS).await;
    assert_eq!(code(&f.backend.read_stream(read_args(&id)).await), "not_found");
    f.submit(item().id(id.clone())).await;
    let again = f.claim().await;
    assert!(read(f, read_args(&id)).await.frames.is_empty());
    assert_eq!(f.backend.read_summary(&id, None).await.unwrap(), None);
    let fresh = say(f, &again.handle, vec![text("new")]).await.unwrap();
    assert_eq!(fresh.first.sequence, 1);
}
