//! Tokens: who has one may signal, and nobody else from outside.

use std::time::Duration;

use ff_core::condition::{Distinct, ResumeCondition};
use ff_core::contracts::{
    CreateWaitpointArgs, DeliverSignalArgs, RotateWaitpointSecretArgs, RotateWaitpointSecretResult,
    SeedWaitpointSecretResult, SignalEffect, SignalSource, SignalTarget, SuspendArgs, TokenTerms,
    WaitpointBinding,
};
use ff_core::engine_backend::{Namespaced, SuspensionOperations};
use ff_core::state::PublicState;
use ff_core::token::WaitpointToken;
use ff_core::types::{Namespace, WaitpointId};

use super::waits::{accepted, bearer, count, operator, put};
use super::{Fixture, code, item};

/// A wait for `yes` or nothing, with a token.
fn asked() -> SuspendArgs {
    SuspendArgs::new(ResumeCondition::single("gate", "yes"))
}

fn rotate(kid: &str, grace_ms: u64) -> RotateWaitpointSecretArgs {
    RotateWaitpointSecretArgs { new_kid: kid.into(), grace_ms }
}

async fn deliver(f: &Fixture, target: SignalTarget, name: &str) -> &'static str {
    code(&f.backend.deliver_signal(DeliverSignalArgs::new(target, name)).await)
}

pub async fn bearer_may_signal(f: &Fixture) {
    let (id, details) = f.suspended(asked()).await;
    let waitpoint = &details.waitpoints[0];
    let token = waitpoint.token.clone().unwrap();
    assert!(token.as_str().starts_with("ffw1.k1."), "the first secret is the first choice");
    assert!(!format!("{details:?}").contains(token.as_str()), "no token is printed");
    let again = f.backend.read_waitpoint_token(&id, waitpoint.waitpoint_id).await.unwrap();
    assert_eq!(again.as_ref(), Some(&token), "it can be made again");
    let before = f.picture(&id).await;
    assert_eq!(deliver(f, bearer(waitpoint), "no").await, "signal_not_allowed");
    assert_eq!(f.picture(&id).await, before);
    let foreign = Namespaced::new(f.backend.clone(), Namespace::new("other"));
    let stranger = foreign.deliver_signal(DeliverSignalArgs::new(bearer(waitpoint), "yes")).await;
    assert_eq!(code(&stranger), "not_found");
    let args = DeliverSignalArgs::new(bearer(waitpoint), "yes").idempotency_key("once");
    accepted(f.backend.deliver_signal(args.clone()).await);
    assert_eq!(code(&f.backend.deliver_signal(args).await), "ok", "a repeat is a duplicate");
    assert_eq!(deliver(f, bearer(waitpoint), "yes").await, "waitpoint_closed");
    assert_eq!(f.resumed(&id).await.1, ["yes"]);
    let picture = f.picture(&id).await;
    assert!(!picture.contains(token.as_str()), "no token is in the log");
}

/// Every forgery gets the same answer and changes nothing.
pub async fn forgeries(f: &Fixture) {
    let (id, details) = f.suspended(asked()).await;
    let (_, others) = f.suspended(asked()).await;
    let token = details.waitpoints[0].token.clone().unwrap();
    let other = others.waitpoints[0].token.clone().unwrap();
    let parts: Vec<&str> = token.as_str().split('.').collect();
    let others: Vec<&str> = other.as_str().split('.').collect();
    let before = f.picture(&id).await;
    let mut answers = Vec::new();
    for forged in [
        String::new(),
        "ffw1".into(),
        token.as_str().replace("ffw1", "ffw2"),
        format!("ffw1.k2.{}.{}", parts[2], parts[3]),
        format!("ffw1.unknown.{}.{}", parts[2], parts[3]),
        format!("ffw1.k1.{}.{}", others[2], parts[3]),
        format!("ffw1.k1.{}.{}", parts[2], others[3]),
        token.as_str()[..token.as_str().len() - 1].to_owned(),
    ] {
        let target = SignalTarget::Token(WaitpointToken::new(forged));
        let error = f.backend.deliver_signal(DeliverSignalArgs::new(target, "yes")).await;
        answers.push(error.unwrap_err().to_string());
    }
    answers.dedup();
    assert_eq!(answers, ["invalid_token: the waitpoint token is not valid"]);
    assert_eq!(f.picture(&id).await, before);
    accepted(
        f.backend
            .deliver_signal(DeliverSignalArgs::new(bearer(&details.waitpoints[0]), "yes"))
            .await,
    );
}

