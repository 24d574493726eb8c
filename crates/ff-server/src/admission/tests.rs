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
    let config = Config { body_budget: 64 * SMALL_BODY, ..Config::default() };
    let admission = Admission::new(&config);
    let admit = |caller| admission.admit(caller, Pace::Work).unwrap();
    let (half, step) = (32 * SMALL_BODY, SMALL_BODY);
    // What is announced takes nothing from others, and keeps only its own token waiting.
    let mut first = admit(token(1));
    first.announce(half, NOW).await.unwrap();
    assert_eq!(admission.counts().all.bytes, 0);
    let mut second = admit(token(1));
    assert_eq!(refused(second.announce(half, NOW).await), "overloaded");
    // Room is taken one step ahead of what arrives.
    first.reserve(1, NOW).await.unwrap();
    assert_eq!(admission.counts().all.bytes, step);
    first.reserve(half, NOW).await.unwrap();
    // A quarter is left to small bodies, whatever the large ones take.
    let mut other = admit(token(2));
    other.reserve(16 * step, NOW).await.unwrap();
    assert_eq!(refused(other.reserve(17 * step, NOW).await), "overloaded");
    let mut small = [token(1), token(3), address("1.1.1.1")].map(admit);
    for visit in &mut small {
        visit.reserve(step, NOW).await.unwrap();
    }
    drop((other, small));
    // Without a token there is less: 4 steps for an address, 6 for large bodies of all of them.
    let mut open = [address("1.1.1.1"), address("2.2.2.2")].map(admit);
    open[0].reserve(4 * step, NOW).await.unwrap();
    assert_eq!(refused(open[0].reserve(5 * step, NOW).await), "overloaded");
    open[1].reserve(2 * step, NOW).await.unwrap();
    assert_eq!(refused(open[1].reserve(3 * step, NOW).await), "overloaded");
    let mut honest = [address("1.1.1.1"), address("3.3.3.3")].map(admit);
    for visit in &mut honest {
        visit.reserve(step, NOW).await.unwrap();
    }
    // With a token one waits for what others give back.
    let waiting = second.announce(half, Duration::from_secs(60));
    let giving = async { drop(first) };
    let (announced, ()) = tokio::join!(waiting, giving);
    announced.unwrap();
    drop((second, open, honest));
    assert_eq!(admission.counts().all, Use::default());
    assert!(admission.counts().by_caller.is_empty());
}
