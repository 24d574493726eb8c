//! A caller that is confined to one namespace cannot see or touch another.

use std::time::Duration;

use ff_core::contracts::{
    EventFilter, FailureClass, ListExecutionsArgs, RenewOutcome, SetTagsArgs, SubmitOutcome,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{EngineBackend, Namespaced};
use ff_core::types::{LaneId, Namespace};

use super::{Fixture, cancel_args, claim_args, code, create_args, failure, item, new_id};

fn confined(f: &Fixture, namespace: &str) -> Namespaced<dyn EngineBackend> {
    Namespaced::new(f.backend.clone(), Namespace::new(namespace))
}

/// The same caller behind the fixture's short words.
fn as_fixture(f: &Fixture, namespace: &str) -> Fixture {
    Fixture { backend: std::sync::Arc::new(confined(f, namespace)), clock: f.clock.clone() }
}

pub async fn reads_see_nothing_foreign(f: &Fixture) {
    let (theirs, _) = f.start(item().namespace("theirs").payload(b"secret".to_vec())).await;
    let mine = f.submit(item().namespace("mine")).await;
    let me = confined(f, "mine");
    assert!(me.describe_execution(&theirs).await.unwrap().is_none());
    assert!(me.payload(&theirs).await.unwrap().is_none());
    assert_eq!(code(&me.result(&theirs).await), "not_found");
    assert_eq!(code(&me.history(&theirs, 0, 10).await), "not_found");
    assert_eq!(code(&me.explain(&theirs).await), "not_found");
    assert!(me.describe_execution(&mine).await.unwrap().is_some());

    let page = me.list_executions(ListExecutionsArgs::default()).await.unwrap();
    assert_eq!(page.executions.len(), 1);
    assert_eq!(page.executions[0].execution_id, mine);
    let namespace = Some(Namespace::new("theirs"));
    let asked = ListExecutionsArgs { namespace: namespace.clone(), ..Default::default() };
    assert_eq!(code(&me.list_executions(asked).await), "invalid_input");
    let counts = me.counts().await.unwrap();
    assert_eq!(counts.len(), 1);
    assert_eq!(counts[0].namespace, Namespace::new("mine"));

    let mut log = me.subscribe(EventFilter::default(), StartAt::Oldest).await.unwrap();
    let event = log.try_next().await.unwrap().unwrap();
    assert_eq!(event.execution_id, Some(mine));
    assert!(log.try_next().await.unwrap().is_none());
    let filter = EventFilter { namespace, ..EventFilter::default() };
    assert_eq!(code(&me.subscribe(filter, StartAt::Oldest).await), "invalid_input");
}

pub async fn writes_reach_nothing_foreign(f: &Fixture) {
    let (active, handle) = f.start(item().namespace("theirs")).await;
    let waiting = f.submit(item().namespace("theirs").priority(9)).await;
    let before = (f.picture(&active).await, f.picture(&waiting).await);
    let me = confined(f, "mine");
    let my = as_fixture(f, "mine");
    assert!(me.claim_many(claim_args()).await.unwrap().is_empty(), "foreign work was handed out");
    for id in [&active, &waiting] {
        let tags = [("a.b".to_owned(), Some("c".to_owned()))].into();
        let tags = SetTagsArgs { execution_id: id.clone(), tags };
        for answer in [
            code(&me.cancel_execution(cancel_args(id, f.now())).await),
            code(&my.revoke(id).await),
            code(&my.change_priority(id, 1).await),
            code(&my.replay(id).await),
            code(&my.reschedule(id, 1).await),
            code(&me.set_tags(tags).await),
        ] {
            assert_eq!(answer, "not_found");
        }
    }
    for answer in [
        code(&me.progress(&handle, Some(1), None).await),
        code(&me.complete(&handle, None).await),
        code(&me.fail(&handle, failure(FailureClass::Fatal)).await),
        code(&me.cancel(&handle, "").await),
        code(&me.delay(&handle, Duration::ZERO).await),
    ] {
        assert_eq!(answer, "not_found");
    }
    let renewed = me.renew_many(std::slice::from_ref(&handle)).await.unwrap();
    assert!(matches!(&renewed[0], RenewOutcome::Lost(error) if error.code() == "not_found"));
    assert_eq!((f.picture(&active).await, f.picture(&waiting).await), before);

    // Its own work behind foreign work is found all the same.
    let mine = my.submit(item().namespace("mine")).await;
    assert_eq!(my.claim().await.execution_id, mine);
}

pub async fn keys_are_apart(f: &Fixture) {
    let keyed = |namespace: &str| item().namespace(namespace).idempotency_key("key");
    let theirs = f.submit(keyed("theirs")).await;
    let mine = f.submit(keyed("mine")).await;
    assert_ne!(theirs, mine);
    let me = confined(f, "mine");
    let outcomes = me.submit(vec![keyed("mine"), keyed("theirs")]).await.unwrap();
    assert_eq!(outcomes[0].execution_id(), Some(&mine));
    assert!(matches!(&outcomes[1], SubmitOutcome::Refused(e) if e.code() == "invalid_input"));
    let mut foreign = create_args(&new_id(), f.now());
    foreign.namespace = Namespace::new("theirs");
    assert_eq!(code(&me.create_execution(foreign).await), "invalid_input");
    let taken = me.submit(vec![item().namespace("mine").id(theirs)]).await.unwrap();
    assert!(matches!(&taken[0], SubmitOutcome::Refused(e) if e.code() == "execution_id_reused"));
    assert_eq!(f.backend.list_lanes().await.unwrap()[0].lane_id, LaneId::new(super::LANE));
}
