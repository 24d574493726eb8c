//! Truth tables of every kind of condition.

use super::*;

/// A signal in one line: waitpoint key, name, source, signal number.
#[derive(Clone, Copy, Debug)]
struct Sig(&'static str, &'static str, (&'static str, &'static str), u128);

const ANN: (&str, &str) = ("user", "ann");
const BOB: (&str, &str) = ("user", "bob");

fn facts(signal: &Sig) -> SignalFacts<'static> {
    let Sig(waitpoint_key, name, (source_type, source_identity), number) = *signal;
    let waitpoint = Uuid::from_u128(waitpoint_key.bytes().map(u128::from).sum());
    let signal = Uuid::from_u128(number);
    SignalFacts { waitpoint_key, waitpoint, signal, name, source_type, source_identity }
}

/// Gives the signals in turn; the verdict of each, and whether the condition is met after it.
fn play(condition: &ResumeCondition, signals: &[Sig]) -> Vec<(Verdict, bool)> {
    let mut progress = Progress::default();
    let step = |signal: &Sig| {
        let verdict = progress.count(condition, &facts(signal));
        // What is stored between two signals is its text.
        let stored = serde_json::to_string(&progress).unwrap();
        progress = serde_json::from_str(&stored).unwrap();
        (verdict, progress.meets(condition))
    };
    signals.iter().map(step).collect()
}

fn met(condition: &ResumeCondition, signals: &[Sig]) -> bool {
    play(condition, signals).last().is_some_and(|(_, met)| *met)
}

fn all_of(members: impl IntoIterator<Item = ResumeCondition>) -> ResumeCondition {
    ResumeCondition::AllOf { members: members.into_iter().collect() }
}

fn count(n: u32, distinct: Distinct, keys: &[&str]) -> ResumeCondition {
    let waitpoint_keys = keys.iter().map(ToString::to_string).collect();
    ResumeCondition::Count { n, distinct, matcher: SignalMatcher::Any, waitpoint_keys }
}

#[test]
fn single_takes_the_first_match() {
    use Verdict::{Counted, MatcherFailed, NotInCondition, Repeated};
    let named = ResumeCondition::single("a", "yes");
    let seen = play(
        &named,
        &[
            Sig("b", "yes", ANN, 1),
            Sig("a", "no", ANN, 2),
            Sig("a", "yes", ANN, 3),
            Sig("a", "yes", BOB, 4),
        ],
    );
    assert_eq!(
        seen,
        [(NotInCondition, false), (MatcherFailed, false), (Counted, true), (Repeated, true)]
    );
    assert!(met(&ResumeCondition::any_signal("a"), &[Sig("a", "whatever", ANN, 1)]));
    assert!(!met(&ResumeCondition::any_signal("a"), &[Sig("b", "whatever", ANN, 1)]));
}

#[test]
fn no_signal_meets_operator_only_and_timeout_only() {
    for condition in [ResumeCondition::OperatorOnly, ResumeCondition::TimeoutOnly] {
        condition.check().unwrap();
        assert!(condition.waitpoint_keys().is_empty());
        let seen = play(&condition, &[Sig("a", "yes", ANN, 1)]);
        assert_eq!(seen, [(Verdict::NotInCondition, false)]);
        assert!(!Progress::default().meets(&condition));
    }
}

#[test]
fn all_of_truth_table() {
    let keys = ["a", "b", "c"];
    let condition = all_of(keys.map(ResumeCondition::any_signal));
    for mask in 0..8_u32 {
        let given: Vec<Sig> = (0..3)
            .filter(|at| mask & (1 << at) != 0)
            .map(|at| Sig(keys[at], "go", ANN, at as u128))
            .collect();
        assert_eq!(met(&condition, &given), mask == 7, "{given:?}");
        let backwards: Vec<Sig> = given.into_iter().rev().collect();
        assert_eq!(met(&condition, &backwards), mask == 7, "{backwards:?}");
    }
}

#[test]
fn one_signal_may_serve_several_members() {
    let twice = all_of([ResumeCondition::any_signal("a"), ResumeCondition::single("a", "yes")]);
    assert!(met(&twice, &[Sig("a", "yes", ANN, 1)]));
    assert!(!met(&twice, &[Sig("a", "no", ANN, 1)]));
}

#[test]
fn count_truth_table() {
    // The same three signals, told apart in three ways.
    let signals = [
        Sig("a", "go", ANN, 1),
        Sig("a", "go", ANN, 2),
        Sig("b", "go", ANN, 3),
        Sig("b", "go", BOB, 4),
    ];
    for (distinct, progress) in [
        (Distinct::Waitpoints, [1, 1, 2, 2]),
        (Distinct::Signals, [1, 2, 3, 4]),
        (Distinct::Sources, [1, 1, 1, 2]),
    ] {
        for n in 1..=4 {
            let seen = play(&count(n, distinct, &["a", "b"]), &signals);
            let met: Vec<bool> = seen.iter().map(|(_, met)| *met).collect();
            let expected: Vec<bool> = progress.iter().map(|have| *have >= n).collect();
            assert_eq!(met, expected, "{n} of {distinct:?}");
        }
    }
}

