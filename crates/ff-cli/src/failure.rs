//! Why a command failed, what it exits with, and what to try next.

use std::fmt;

use ff_api::Problem;

/// What the process exits with. Anything but 0 means that the command did not do what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It could not be done.
    Failure = 1,
    /// The execution that was waited for has failed.
    RunFailed = 2,
    /// It was cancelled, skipped or has expired.
    RunEnded = 3,
    /// The command line makes no sense.
    Usage = 64,
    /// There is no such thing.
    NotFound = 66,
    /// The server cannot be reached, or is too busy.
    Unavailable = 69,
    /// The token is missing, wrong or not good enough.
    Denied = 77,
    /// What was waited for has not happened in time.
    Timeout = 124,
}

impl Exit {
    /// What to try when nobody knows better.
    fn hint(self) -> &'static str {
        match self {
            Self::Usage => "`flowfabric help`, or the same command with --help",
            Self::RunFailed | Self::RunEnded => "`flowfabric run show ID --events` tells more",
            Self::NotFound => "see what there is with `flowfabric run ls`",
            Self::Unavailable | Self::Timeout => "again in a moment; `flowfabric doctor` says more",
            Self::Denied => "a token with the scope that is needed, in FF_TOKEN",
            Self::Failure => "`flowfabric doctor` looks at the store and its settings",
        }
    }
}

#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    /// The next thing to try.
    pub hint: Option<String>,
    /// A server has answered, and this is what it said.
    pub refused: bool,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, refused: false }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Says why to the person at the terminal, or in the log of a server if that is JSON.
    pub fn tell(&self) {
        match crate::log::is_json() {
            true => tracing::error!(hint = self.next(), "{}", self.message),
            false => crate::output::say(&self.to_string()),
        }
    }

    fn next(&self) -> &str {
        self.hint.as_deref().unwrap_or(self.exit.hint())
    }

    /// A refusal by the server.
    pub fn refused(problem: &Problem) -> Self {
        let (exit, hint) = match problem.status {
            401 => {
                (Exit::Denied, "give a token with --token or FF_TOKEN; `flowfabric dev` prints one")
            }
            403 => (Exit::Denied, "ask for a token with the scope that is named above"),
            404 => (Exit::NotFound, "see what there is with `flowfabric run ls`"),
            429 | 503 => {
                (Exit::Unavailable, "try again in a moment; `flowfabric doctor` says more")
            }
            409 => (Exit::Failure, "`flowfabric run why ID` says where an execution stands"),
            410 => {
                (Exit::Failure, "begin again without a cursor: the log has forgotten that place")
            }
            413 => (Exit::Failure, "send less; `flowfabric config show` has the server's limits"),
            422 => (Exit::Failure, "another key, or the same work as before under this one"),
            500.. => (Exit::Failure, "the server's log has more under the id of the request"),
            _ => (Exit::Failure, "the same command with --help says what it takes"),
        };
        let mut message = format!("{} ({})", problem.detail, problem.code);
        if let Some(id) = &problem.request_id {
            message += &format!(" [request {id}]");
        }
        Self { refused: true, ..Self::new(exit, message).hint(hint) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\n  try: {}", self.message, self.next())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failure, error.to_string())
    }
}
