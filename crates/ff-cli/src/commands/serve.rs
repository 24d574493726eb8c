//! `flowfabric serve`: a server until it is told to stop.

use std::path::PathBuf;

use clap::Args;
use ff_server::{Config, Layers};
use tracing::level_filters::LevelFilter;

use crate::failure::{Exit, Failure};
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
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "FF_LOG")]
    #[arg(value_parser = crate::log::level)]
    pub log: LevelFilter,
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
}

impl Serve {
    pub async fn run(self) -> Result<(), Failure> {
        let config = self.settings.load()?;
        crate::log::begin(self.settings.log);
        let listening = |address| say(&format!("listening on {address}; Ctrl-C ends it"));
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
