//! Accepting work.

use std::time::Duration;

use ff_core::contracts::{CreateExecutionResult, EventType, SubmitOutcome};
use ff_core::state::PublicState;
use ff_core::types::Namespace;

use super::{Fixture, code, create_args, item, new_id};

pub async fn outcomes(f: &Fixture) {
    let outcomes = f.backend.submit(vec![item(), item().namespace(""), item()]).await.unwrap();
    let words: Vec<_> = outcomes.iter().map(word).collect();
    assert_eq!(words, ["created", "invalid_input", "created"], "a bad item harms only itself");
}

fn word(outcome: &SubmitOutcome) -> &'static str {
    match outcome {
        SubmitOutcome::Created { .. } => "created",
        SubmitOutcome::Duplicate { .. } => "duplicate",
        SubmitOutcome::Refused(error) => error.code(),
    }
}

pub async fn created_state(f: &Fixture) {
    let mut rich = item().priority(70).tag("team.name", "blue").payload(b"in".to_vec());
    rich.creator_identity = "me".into();
    rich.payload_encoding = Some("json".into());
    let id = f.submit(rich).await;
    let seen = f.snapshot(&id).await;
    assert_eq!(seen.public_state, PublicState::Waiting);
    assert_eq!((seen.priority, seen.version), (70, 1));
    assert_eq!(seen.tags["team.name"], "blue");
    assert_eq!(seen.creator_identity, "me");
    assert_eq!(seen.payload_encoding.as_deref(), Some("json"));
    assert_eq!(seen.created_at, f.now());
    assert!(seen.attempts.is_empty() && seen.lease.is_none() && seen.started_at.is_none());
    assert_eq!(f.events(&id).await, [EventType::Submitted]);
    assert_eq!(f.backend.payload(&id).await.unwrap().as_deref(), Some(&b"in"[..]));

    let low = f.submit(item().priority(-5)).await;
    let high = f.submit(item().priority(1_000_000)).await;
    assert_eq!(f.snapshot(&low).await.priority, 0);
    assert_eq!(f.snapshot(&high).await.priority, 9_000);

    let delayed = f.offer(item().delay(Duration::from_secs(5))).await;
    let SubmitOutcome::Created { public_state: PublicState::Delayed, .. } = delayed else {
        panic!("a delay in the future means delayed, got {delayed:?}");
    };
}

pub async fn many_at_once(f: &Fixture) {
    let items = (0..10_000).map(|at| item().priority(at % 10)).collect();
    let outcomes = f.backend.submit(items).await.unwrap();
    assert_eq!(outcomes.len(), 10_000);
    assert!(outcomes.iter().all(|outcome| word(outcome) == "created"));
    let counts = f.backend.counts().await.unwrap();
    assert_eq!(counts[0].counts[&PublicState::Waiting], 10_000);
}

pub async fn chosen_ids(f: &Fixture) {
    let id = new_id();
    assert_eq!(f.submit(item().id(id.clone())).await, id);
    let before = f.picture(&id).await;
    let again = f.offer(item().id(id.clone()).payload(b"other".to_vec())).await;
    assert_eq!(word(&again), "duplicate");
    assert_eq!(again.execution_id(), Some(&id));
    let foreign = f.offer(item().id(id.clone()).namespace("other")).await;
    assert_eq!(word(&foreign), "execution_id_reused");
    assert_eq!(f.picture(&id).await, before);

    let twice = new_id();
    let both = vec![item().id(twice.clone()), item().id(twice)];
    let outcomes = f.backend.submit(both).await.unwrap();
    assert_eq!(outcomes.iter().map(word).collect::<Vec<_>>(), ["created", "duplicate"]);
}

pub async fn create_is_claimable(f: &Fixture) {
    let id = new_id();
    let created = f.backend.create_execution(create_args(&id, f.now())).await.unwrap();
    let public_state = PublicState::Waiting;
    assert_eq!(created, CreateExecutionResult::Created { execution_id: id.clone(), public_state });
    let again = f.backend.create_execution(create_args(&id, f.now())).await.unwrap();
    assert_eq!(again, CreateExecutionResult::Duplicate { execution_id: id.clone() });
    let mut foreign = create_args(&id, f.now());
    foreign.namespace = Namespace::new("other");
    let refused = f.backend.create_execution(foreign).await;
    assert_eq!(code(&refused), "execution_id_reused");
    assert_eq!(code(&f.change_priority(&id, 5).await), "execution_not_eligible");
    assert_eq!(f.claim().await.execution_id, id);

    let later = new_id();
    let mut args = create_args(&later, f.now());
    args.delay_until = Some(f.now().after_ms(1_000));
    args.execution_deadline_at = Some(f.now().after_ms(5_000));
    f.backend.create_execution(args).await.unwrap();
    assert_eq!(f.state(&later).await, PublicState::Delayed);
    f.advance(1_000).await;
    assert_eq!(f.state(&later).await, PublicState::Waiting);
    f.advance(4_000).await;
    assert_eq!(f.state(&later).await, PublicState::Expired);
}
