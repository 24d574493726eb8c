//! What a suspended execution waits for, and when it has got it.
//!
//! A condition is judged signal by signal: `Progress` remembers what each part of it has counted,
//! so a signal is never looked at twice, however many a condition wants.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::engine_error::EngineError;
use crate::limits;

/// Waitpoints are named by their keys, which the execution chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ResumeCondition {
    /// The first signal that matches, on one waitpoint.
    Single {
        waitpoint_key: String,
        #[serde(default)]
        matcher: SignalMatcher,
    },
    /// Every one of several conditions.
    AllOf {
        #[cfg_attr(feature = "openapi", schema(no_recursion))]
        members: Vec<ResumeCondition>,
    },
    /// So many different things among several waitpoints.
    Count {
        n: u32,
        distinct: Distinct,
        #[serde(default)]
        matcher: SignalMatcher,
        waitpoint_keys: Vec<String>,
    },
    /// No signal does: only an operator resumes it.
    OperatorOnly,
    /// No signal does: it waits for its time-out.
    TimeoutOnly,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignalMatcher {
    #[default]
    Any,
    Name(String),
}

/// What makes two signals of a count different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Distinct {
    Waitpoints,
    Signals,
    Sources,
}

/// What a condition looks at in a signal.
#[derive(Clone, Copy, Debug)]
pub struct SignalFacts<'s> {
    pub waitpoint_key: &'s str,
    pub waitpoint: Uuid,
    pub signal: Uuid,
    pub name: &'s str,
    pub source_type: &'s str,
    pub source_identity: &'s str,
}

/// What a signal was to a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It brought the condition forward.
    Counted,
    /// It matches, and adds nothing to what has come before.
    Repeated,
    /// The condition does not look at its waitpoint.
    NotInCondition,
    /// The condition looks at its waitpoint and wants other names.
    MatcherFailed,
}

/// What the parts of a condition have counted so far, each under its place in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Progress(BTreeSet<String>);

impl SignalMatcher {
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Name(wanted) => wanted == name,
        }
    }
}

impl ResumeCondition {
    pub fn single(waitpoint_key: impl Into<String>, name: impl Into<String>) -> Self {
        let matcher = SignalMatcher::Name(name.into());
        Self::Single { waitpoint_key: waitpoint_key.into(), matcher }
    }

    pub fn any_signal(waitpoint_key: impl Into<String>) -> Self {
        Self::Single { waitpoint_key: waitpoint_key.into(), matcher: SignalMatcher::Any }
    }

    /// Refuses what could never be met, and what is too large.
    pub fn check(&self) -> Result<(), EngineError> {
        match self {
            Self::OperatorOnly | Self::TimeoutOnly => Ok(()),
            _ => {
                self.check_part(1)?;
                let signals = self.signals();
                if signals > limits::CONDITION_SIGNALS {
                    let most = limits::CONDITION_SIGNALS;
                    return Err(EngineError::invalid(format!(
                        "the condition waits for {signals} signals, the limit is {most}"
                    )));
                }
                Ok(())
            }
        }
    }

    fn check_part(&self, depth: usize) -> Result<(), EngineError> {
        let refuse = |detail: String| Err(EngineError::invalid(detail));
        if depth > limits::CONDITION_DEPTH {
            let most = limits::CONDITION_DEPTH;
            return refuse(format!("the condition is nested deeper than {most} levels"));
        }
        match self {
            Self::Single { matcher, .. } => check_matcher(matcher),
            Self::AllOf { members } if members.is_empty() => {
                refuse("an all-of condition has no members".into())
            }
            Self::AllOf { members } => {
                members.iter().try_for_each(|member| member.check_part(depth + 1))
            }
            Self::Count { n, distinct, matcher, waitpoint_keys } => {
                check_matcher(matcher)?;
                let keys = waitpoint_keys.iter().collect::<BTreeSet<_>>().len();
                if *n == 0 {
                    return refuse("a count condition waits for 0 signals".into());
                }
                if waitpoint_keys.is_empty() {
                    return refuse("a count condition names no waitpoints".into());
                }
                if *distinct == Distinct::Waitpoints && *n as usize > keys {
                    return refuse(format!(
                        "a count condition waits for {n} waitpoints and names only {keys}"
                    ));
                }
                Ok(())
            }
            Self::OperatorOnly | Self::TimeoutOnly => {
                refuse("operator-only and timeout-only conditions cannot be members".into())
            }
        }
    }

    /// The keys of all waitpoints that it looks at.
    pub fn waitpoint_keys(&self) -> BTreeSet<&str> {
        let mut keys = BTreeSet::new();
        self.leaves(&mut String::new(), &mut |_, leaf| keys.extend(leaf.keys()));
        keys
    }

    /// The names that it wants on a waitpoint; `None` if it takes any.
    pub fn signal_names(&self, waitpoint_key: &str) -> Option<BTreeSet<&str>> {
        let mut names = Some(BTreeSet::new());
        self.leaves(&mut String::new(), &mut |_, leaf| {
            if leaf.looks_at(waitpoint_key) {
                match leaf.matcher() {
                    SignalMatcher::Any => names = None,
                    SignalMatcher::Name(name) => {
                        names.iter_mut().for_each(|names| _ = names.insert(name.as_str()));
                    }
                }
            }
        });
        names
    }