#[test]
fn a_count_wants_its_own_names_and_waitpoints() {
    let condition = ResumeCondition::Count {
        n: 2,
        distinct: Distinct::Signals,
        matcher: SignalMatcher::Name("yes".into()),
        waitpoint_keys: vec!["a".into()],
    };
    use Verdict::{Counted, MatcherFailed, NotInCondition, Repeated};
    let seen = play(
        &condition,
        &[
            Sig("a", "yes", ANN, 1),
            Sig("a", "yes", ANN, 1),
            Sig("b", "yes", ANN, 2),
            Sig("a", "no", ANN, 3),
            Sig("a", "yes", ANN, 4),
            Sig("a", "yes", ANN, 5),
        ],
    );
    let expected = [
        (Counted, false),
        (Repeated, false),
        (NotInCondition, false),
        (MatcherFailed, false),
        (Counted, true),
        (Repeated, true),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn sources_are_told_apart_by_both_their_parts() {
    let condition = count(2, Distinct::Sources, &["a"]);
    assert!(met(&condition, &[Sig("a", "go", ("a", "b:c"), 1), Sig("a", "go", ("a:b", "c"), 2)]));
    assert!(met(&condition, &[Sig("a", "go", ("user", "x"), 1), Sig("a", "go", ("bot", "x"), 2)]));
    assert!(!met(&condition, &[Sig("a", "go", ANN, 1), Sig("a", "go", ANN, 2)]));
}

#[test]
fn two_counts_of_one_tree_do_not_share_what_they_counted() {
    let condition =
        all_of([count(2, Distinct::Sources, &["a"]), count(2, Distinct::Sources, &["b"])]);
    let signals = [Sig("a", "go", ANN, 1), Sig("b", "go", BOB, 2)];
    assert!(!met(&condition, &signals));
    let more = [signals[0], signals[1], Sig("a", "go", BOB, 3), Sig("b", "go", ANN, 4)];
    assert!(met(&condition, &more));
}

#[test]
fn nested_conditions_keep_their_places() {
    let many = all_of((0..12).map(|at| ResumeCondition::any_signal(format!("k{at}"))));
    let condition = all_of([many, count(1, Distinct::Signals, &["z"])]);
    condition.check().unwrap();
    // Place 1 must not be counted as place 10 or 11.
    assert!(!met(&condition, &[Sig("k1", "go", ANN, 1), Sig("z", "go", ANN, 2)]));
    assert_eq!(condition.waitpoint_keys().len(), 13);
}

#[test]
fn conditions_that_cannot_be_met_are_refused() {
    let single = ResumeCondition::any_signal("a");
    let mut deep = single.clone();
    for _ in 1..limits::CONDITION_DEPTH {
        deep = all_of([deep]);
    }
    deep.check().unwrap();
    for (bad, why) in [
        (all_of([deep]), "deeper"),
        (all_of([]), "no members"),
        (all_of([single.clone(), ResumeCondition::OperatorOnly]), "cannot be members"),
        (all_of([ResumeCondition::TimeoutOnly]), "cannot be members"),
        (count(0, Distinct::Signals, &["a"]), "0 signals"),
        (count(1, Distinct::Signals, &[]), "no waitpoints"),
        (count(2, Distinct::Waitpoints, &["a", "a"]), "only 1"),
        (count(257, Distinct::Signals, &["a"]), "the limit is 256"),
        (
            all_of([count(200, Distinct::Signals, &["a"]), count(57, Distinct::Signals, &["b"])]),
            "257",
        ),
        (ResumeCondition::single("a", ""), "empty"),
        (ResumeCondition::single("a", "__timeout__"), "the engine's own"),
        (ResumeCondition::single("a", "x\ny"), "control"),
        (ResumeCondition::single("a", "x".repeat(129)), "128"),
    ] {
        let error = bad.check().unwrap_err().to_string();
        assert!(error.contains(why), "{error:?} does not say {why:?}");
    }
}

#[test]
fn the_names_for_a_token_follow_from_the_condition() {
    let named = all_of([
        ResumeCondition::single("a", "yes"),
        ResumeCondition::single("a", "no"),
        ResumeCondition::any_signal("b"),
        ResumeCondition::single("b", "yes"),
    ]);
    assert_eq!(named.signal_names("a"), Some(BTreeSet::from(["no", "yes"])));
    assert_eq!(named.signal_names("b"), None);
}

#[test]
fn conditions_read_as_they_are_written() {
    let condition = all_of([
        ResumeCondition::single("a", "yes"),
        count(2, Distinct::Sources, &["a", "b"]),
        ResumeCondition::any_signal("c"),
    ]);
    let text = serde_json::to_string(&condition).unwrap();
    assert_eq!(serde_json::from_str::<ResumeCondition>(&text).unwrap(), condition);
    let short = r#"{"type":"single","waitpoint_key":"a","matcher":{"name":"yes"}}"#;
    let read: ResumeCondition = serde_json::from_str(short).unwrap();
    assert_eq!(read, ResumeCondition::single("a", "yes"));
}
