//! API tokens are kept by their hash, used, expired and revoked.

use std::time::Duration;

use ff_core::contracts::{
    Actor, CancelExecutionArgs, CreateTokenArgs, EventFilter, EventType, PauseLaneArgs, Stamp,
};
use ff_core::engine::StartAt;
use ff_core::engine_backend::{Acting, EngineBackend, Namespaced, TokenOperations};
use ff_core::types::{CancelSource, LaneId, Namespace};

use super::{Fixture, code, item};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn token(number: u8) -> CreateTokenArgs {
    CreateTokenArgs {
        hash: [number; 32],
        name: format!("token {number}"),
        scopes: vec!["read".into(), "work".into()],
        namespaces: vec!["default".into(), "späth".into()],
        created_by: "root".into(),
        expires_in: None,
    }
}

pub async fn kept_by_hash(f: &Fixture) {
    let made = f.backend.create_token(token(7)).await.unwrap();
    assert_eq!((&*made.name, made.created_at), ("token 7", f.now()));
    assert_eq!(f.backend.find_token(&[7; 32]).await.unwrap(), Some(made));
    // The same id with another hash is another token.
    let mut half = [7; 32];
    half[31] = 8;
    assert_eq!(f.backend.find_token(&half).await.unwrap(), None);
    assert_eq!(f.backend.find_token(&[8; 32]).await.unwrap(), None);
    assert_eq!(code(&f.backend.create_token(token(7)).await), "token_reused");
    let nameless = CreateTokenArgs { name: String::new(), ..token(9) };
    assert_eq!(code(&f.backend.create_token(nameless).await), "invalid_input");
    let scopeless = CreateTokenArgs { scopes: Vec::new(), ..token(9) };
    assert_eq!(code(&f.backend.create_token(scopeless).await), "invalid_input");
}

pub async fn listed_in_pages(f: &Fixture) {
    for number in 1..=5 {
        f.backend.create_token(token(number)).await.unwrap();
    }
    let first = f.backend.list_tokens(None, 3).await.unwrap();
    let rest = f.backend.list_tokens(Some(first[2].token_id), 3).await.unwrap();
    let names: Vec<_> = first.iter().chain(&rest).map(|token| &*token.name).collect();
    assert_eq!(names, ["token 1", "token 2", "token 3", "token 4", "token 5"]);
}

pub async fn used_expired_and_revoked(f: &Fixture) {
    let args = CreateTokenArgs { expires_in: Some(HOUR), ..token(1) };
    let made = f.backend.create_token(args).await.unwrap();
    assert_eq!(made.expires_at, Some(f.now().after(HOUR)));
    f.backend.touch_token(made.token_id).await.unwrap();
    let first = f.now();
    f.advance(59_000).await;
    f.backend.touch_token(made.token_id).await.unwrap();
    let found = f.backend.find_token(&[1; 32]).await.unwrap().unwrap();
    assert_eq!(found.last_used_at, Some(first), "use is noted to the minute");
    f.advance(1_000).await;
    f.backend.touch_token(made.token_id).await.unwrap();
    let found = f.backend.find_token(&[1; 32]).await.unwrap().unwrap();
    assert_eq!(found.last_used_at, Some(f.now()));
    assert!(found.is_good_at(f.now()) && !found.is_good_at(first.after(HOUR)));

    let revoked = f.backend.revoke_token(made.token_id, "me").await.unwrap();
    assert_eq!(revoked.revoked_at, Some(f.now()));
    assert!(!revoked.is_good_at(f.now()));
    f.advance(3_600_000).await;
    let again = f.backend.revoke_token(made.token_id, "you").await.unwrap();
    assert_eq!(again, revoked, "a repeat changes nothing");
    let nobody = uuid::Uuid::from_u128(1);
    assert_eq!(code(&f.backend.revoke_token(nobody, "me").await), "not_found");
    f.backend.touch_token(nobody).await.unwrap();
    let mut log = f.backend.subscribe(EventFilter::default(), StartAt::Oldest).await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = log.try_next().await.unwrap() {
        assert!(!event.details.to_string().contains("01010101010101010101010101010101010101"));
        seen.push((event.event_type, event.by));
    }
    let by = |name: &str| Some(name.to_owned());
    let expected = [(EventType::TokenCreated, by("root")), (EventType::TokenRevoked, by("me"))];
    assert_eq!(seen, expected);
}

