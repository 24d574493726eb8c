//! Callers that take too much, and those beside them.

use std::net::IpAddr;

use uuid::Uuid;

use super::*;

const NOW: Duration = Duration::ZERO;

fn token(number: u128) -> Caller {
    Caller::Token(Uuid::from_u128(number))
}

fn address(text: &str) -> Caller {
    Caller::Address(caller::block(text.parse::<IpAddr>().unwrap()))
}

fn small() -> Arc<Admission> {
    Admission::new(&Config {
        requests: 3,
        requests_per_token: 2,
        waits_per_token: 1,
        open_requests: 3,
        open_requests_per_address: 2,
        body_budget: 3200,
        ..Config::default()
    })
}

fn refused<T>(answered: Answered<T>) -> &'static str {
    answered.err().unwrap().code
}

#[test]
fn a_token_has_so_many_requests() {
    let admission = small();
    let admit = |caller, pace| admission.admit(caller, pace);
    let first = admit(token(1), Pace::Work).unwrap();
    let _second = admit(token(1), Pace::Work).unwrap();
    assert_eq!(refused(admit(token(1), Pace::Work)), "too_many_requests");
    // Waits are counted apart, and so are others.
    let _wait = admit(token(1), Pace::Waits).unwrap();
    assert_eq!(refused(admit(token(1), Pace::Waits)), "too_many_requests");
    let _other = admit(token(2), Pace::Work).unwrap();
    drop(first);
    admit(token(1), Pace::Work).unwrap();
}

#[test]
fn requests_without_a_token_have_places_of_their_own() {
    let admission = small();
    let start = |caller| {
        let mut visit = admission.admit(caller, Pace::Work)?;
        visit.start().map(|()| visit)
    };
    let held = [start(address("1.1.1.1")).unwrap(), start(address("1.1.1.1")).unwrap()];
    assert_eq!(refused(start(address("1.1.1.1"))), "overloaded");
    let third = start(address("2001:db8::1")).unwrap();
    assert_eq!(refused(start(address("2001:db8::2"))), "overloaded");
    let own: Vec<Visit> = [1, 1, 2].map(|number| start(token(number)).unwrap()).into();
    assert_eq!(refused(start(token(3))), "overloaded");
    // What must be answered however busy the server is takes no place.
    let mut probe = admission.admit(token(3), Pace::Probes).unwrap();
    probe.start().unwrap();
    drop((held, third, own, probe));
    let counts = admission.counts();
    assert_eq!((counts.all, counts.open), (Use::default(), Use::default()));
    assert!(counts.by_caller.is_empty());
}

#[tokio::test]
async fn bodies_share_a_budget() {
    let admission = small();
    let admit = |caller| admission.admit(caller, Pace::Work).unwrap();
    let mut first = admit(token(1));
    first.reserve(1600, NOW).await.unwrap();
    let mut second = admit(token(1));
    assert_eq!(refused(second.reserve(1, NOW).await), "overloaded");
    let mut open = admit(address("1.1.1.1"));
    open.reserve(200, NOW).await.unwrap();
    assert_eq!(refused(open.reserve(201, NOW).await), "overloaded");
    let mut other = admit(token(2));
    assert_eq!(refused(other.reserve(1600, NOW).await), "overloaded");
    other.reserve(1400, NOW).await.unwrap();
    // With a token one waits for what others give back.
    let waiting = second.reserve(1600, Duration::from_secs(60));
    let giving = async { drop(first) };
    let (reserved, ()) = tokio::join!(waiting, giving);
    reserved.unwrap();
    drop((second, open, other));
    assert_eq!(admission.counts().all, Use::default());
    assert!(admission.counts().by_caller.is_empty());
}
