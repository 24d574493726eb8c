//! What a server says of itself while it runs, on stderr: text on a terminal, and JSON, one object
//! on each line, where a program reads it.

use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

/// Changes how much is logged while the process runs.
pub type Handle = reload::Handle<LevelFilter, Registry>;

/// From here on the log is written. A log that was begun before stays as it is.
pub fn begin(level: LevelFilter) -> Handle {
    let (level, handle) = reload::Layer::new(level);
    let log = registry().with(level);
    let _ = match io::stderr().is_terminal() {
        true => log.with(fmt::layer().with_writer(io::stderr)).try_init(),
        false => {
            let json = fmt::layer().json().flatten_event(true).with_writer(io::stderr);
            log.with(json).try_init()
        }
    };
    handle
}

/// How much is told.
pub fn level(text: &str) -> Result<LevelFilter, String> {
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    let level = known.contains(&text).then(|| text.parse().ok()).flatten();
    level.ok_or_else(|| format!("{text:?} is no level: say {}", known.join(", ")))
}