    /// How many signals can bring it forward.
    fn signals(&self) -> usize {
        let mut signals = 0_usize;
        self.leaves(&mut String::new(), &mut |_, leaf| {
            signals = signals.saturating_add(leaf.wanted() as usize);
        });
        signals
    }

    /// Visits every part that looks at signals, with its place in the tree.
    fn leaves<'c>(&'c self, place: &mut String, visit: &mut impl FnMut(&str, Leaf<'c>)) {
        match self {
            Self::Single { waitpoint_key, matcher } => {
                visit(place, Leaf::Single { waitpoint_key, matcher });
            }
            Self::Count { n, distinct, matcher, waitpoint_keys } => {
                let (n, distinct) = (*n, *distinct);
                visit(place, Leaf::Count { n, distinct, matcher, waitpoint_keys });
            }
            Self::AllOf { members } => {
                for (at, member) in members.iter().enumerate() {
                    let len = place.len();
                    place.push_str(&format!("{at}."));
                    member.leaves(place, visit);
                    place.truncate(len);
                }
            }
            Self::OperatorOnly | Self::TimeoutOnly => {}
        }
    }
}

fn check_matcher(matcher: &SignalMatcher) -> Result<(), EngineError> {
    match matcher {
        SignalMatcher::Any => Ok(()),
        SignalMatcher::Name(name) => check_signal_name(name),
    }
}

/// Names that begin with two underscores are the engine's own.
pub(crate) fn check_signal_name(name: &str) -> Result<(), EngineError> {
    let problem = if name.is_empty() {
        "a signal name is empty".to_owned()
    } else if name.len() > limits::SIGNAL_NAME_BYTES {
        let (len, most) = (name.len(), limits::SIGNAL_NAME_BYTES);
        format!("a signal name is {len} bytes long, the limit is {most}")
    } else if name.chars().any(char::is_control) {
        format!("the signal name {name:?} contains a control character")
    } else if name.starts_with("__") {
        format!("the signal name {name:?} begins with two underscores, which is the engine's own")
    } else {
        return Ok(());
    };
    Err(EngineError::invalid(problem))
}

/// A part of a condition that signals are counted for.
#[derive(Clone, Copy)]
enum Leaf<'c> {
    Single { waitpoint_key: &'c String, matcher: &'c SignalMatcher },
    Count { n: u32, distinct: Distinct, matcher: &'c SignalMatcher, waitpoint_keys: &'c [String] },
}

impl<'c> Leaf<'c> {
    fn keys(self) -> impl Iterator<Item = &'c str> {
        let keys = match self {
            Self::Single { waitpoint_key, .. } => std::slice::from_ref(waitpoint_key),
            Self::Count { waitpoint_keys, .. } => waitpoint_keys,
        };
        keys.iter().map(String::as_str)
    }

    fn looks_at(self, key: &str) -> bool {
        self.keys().any(|own| own == key)
    }

    fn matcher(self) -> &'c SignalMatcher {
        match self {
            Self::Single { matcher, .. } | Self::Count { matcher, .. } => matcher,
        }
    }

    fn wanted(self) -> u32 {
        match self {
            Self::Single { .. } => 1,
            Self::Count { n, .. } => n,
        }
    }

    /// What a signal counts as: signals that count as the same are one.
    fn counted_as(self, signal: &SignalFacts) -> String {
        match self {
            Self::Single { .. } => String::new(),
            Self::Count { distinct: Distinct::Waitpoints, .. } => {
                signal.waitpoint.simple().to_string()
            }
            Self::Count { distinct: Distinct::Signals, .. } => signal.signal.simple().to_string(),
            // The length keeps `a` of `b:c` apart from `a:b` of `c`.
            Self::Count { distinct: Distinct::Sources, .. } => {
                let kind = signal.source_type;
                format!("{}:{kind}:{}", kind.len(), signal.source_identity)
            }
        }
    }
}

impl Progress {
    /// Counts a signal.
    pub fn count(&mut self, condition: &ResumeCondition, signal: &SignalFacts) -> Verdict {
        let (mut looked, mut matched, mut counted) = (false, false, false);
        condition.leaves(&mut String::new(), &mut |place, leaf| {
            if !leaf.looks_at(signal.waitpoint_key) {
                return;
            }
            looked = true;
            if !leaf.matcher().matches(signal.name) {
                return;
            }
            matched = true;
            if self.of(place) < leaf.wanted() as usize {
                counted |= self.0.insert(format!("{place}={}", leaf.counted_as(signal)));
            }
        });
        match (looked, matched, counted) {
            (_, _, true) => Verdict::Counted,
            (_, true, false) => Verdict::Repeated,
            (true, false, false) => Verdict::MatcherFailed,
            (false, ..) => Verdict::NotInCondition,
        }
    }

    /// Whether the condition has all that it waits for.
    pub fn meets(&self, condition: &ResumeCondition) -> bool {
        if matches!(condition, ResumeCondition::OperatorOnly | ResumeCondition::TimeoutOnly) {
            return false;
        }
        let mut met = true;
        condition.leaves(&mut String::new(), &mut |place, leaf| {
            met &= self.of(place) >= leaf.wanted() as usize;
        });
        met
    }

    /// How much the part at this place has counted.
    fn of(&self, place: &str) -> usize {
        let own = format!("{place}=");
        self.0.range(own.clone()..).take_while(|entry| entry.starts_with(&own)).count()
    }
}

#[cfg(test)]
mod tests;
