//! Operations that share a transaction see what those before them have done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ff_conformance::exercise::claim_from;
use ff_core::contracts::{SetTagsArgs, Submission};
use ff_core::engine::EngineConfig;
use ff_core::engine::clock::ManualClock;
use ff_core::engine_backend::EngineBackend;
use ff_core::operations::execution::SetTags;
use ff_core::operations::timer::{Retain, Retention};
use ff_core::store::memory::MemoryBackend;
use ff_core::store::{Batch, Job};
use tokio::sync::oneshot;

#[tokio::test]
async fn what_was_forgotten_is_gone_for_the_next_operation() {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let config = EngineConfig { retention: Retention::FOREVER, ..EngineConfig::default() };
    let backend = MemoryBackend::new(clock.clone(), config);
    let outcome = backend.submit(vec![Submission::new("lane", "kind")]).await.unwrap().remove(0);
    let id = outcome.execution_id().unwrap().clone();
    let claimed = backend.claim_many(claim_from("lane")).await.unwrap().remove(0);
    backend.complete(&claimed.handle, None).await.unwrap();
    clock.advance(Duration::from_secs(60));

    let old = Retention { max_age_ms: Some(1_000), max_finished: None };
    let (retained, _) = oneshot::channel();
    let (tagged, mut answer) = oneshot::channel();
    let tags = BTreeMap::from([("a.b".to_owned(), Some("c".to_owned()))]);
    let tag = SetTags { args: SetTagsArgs { execution_id: id.clone(), tags } };
    let mut batch = Batch::new(vec![
        Job::new(Retain { scan: old.scan(100).unwrap() }, None, retained),
        Job::new(tag, None, tagged),
    ]);
    backend.store().transact_now(&mut batch, true).unwrap();
    batch.answer();
    assert_eq!(answer.try_recv().unwrap().unwrap_err().code(), "not_found");
    assert!(backend.describe_execution(&id).await.unwrap().is_none());
}
