//! When a node may run and when it never will, and how a flow ends.

use crate::contracts::{EdgeGroupState, EdgePolicy};
use crate::rows::{Endings, FlowState};

/// How many parents of a node have ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All parents, ended or not.
    pub parents: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Tally {
    /// How many parents have yet to end.
    pub fn open(self) -> u64 {
        self.parents.saturating_sub(self.succeeded + self.failed + self.skipped)
    }
}

/// What the parents say so far. Only more endings can change `Pending`, and nothing changes the
/// other two: one more ending never takes back what was decided.
pub fn decide(policy: EdgePolicy, tally: Tally) -> EdgeGroupState {
    let wanted = match policy {
        EdgePolicy::AllOf => tally.parents,
        EdgePolicy::AnyOf { .. } => 1,
        EdgePolicy::Quorum { k, .. } => u64::from(k),
    };
    if tally.succeeded >= wanted {
        EdgeGroupState::Satisfied
    } else if tally.succeeded + tally.open() < wanted {
        EdgeGroupState::Impossible
    } else {
        EdgeGroupState::Pending
    }
}

/// How a flow of so many members ends, once all of them have. A flow whose members nobody counted
/// does not end by itself.
pub fn ending(members: u64, ended: Endings) -> Option<FlowState> {
    if members == 0 || ended.total() < members {
        return None;
    }
    let failed = ended.failed + ended.cancelled + ended.expired > 0;
    Some(if failed { FlowState::Failed } else { FlowState::Completed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::OnSatisfied;
    use EdgeGroupState::{Impossible, Pending, Satisfied};

    const MOST: u64 = 5;

    fn policies() -> Vec<EdgePolicy> {
        let on_satisfied = OnSatisfied::LetRun;
        let quorum = |k| EdgePolicy::Quorum { k, on_satisfied };
        let mut all = vec![EdgePolicy::AllOf, EdgePolicy::AnyOf { on_satisfied }];
        all.extend((1..=4).map(quorum));
        all
    }

    /// Every way in which up to five parents can have ended so far.
    fn tallies() -> Vec<Tally> {
        let mut all = Vec::new();
        for parents in 1..=MOST {
            for succeeded in 0..=parents {
                for failed in 0..=parents - succeeded {
                    for skipped in 0..=parents - succeeded - failed {
                        all.push(Tally { parents, succeeded, failed, skipped });
                    }
                }
            }
        }
        all
    }

    fn wanted(policy: EdgePolicy, parents: u64) -> u64 {
        match policy {
            EdgePolicy::AllOf => parents,
            EdgePolicy::AnyOf { .. } => 1,
            EdgePolicy::Quorum { k, .. } => u64::from(k),
        }
    }

    #[test]
    fn truth_table() {
        for policy in policies() {
            for tally in tallies() {
                let wanted = wanted(policy, tally.parents);
                let lost = tally.failed + tally.skipped;
                let expected = if tally.succeeded >= wanted {
                    Satisfied
                } else if tally.parents < wanted || lost > tally.parents - wanted {
                    Impossible
                } else {
                    Pending
                };
                assert_eq!(decide(policy, tally), expected, "{policy:?} {tally:?}");
            }
        }
    }

    #[test]
    fn all_of_by_hand() {
        let state = |parents, succeeded, failed, skipped| {
            decide(EdgePolicy::AllOf, Tally { parents, succeeded, failed, skipped })
        };
        assert_eq!(state(2, 0, 0, 0), Pending);
        assert_eq!(state(2, 1, 0, 0), Pending);
        assert_eq!(state(2, 2, 0, 0), Satisfied);
        assert_eq!(state(2, 0, 1, 0), Impossible);
        assert_eq!(state(2, 1, 0, 1), Impossible);
        assert_eq!(state(1, 1, 0, 0), Satisfied);
        assert_eq!(state(1, 0, 0, 1), Impossible);
    }

    #[test]
    fn one_more_ending_takes_nothing_back() {
        for policy in policies() {
            for tally in tallies().into_iter().filter(|tally| tally.open() > 0) {
                let before = decide(policy, tally);
                let more = [
                    Tally { succeeded: tally.succeeded + 1, ..tally },
                    Tally { failed: tally.failed + 1, ..tally },
                    Tally { skipped: tally.skipped + 1, ..tally },
                ];
                for after in more.map(|tally| decide(policy, tally)) {
                    let kept = before == Pending || before == after;
                    assert!(kept, "{policy:?} {tally:?}: {before:?} became {after:?}");
                }
            }
        }
    }

    #[test]
    fn when_all_have_ended_it_is_decided() {
        for policy in policies() {
            for tally in tallies().into_iter().filter(|tally| tally.open() == 0) {
                assert_ne!(decide(policy, tally), Pending, "{policy:?} {tally:?}");
            }
        }
    }

    #[test]
    fn endings_of_flows() {
        let none = Endings::default();
        for (endings, members, expected) in [
            (none, 0, None),
            (Endings { completed: 1, ..none }, 0, None),
            (Endings { completed: 1, ..none }, 2, None),
            (Endings { completed: 2, ..none }, 2, Some(FlowState::Completed)),
            (Endings { completed: 1, skipped: 1, ..none }, 2, Some(FlowState::Completed)),
            (Endings { completed: 1, spared: 1, ..none }, 2, Some(FlowState::Completed)),
            (Endings { completed: 1, failed: 1, ..none }, 2, Some(FlowState::Failed)),
            (Endings { completed: 1, failed: 1, ..none }, 3, None),
            (Endings { cancelled: 1, ..none }, 1, Some(FlowState::Failed)),
            (Endings { expired: 1, ..none }, 1, Some(FlowState::Failed)),
        ] {
            assert_eq!(ending(members, endings), expected, "{endings:?} of {members}");
        }
    }
}
