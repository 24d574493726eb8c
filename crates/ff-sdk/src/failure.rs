//! How a handler says that it failed, and whether trying again may help.

use std::borrow::Cow;
use std::fmt;

use ff_core::contracts::{FailArgs, FailureClass};
use ff_core::limits;

/// What a handler returns.
pub type Outcome<T> = Result<T, Failure>;

/// The category of errors that came through `?`.
pub const ERROR: &str = "error";
/// The category of handlers that panicked.
pub const PANIC: &str = "panic";
/// The category of input that is not what the handler takes.
pub const INVALID_INPUT: &str = "invalid_input";
/// The category of results that the engine does not take, because they are too large.
pub const INVALID_RESULT: &str = "invalid_result";
/// The category of executions whose kind this worker does not know.
pub const UNKNOWN_KIND: &str = "unknown_kind";
/// The category of usage that a budget has no room for.
pub const BUDGET_EXCEEDED: &str = "budget_exceeded";

/// A failed attempt. Any error becomes one that is retried, through `?`; [`Failure::fatal`] is not.
///
/// It is not an error type itself, so that `?` can take every error that is one.
pub struct Failure {
    class: FailureClass,
    category: Cow<'static, str>,
    reason: String,
}

impl Failure {
    /// Trying again cannot help. The category is a word of your own for statistics and policies.
    pub fn fatal(category: impl Into<Cow<'static, str>>, reason: impl fmt::Display) -> Self {
        Self::new(FailureClass::Fatal, category.into(), &reason)
    }

    /// Tried again as the execution's policy says, under a category of your own.
    pub fn retry(category: impl Into<Cow<'static, str>>, reason: impl fmt::Display) -> Self {
        Self::new(FailureClass::Retryable, category.into(), &reason)
    }

    fn new(class: FailureClass, category: Cow<'static, str>, reason: &dyn fmt::Display) -> Self {
        // The alternate form of an `anyhow::Error` is its whole chain of causes.
        Self { class, category, reason: format!("{reason:#}") }
    }

    pub fn is_fatal(&self) -> bool {
        self.class == FailureClass::Fatal
    }

    pub fn category(&self) -> &str {
        &self.category
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What the engine is told: long texts are cut to what it takes.
    pub(crate) fn into_args(self) -> FailArgs {
        let mut category = self.category.into_owned();
        let mut reason = self.reason;
        cut(&mut category, limits::NAME_BYTES);
        cut(&mut reason, limits::REASON_BYTES);
        FailArgs { reason, category, class: self.class }
    }
}

fn cut(text: &mut String, max: usize) {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(ERROR, error.into())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = if self.is_fatal() { "fatal" } else { "retryable" };
        write!(f, "{class} failure ({}): {}", self.category, self.reason)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn errors_keep_their_causes() {
        let failing = || -> Outcome<u32> { Ok("x".parse::<u32>().context("the order's number")?) };
        let failure = failing().unwrap_err();
        assert_eq!(failure.reason(), "the order's number: invalid digit found in string");
        assert_eq!((failure.category(), failure.is_fatal()), (ERROR, false));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let args = Failure::fatal("ß".repeat(300), "ß".repeat(5_000)).into_args();
        assert_eq!(args.category.len(), 254);
        assert_eq!(args.reason.len(), 4_096);
    }
}
