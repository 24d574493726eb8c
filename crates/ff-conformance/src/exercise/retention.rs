//! Finished executions are forgotten by age or by number; live ones never.

use ff_core::contracts::EventType;
use ff_core::engine::EngineConfig;
use ff_core::operations::timer::Retention;
use ff_core::state::PublicState;
use ff_core::types::ExecutionId;

use super::{Fixture, code, item};

pub const HOUR_MS: u64 = 60 * 60 * 1000;

pub fn by_age_config() -> EngineConfig {
    let retention = Retention { max_age_ms: Some(HOUR_MS), max_finished: None };
    EngineConfig { retention, ..EngineConfig::default() }
}

pub fn by_count_config() -> EngineConfig {
    let retention = Retention { max_age_ms: None, max_finished: Some(3) };
    EngineConfig { retention, ..EngineConfig::default() }
}

async fn exists(f: &Fixture, id: &ExecutionId) -> bool {
    f.backend.describe_execution(id).await.unwrap().is_some()
}

async fn finished(f: &Fixture) -> ExecutionId {
    let (id, handle) = f.start(item().payload(b"in".to_vec())).await;
    f.backend.complete(&handle, Some(vec![1; 100_000])).await.unwrap();
    id
}

pub async fn by_age(f: &Fixture) {
    let keyed = || item().idempotency_key("key");
    let (old, handle) = f.start(keyed()).await;
    f.backend.complete(&handle, None).await.unwrap();
    f.advance(HOUR_MS / 2).await;
    let young = finished(f).await;
    f.advance(HOUR_MS / 2 - 1).await;
    assert!(exists(f, &old).await);
    f.advance(1).await;
    assert!(!exists(f, &old).await && exists(f, &young).await);
    assert_eq!(code(&f.backend.history(&old, 0, 10).await), "not_found");
    assert_eq!(code(&f.backend.result(&old).await), "not_found");
    assert_eq!(code(&f.backend.complete(&handle, None).await), "not_found");
    let again = f.submit(keyed()).await;
    assert_ne!(again, old, "its key went with it");
    f.advance(HOUR_MS / 2).await;
    assert!(!exists(f, &young).await);
    let counts = f.backend.counts().await.unwrap();
    assert_eq!(counts[0].counts.len(), 1, "nothing finished is left: {counts:?}");
}

pub async fn by_count(f: &Fixture) {
    let mut all = Vec::new();
    for _ in 0..6 {
        all.push(finished(f).await);
        f.advance(1).await;
    }
    let mut kept = Vec::new();
    for id in &all {
        kept.push(exists(f, id).await);
    }
    assert_eq!(kept, [false, false, false, true, true, true]);
}

pub async fn live_history_stays(f: &Fixture) {
    let waiting = f.submit(item()).await;
    let claimed = f.claim().await;
    for _ in 0..10 {
        f.advance(HOUR_MS).await;
        if f.state(&waiting).await == PublicState::Waiting {
            f.claim().await;
        }
    }
    assert_eq!(claimed.execution_id, waiting);
    let versions: Vec<_> = f.history(&waiting).await.iter().map(|event| event.version).collect();
    let expected: Vec<_> = (1..=versions.len() as u64).collect();
    assert_eq!(versions, expected, "a live execution keeps its whole history");
    assert_eq!(f.events(&waiting).await[0], EventType::Submitted);
    f.cancel_execution(&waiting).await.unwrap();
    f.advance(HOUR_MS - 1).await;
    assert!(exists(f, &waiting).await, "its age counts from its end");
    f.advance(1).await;
    assert!(!exists(f, &waiting).await);
}
