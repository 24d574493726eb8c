//! What a server says of itself while it runs, on stderr: text on a terminal, and JSON, one object
//! on each line, where a program reads it.

use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;

/// From here on the log is written. Whoever has begun one before keeps it.
pub fn begin(level: LevelFilter) {
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
    let _ = match io::stderr().is_terminal() {
        true => log.try_init(),
        false => log.json().flatten_event(true).try_init(),
    };
}

/// How much is told.
pub fn level(text: &str) -> Result<LevelFilter, String> {
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    let level = known.contains(&text).then(|| text.parse().ok()).flatten();
    level.ok_or_else(|| format!("{text:?} is no level: say {}", known.join(", ")))
}
