//! What a server says of itself while it runs, on stderr: text on a terminal, and JSON, one object
//! on each line, where a program reads it. Once the log is JSON, nothing else is written there.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

/// Changes how much is logged while the process runs.
pub type Handle = reload::Handle<LevelFilter, Registry>;

/// How the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text on a terminal, JSON elsewhere.
    ByReader,
    Text,
}

static JSON: AtomicBool = AtomicBool::new(false);

/// Begins the log. A log that was begun before stays as it is.
pub fn begin(level: LevelFilter, style: Style) -> Handle {
    let terminal = io::stderr().is_terminal();
    let (filter, handle) = reload::Layer::new(level);
    let log = registry().with(filter);
    // A layer would complain of a closed stderr on stderr, and that ends the process.
    let layer = fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    if terminal || style == Style::Text {
        let _ = log.with(layer.with_ansi(terminal)).try_init();
        return handle;
    }
    let begun = log.with(layer.json().flatten_event(true)).try_init();
    if begun.is_ok() && level != LevelFilter::OFF {
        JSON.store(true, Ordering::Relaxed);
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    }
    handle
}

/// Whether stderr is a log of JSON, so that nothing else belongs there.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// How much is told.
pub fn level(text: &str) -> Result<LevelFilter, String> {
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    let level = known.contains(&text).then(|| text.parse().ok()).flatten();
    level.ok_or_else(|| format!("{text:?} is no level: say {}", known.join(", ")))
}