pub async fn of_a_namespace(f: &Fixture) {
    let scoped = Namespaced::new(f.backend.clone(), Namespace::new("default"));
    let own = |number| CreateTokenArgs { namespaces: vec!["default".into()], ..token(number) };
    let both = f.backend.create_token(token(1)).await.unwrap();
    assert_eq!(code(&scoped.create_token(token(2)).await), "invalid_input");
    let made = scoped.create_token(own(2)).await.unwrap();
    assert_eq!(scoped.list_tokens(None, 2).await.unwrap().items, std::slice::from_ref(&made));
    assert_eq!(scoped.list_tokens(Some(made.token_id), 2).await.unwrap().items, []);
    assert_eq!(code(&scoped.revoke_token(both.token_id, "me").await), "not_found");
    scoped.revoke_token(made.token_id, "me").await.unwrap();
    assert_eq!(code(&scoped.find_token(&[1; 32]).await), "unavailable");
    assert_eq!(code(&scoped.touch_token(made.token_id).await), "unavailable");
}

pub async fn names(f: &Fixture) {
    let named = |number, namespaces: &[&str]| CreateTokenArgs {
        name: "ci".into(),
        namespaces: namespaces.iter().map(ToString::to_string).collect(),
        expires_in: Some(HOUR),
        ..token(number)
    };
    let first = f.backend.create_token(named(1, &["a"])).await.unwrap();
    f.backend.create_token(named(2, &["b"])).await.unwrap();
    for namespaces in [&["a"][..], &["c", "a"], &["*"]] {
        let taken = f.backend.create_token(named(3, namespaces)).await;
        assert_eq!(code(&taken), "token_name_taken", "{namespaces:?}");
    }
    f.backend.revoke_token(first.token_id, "me").await.unwrap();
    f.backend.create_token(named(3, &["a"])).await.unwrap();
    f.advance(3_600_000).await;
    f.backend.create_token(named(4, &["*"])).await.unwrap();
    let torn = CreateTokenArgs { name: "a\nb".into(), ..token(5) };
    assert_eq!(code(&f.backend.create_token(torn).await), "invalid_input");
}

/// The events of a caller's operations name it, whatever else they say.
pub async fn actors(f: &Fixture) {
    let actor = Actor {
        token_id: Some(uuid::Uuid::from_u128(7)),
        token_name: Some("ops".into()),
        remote: Some("::1".into()),
        request_id: Some("r".into()),
    };
    let worker = Actor { token_id: actor.token_id, ..Actor::default() };
    let (id, _) = f.start(item()).await;
    let operator = Acting::new(f.backend.clone(), Stamp::operator(&actor));
    let other = Acting::new(f.backend.clone(), Stamp::worker(&worker));
    let lane_id = LaneId::new("quiet");
    let (reason, by) = (String::new(), String::new());
    operator.pause_lane(PauseLaneArgs { lane_id: lane_id.clone(), reason, by }).await.unwrap();
    other.resume_lane(&lane_id, "w").await.unwrap();
    let source = CancelSource::OperatorOverride;
    let args = CancelExecutionArgs {
        execution_id: id.clone(),
        reason: "r".into(),
        source,
        lease_id: None,
        lease_epoch: None,
        attempt_id: None,
        now: f.now(),
    };
    operator.cancel_execution(args).await.unwrap();
    let told = async |audit: bool| {
        let filter = EventFilter { audit, ..EventFilter::default() };
        let mut log = f.backend.subscribe(filter, StartAt::Oldest).await.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = log.try_next().await.unwrap() {
            assert!(!event.details.to_string().contains("token_id"), "{event:?}");
            if let Some(actor) = event.actor {
                seen.push((event.event_type, event.by.unwrap_or_default(), actor));
            }
        }
        seen
    };
    let paused = (EventType::LanePaused, "ops".to_owned(), actor.clone());
    let resumed = (EventType::LaneResumed, "w".to_owned(), worker);
    let cancelled = (EventType::Cancelled, "ops".to_owned(), actor);
    assert_eq!(told(false).await, [paused.clone(), resumed, cancelled.clone()]);
    assert_eq!(told(true).await, [paused, cancelled]);
}