pub async fn expiry(f: &Fixture) {
    let fresh = WaitpointBinding::Fresh {
        waitpoint_id: WaitpointId::new(),
        waitpoint_key: "gate".into(),
        token: Some(TokenTerms { ttl_ms: Some(1_000) }),
    };
    let (id, details) = f.suspended(asked().waitpoints([fresh])).await;
    f.advance(999).await;
    assert_eq!(deliver(f, bearer(&details.waitpoints[0]), "no").await, "signal_not_allowed");
    f.advance(1).await;
    assert_eq!(deliver(f, bearer(&details.waitpoints[0]), "yes").await, "invalid_token");
    assert_eq!(f.state(&id).await, PublicState::Suspended);
    // The waitpoint itself stands.
    accepted(f.signal(&id, &details.waitpoints[0], "yes").await);
}

/// A token that was given out before anybody waits, and the waitpoint that it is for.
pub async fn early_token(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let mut args = CreateWaitpointArgs::new("gate", Duration::from_secs(60));
    args.signal_names = vec!["yes".into()];
    let made = f.backend.create_waitpoint(&handle, args).await.unwrap().waitpoint;
    assert_eq!(deliver(f, bearer(&made), "no").await, "signal_not_allowed");
    let waitpoint_id = made.waitpoint_id;
    let args = asked().waitpoints([WaitpointBinding::UsePending { waitpoint_id }]);
    let details = put(f.backend.suspend(&handle, args).await);
    assert_eq!(details.waitpoints[0].token, made.token, "the token that is out stays good");
    // Long after the time within which it had to be used.
    f.advance(120_000).await;
    assert_eq!(deliver(f, bearer(&made), "yes").await, "ok");
    assert_eq!(f.resumed(&id).await.1, ["yes"]);
}

/// Tokens of one life of an execution are worth nothing in the next.
pub async fn of_another_life(f: &Fixture) {
    let (id, handle) = f.start(item()).await;
    let args = CreateWaitpointArgs::new("gate", Duration::from_secs(60));
    let made = f.backend.create_waitpoint(&handle, args).await.unwrap().waitpoint;
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(deliver(f, bearer(&made), "yes").await, "target_not_signalable");
    f.replay(&id).await.unwrap();
    assert_eq!(deliver(f, bearer(&made), "yes").await, "waitpoint_closed");
}

