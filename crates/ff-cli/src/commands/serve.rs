//! `flowfabric serve`: a server until it is told to stop.

use std::path::PathBuf;

use clap::Args;
use ff_server::{Config, Layers};
use tracing::level_filters::LevelFilter;

use crate::failure::{Exit, Failure};
use crate::log::{Handle, Style};
use crate::output::say;

/// Settings of the server on the command line; `flowfabric config show` lists them all.
#[derive(Args, Clone)]
pub struct Settings {
    /// The file with settings; `flowfabric.toml` if it is there.
    #[arg(long, value_name = "FILE", env = "FF_CONFIG")]
    pub config: Option<PathBuf>,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// `sqlite:PATH` or `postgres://…`.
    #[arg(long, value_name = "URL")]
    pub backend: Option<String>,
    /// The folder for files that are not named otherwise.
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<String>,
    /// Listen beyond this machine without asking for tokens.
    #[arg(long)]
    pub insecure: bool,
    /// How much is told on stderr: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", env = "FF_LOG", value_parser = crate::log::level)]
    pub log: Option<LevelFilter>,
    /// Any setting: `key=value`.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = crate::cli::pair)]
    pub set: Vec<(String, String)>,
}

#[derive(Args)]
pub struct Serve {
    #[command(flatten)]
    settings: Settings,
}

impl Settings {
    pub fn load(&self) -> Result<Config, Failure> {
        let mut flags = self.set.clone();
        for (name, value) in
            [("listen", &self.listen), ("backend", &self.backend), ("data", &self.data)]
        {
            flags.extend(value.clone().map(|value| (name.to_owned(), value)));
        }
        if self.insecure {
            flags.push(("insecure".to_owned(), "true".to_owned()));
            flags.push(("auth".to_owned(), "none".to_owned()));
        }
        let environment = std::env::vars().collect();
        let layers = Layers { file: self.config.clone(), environment, flags };
        let (config, strange) = Config::load(&layers).map_err(|error| {
            Failure::usage(error.to_string())
                .hint("`flowfabric config show --origin` lists the settings")
        })?;
        for name in strange {
            say(&format!("{name} looks like a setting, but there is none of that name"));
        }
        Ok(config)
    }

    /// Begins the log and reads the settings, in this order, because what is wrong with them
    /// belongs in the log. Its level is taken from them, and again on SIGHUP.
    pub fn begin(&self, style: Style) -> Result<Config, Failure> {
        let handle = crate::log::begin(self.log.unwrap_or(LevelFilter::INFO), style);
        let config = self.load()?;
        let _ = handle.reload(self.level(&config));
        self.reload_on_hangup(handle);
        Ok(config)
    }

    fn reload_on_hangup(&self, handle: Handle) {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let settings = self.clone();
            let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
            tokio::spawn(async move {
                while hangup.recv().await.is_some() {
                    settings.reload_log(&handle);
                }
            });
        }
    }

    fn reload_log(&self, handle: &Handle) {
        match self.load() {
            Ok(config) => {
                let level = self.level(&config);
                let _ = handle.reload(level);
                tracing::info!(%level, "SIGHUP: the level of the log was read again");
            }
            Err(failure) => {
                let error = failure.to_string();
                tracing::error!(error, "SIGHUP: the settings cannot be read; nothing changes");
            }
        }
    }

    /// The flag, then the setting.
    fn level(&self, config: &Config) -> LevelFilter {
        let configured = config.log.as_deref().and_then(|text| crate::log::level(text).ok());
        self.log.or(configured).unwrap_or(LevelFilter::INFO)
    }
}

impl Serve {
    pub async fn run(self) -> Result<(), Failure> {
        let config = self.settings.begin(Style::ByReader)?;
        // A log in JSON has said so already.
        let listening = |address| match crate::log::is_json() {
            true => {}
            false => say(&format!("listening on {address}; Ctrl-C ends it")),
        };
        ff_server::serve(config, listening, stopped()).await.map_err(|error| failed(&error))
    }
}

pub fn failed(error: &dyn std::error::Error) -> Failure {
    let message = error.to_string();
    let hint = match message.contains("in use by another") {
        true => "stop that process, or ask its server: --url or FF_URL says where it is",
        false => "`flowfabric doctor` looks at the store and its settings",
    };
    Failure::new(Exit::Failure, message).hint(hint)
}

/// Ctrl-C, or whatever a service manager sends.
pub async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminated.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