pub async fn rotation(f: &Fixture) {
    let (_, old) = f.suspended(asked()).await;
    let (_, older) = f.suspended(asked()).await;
    let rotated = f.backend.rotate_waitpoint_secret(rotate("k2", 5_000)).await.unwrap();
    let expected = RotateWaitpointSecretResult::Rotated {
        previous_kid: Some("k1".into()),
        new_kid: "k2".into(),
    };
    assert_eq!(rotated, expected);
    let again = f.backend.rotate_waitpoint_secret(rotate("k2", 5_000)).await.unwrap();
    assert_eq!(again, RotateWaitpointSecretResult::Noop { kid: "k2".into() });
    let (_, new) = f.suspended(asked()).await;
    let token = new.waitpoints[0].token.clone().unwrap();
    assert!(token.as_str().starts_with("ffw1.k2."));
    f.advance(4_999).await;
    assert_eq!(deliver(f, bearer(&old.waitpoints[0]), "yes").await, "ok");
    f.advance(1).await;
    assert_eq!(deliver(f, bearer(&older.waitpoints[0]), "yes").await, "invalid_token");
    // No grace cuts what is out off at once.
    f.backend.rotate_waitpoint_secret(rotate("k3", 0)).await.unwrap();
    assert_eq!(deliver(f, bearer(&new.waitpoints[0]), "yes").await, "invalid_token");
    for (kid, expected) in [
        ("k1", "rotation_conflict"),
        ("k2", "rotation_conflict"),
        ("k9", "waitpoint_secret_missing"),
        ("", "invalid_kid"),
        ("a.b", "invalid_kid"),
    ] {
        let refused = f.backend.rotate_waitpoint_secret(rotate(kid, 0)).await;
        assert_eq!(code(&refused), expected, "{kid:?}");
    }
    let keys = f.backend.list_waitpoint_keys().await.unwrap();
    let seen: Vec<_> = keys.iter().map(|key| (&*key.kid, key.active, key.configured)).collect();
    assert_eq!(seen, [("k1", false, true), ("k2", false, true), ("k3", true, true)]);
    assert_eq!(keys[1].verifies_until, Some(f.now()));
}

pub async fn seeding(f: &Fixture) {
    use SeedWaitpointSecretResult::{AlreadySeeded, Seeded};
    let first = f.backend.seed_waitpoint_secret("k2").await.unwrap();
    assert_eq!(first, Seeded { kid: "k2".into() });
    for (kid, same_secret) in [("k2", true), ("k1", false)] {
        let again = f.backend.seed_waitpoint_secret(kid).await.unwrap();
        assert_eq!(again, AlreadySeeded { kid: "k2".into(), same_secret });
    }
    assert_eq!(code(&f.backend.seed_waitpoint_secret("k9").await), "waitpoint_secret_missing");
    let (_, details) = f.suspended(asked()).await;
    let token = details.waitpoints[0].token.clone().unwrap();
    assert!(token.as_str().starts_with("ffw1.k2."), "the store says which, not the order");
}

async fn say(f: &Fixture, target: SignalTarget, source: [&str; 2]) -> SignalEffect {
    let args = DeliverSignalArgs::new(target, "yes").source(source[0], source[1]);
    accepted(f.backend.deliver_signal(args).await)
}

/// A token is one source, whatever its bearer says of itself; two tokens are two, and so are a
/// token and a caller that needs none.
pub async fn one_source(f: &Fixture) {
    use SignalEffect::{
        AppendedToWaitpoint, AppendedToWaitpointDuplicate, ResumeConditionSatisfied,
    };
    let said = [["", ""], ["waitpoint_link", ""], ["user", "ann"], ["user", "bob"]];
    for pair in 0..said.len() * said.len() {
        let (first, second) = (said[pair / said.len()], said[pair % said.len()]);
        let two = count(2, Distinct::Sources, &["a", "b"]);
        let (id, details) = f.suspended(SuspendArgs::new(two)).await;
        let [a, b] = &details.waitpoints[..] else { panic!("{details:?}") };
        assert_eq!(say(f, bearer(a), first).await, AppendedToWaitpoint);
        assert_eq!(say(f, bearer(a), second).await, AppendedToWaitpointDuplicate);
        let own = SignalSource::WaitpointToken(a.waitpoint_id);
        let pretended = say(f, operator(&id, b), [own.kind(), &own.identity()]).await;
        assert_eq!(pretended, AppendedToWaitpointDuplicate, "that is what it is called");
        let effect = match first == second {
            true => say(f, bearer(b), first).await,
            false => say(f, operator(&id, a), ["user", "ann"]).await,
        };
        assert_eq!(effect, ResumeConditionSatisfied);
        let (claimed, _) = f.resumed(&id).await;
        f.backend.complete(&claimed.handle, None).await.unwrap();
    }
}
