//! Settings and where each came from: defaults, then `flowfabric.toml`, then `FF_*` variables, then
//! flags. A key that nobody knows is refused, because it is a setting that somebody believes in.

mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::webhooks::guard::{self, Guard, Network};
use crate::{host, redact};
use values::*;

/// How the server runs.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub listen: SocketAddr,
    /// Where files are kept that are not named otherwise.
    pub data: PathBuf,
    /// `sqlite:PATH` or `postgres://…`; a file in the data folder if it is absent.
    pub backend: Option<String>,
    pub auth: Auth,
    /// Listens beyond this machine without asking for tokens.
    pub insecure: bool,
    /// A token that may do everything. It is never stored.
    pub root_token: Option<String>,
    /// `id:hex` of one or more secrets that waitpoint tokens are made with, the first one first.
    pub waitpoint_secrets: Option<String>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// How often the files of the certificate are looked at.
    pub tls_check: Duration,
    /// A proxy in front of the server speaks TLS.
    pub tls_proxy: bool,
    /// Networks of one's own that webhooks may call.
    pub webhook_allow: Option<String>,
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Option<String>,
    /// Names beside `localhost` that a server without tokens answers to.
    pub allowed_hosts: Option<String>,
    /// How much is logged; `info` if it is absent.
    pub log: Option<String>,
    pub payload_bytes: usize,
    pub body_bytes: usize,
    /// What bodies in hand may take together.
    pub body_budget: usize,
    /// How many bytes of a body must arrive each second, once `body_grace` is over.
    pub body_rate: usize,
    pub body_grace: Duration,
    pub body_idle: Duration,
    pub connections: usize,
    pub connections_per_address: usize,
    pub requests: usize,
    pub requests_per_token: usize,
    pub waits_per_token: usize,
    /// Requests that need no token.
    pub open_requests: usize,
    pub open_requests_per_address: usize,
    pub streams_per_token: usize,
    /// The rate limit of each token; there is none if it is absent.
    pub requests_per_second: Option<usize>,
    pub burst: Option<usize>,
    pub header_timeout: Duration,
    pub connection_idle: Duration,
    /// How often streams and long polls look whether their token is still good.
    pub token_check: Duration,
    pub drain: Duration,
    /// Where values came from that are not the defaults.
    pub origins: BTreeMap<&'static str, Origin>,
}

/// Whom the server lets in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// Whoever has a token.
    #[default]
    Tokens,
    /// Everybody.
    None,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// What the layers are made of. Flags have the names of settings.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Must be there if it is named; otherwise `flowfabric.toml` is read if it is there.
    pub file: Option<PathBuf>,
    pub environment: Vec<(String, String)>,
    pub flags: Vec<(String, String)>,
}

/// One setting as `config show --origin` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub key: &'static str,
    pub value: String,
    pub origin: Origin,
    pub about: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{0}")]
    File(String),
    #[error("{origin}: there is no setting {key:?}; known are {known}")]
    Unknown { origin: Origin, key: String, known: String },
    #[error("{origin}: {key} = {value:?}: {problem}")]
    Value { origin: Origin, key: &'static str, value: String, problem: String },
    #[error("{0}")]
    Contradiction(String),
}

struct Setting {
    key: &'static str,
    about: &'static str,
    secret: fn() -> bool,
    set: fn(&mut Config, &str) -> Result<(), String>,
    show: fn(&Config) -> String,
}

macro_rules! settings {
    ($($key:ident: $parse:expr, $show:expr, $about:literal;)+) => {
        const SETTINGS: &[Setting] = &[$(Setting {
            key: stringify!($key),
            about: $about,
            secret: || is_secret(stringify!($key)),
            set: |config, text| {
                config.$key = $parse(text)?;
                Ok(())
            },
            show: |config| $show(&config.$key),
        }),+];
    };
}

settings! {
    listen: parsed, ToString::to_string, "The address to listen on.";
    data: path, shown_path, "The folder for files that are not named otherwise.";
    backend: some, redact::database_url, "sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.";
    auth: auth, shown_auth, "Who is let in: tokens (whoever has one) or none (everybody).";
    insecure: switch, ToString::to_string, "Listen beyond this machine without tokens.";
    root_token: token, shown_secret, "A token that may do everything; it is never stored.";
    waitpoint_secrets: some_secrets, shown_secret, "id:hex,…: what waitpoint tokens rest on.";
    tls_cert: some_path, shown_some_path, "A PEM file with the certificate chain for TLS.";
    tls_key: some_path, shown_some_path, "A PEM file with the private key for TLS.";
    tls_check: span, shown_span, "How often replaced certificate files are looked for.";
    tls_proxy: switch, ToString::to_string, "A proxy in front of the server speaks TLS.";
    log: some_level, shown_text, "How much is logged: off, error, warn, info, debug or trace.";
    webhook_allow: some_networks, shown_text, "Networks of one's own that webhooks may call.";
    trusted_proxies: some_networks, shown_text, "Proxies whose X-Forwarded-For is believed.";
    allowed_hosts: some_hosts, shown_text, "Host names that are served without tokens.";
    payload_bytes: count, ToString::to_string, "The largest payload or result.";
    body_bytes: count, ToString::to_string, "The largest body of a request.";
    body_budget: count, ToString::to_string, "What all bodies in hand may take together.";
    body_rate: count, ToString::to_string, "Bytes of a body that must arrive each second.";
    body_grace: span, shown_span, "How long a body may be slower than body_rate at first.";
    body_idle: span, shown_span, "How long a body may pause.";
    connections: count, ToString::to_string, "How many connections may be open.";
    connections_per_address: count, ToString::to_string, "How many of them from one address.";
    requests: count, ToString::to_string, "How many requests may be worked on at once.";
    requests_per_token: count, ToString::to_string, "How many of them of one token.";
    waits_per_token: count, ToString::to_string, "How many long polls one token may have.";
    open_requests: count, ToString::to_string, "How many requests that need no token, at once.";
    open_requests_per_address: count, ToString::to_string, "How many of them from one address.";
    streams_per_token: count, ToString::to_string, "How many streams one token may hold open.";
    requests_per_second: some_count, shown_count, "The rate limit of each token; none if unset.";
    burst: some_count, shown_count, "How many requests may come at once under that limit.";
    header_timeout: span, shown_span, "How long the head of a request may take to arrive.";
    connection_idle: span, shown_span, "How long a connection may stand still.";
    token_check: token_span, shown_span, "How often open streams and waits check their token.";
    drain: span, shown_span, "How long open requests are waited for at the end.";
}

fn is_secret(key: &str) -> bool {
    matches!(key, "root_token" | "backend" | "waitpoint_secrets")
}

/// Variables that belong to clients and tests, not to the server.
const FOREIGN: [&str; 5] = ["FF_URL", "FF_TOKEN", "FF_NAMESPACE", "FF_OUTPUT", "FF_CONFIG"];
const FILE: &str = "flowfabric.toml";

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7411)),
            data: PathBuf::from("flowfabric-data"),
            backend: None,
            auth: Auth::Tokens,
            insecure: false,
            root_token: None,
            waitpoint_secrets: None,
            tls_cert: None,
            tls_key: None,
            tls_check: Duration::from_secs(30),
            tls_proxy: false,
            log: None,
            webhook_allow: None,
            trusted_proxies: None,
            allowed_hosts: None,
            payload_bytes: 1024 * 1024,
            body_bytes: 16 * 1024 * 1024,
            body_budget: 32 * 1024 * 1024,
            body_rate: 8 * 1024,
            body_grace: Duration::from_secs(5),
            body_idle: Duration::from_secs(10),
            connections: 4096,
            connections_per_address: 1024,
            requests: 1024,
            requests_per_token: 512,
            waits_per_token: 2048,
            open_requests: 64,
            open_requests_per_address: 16,
            streams_per_token: 32,
            requests_per_second: None,
            burst: None,
            header_timeout: Duration::from_secs(30),
            connection_idle: Duration::from_secs(75),
            token_check: Duration::from_secs(5),
            drain: Duration::from_secs(10),
            origins: BTreeMap::new(),
        }
    }
}

impl Config {
    /// The settings of all layers; also names variables that look like settings and are none.
    pub fn load(layers: &Layers) -> Result<(Self, Vec<String>), ConfigError> {
        let mut config = Self::default();
        let named = layers.file.clone();
        let file = named.clone().unwrap_or_else(|| PathBuf::from(FILE));
        if named.is_some() || file.is_file() {
            for (key, value) in read_file(&file)? {
                config.set(&key, &value, Origin::File(file.clone()))?;
            }
        }
        let strange = config.load_environment(&layers.environment)?;
        for (key, value) in &layers.flags {
            config.set(key, value, Origin::Flag)?;
        }
        config.check()?;
        Ok((config, strange))
    }

    /// Every setting with its value and origin; secrets are not shown.
    pub fn shown(&self) -> Vec<Shown> {
        let shown = |setting: &Setting| Shown {
            key: setting.key,
            value: (setting.show)(self),
            origin: self.origin(setting.key),
            about: setting.about,
        };
        SETTINGS.iter().map(shown).collect()
    }

    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }

    pub(crate) fn webhook_guard(&self) -> Guard {
        let networks = self.webhook_allow.as_deref().map(guard::parse);
        Guard::new(networks.and_then(Result::ok).unwrap_or_default())
    }

    pub(crate) fn host_names(&self) -> Vec<String> {
        let names = self.allowed_hosts.as_deref().map(host::parse);
        names.and_then(Result::ok).unwrap_or_default()
    }

    pub(crate) fn trusted_networks(&self) -> Vec<Network> {
        let networks = self.trusted_proxies.as_deref().map(guard::parse);
        networks.and_then(Result::ok).unwrap_or_default()
    }

    /// What an operator should know about these settings.
    pub fn warnings(&self) -> Vec<String> {
        let plain = self.tls_cert.is_none() && !self.tls_proxy;
        let mut warnings = Vec::new();
        if !self.listen.ip().is_loopback() && plain {
            warnings.push(format!(
                "{} is reachable from other machines without TLS: tokens and payloads can be \
                 read on the way. Set tls_cert and tls_key, or tls_proxy = true if a proxy in \
                 front speaks TLS",
                self.listen
            ));
        }
        warnings
    }

    /// Refuses settings that contradict each other.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |text: &str| Err(ConfigError::Contradiction(text.to_owned()));
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return refuse("tls_cert and tls_key are needed together");
        }
        if self.body_budget < 2 * self.body_bytes {
            return refuse(
                "body_budget must be at least twice body_bytes, because one token may use half \
                 of it",
            );
        }
        if self.token_check > LONGEST_TOKEN_CHECK {
            return refuse(&format!("token_check: {}", too_rarely()));
        }
        if self.burst.is_some() && self.requests_per_second.is_none() {
            return refuse("burst needs requests_per_second");
        }
        let beyond = !self.listen.ip().is_loopback();
        if self.auth == Auth::None && beyond && !self.insecure {
            return refuse(
                "without tokens the server listens on this machine only: set auth = \"tokens\", \
                 listen on 127.0.0.1, or say insecure if the network itself keeps strangers out",
            );
        }
        Ok(())
    }

    fn load_environment(&mut self, all: &[(String, String)]) -> Result<Vec<String>, ConfigError> {
        let mut strange = Vec::new();
        for (name, value) in all.iter().filter(|(name, _)| name.starts_with("FF_")) {
            let key = name["FF_".len()..].to_ascii_lowercase();
            let origin = Origin::Environment(name.clone());
            if find(&key).is_some() {
                self.set(&key, value, origin)?;
                continue;
            }
            // A secret may stand in a file, so that it is in no list of processes.
            match key.strip_suffix("_file").and_then(find).filter(|setting| (setting.secret)()) {
                Some(setting) => {
                    let text = std::fs::read_to_string(value);
                    let text = text.map_err(|e| ConfigError::File(format!("{value}: {e}")))?;
                    self.set(setting.key, text.trim_end(), origin)?;
                }
                None if FOREIGN.contains(&name.as_str()) || name.contains("TEST") => {}
                None => strange.push(name.clone()),
            }
        }
        Ok(strange)
    }

    fn set(&mut self, key: &str, value: &str, origin: Origin) -> Result<(), ConfigError> {
        let Some(setting) = find(key) else {
            let known = SETTINGS.iter().map(|setting| setting.key).collect::<Vec<_>>().join(", ");
            return Err(ConfigError::Unknown { origin, key: key.to_owned(), known });
        };
        (setting.set)(self, value).map_err(|problem| {
            let value = if (setting.secret)() { "…" } else { value };
            let (key, value) = (setting.key, value.to_owned());
            ConfigError::Value { origin: origin.clone(), key, value, problem }
        })?;
        self.origins.insert(setting.key, origin);
        Ok(())
    }
}

/// Secrets must not reach a log by way of a debug print.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entries(self.shown().into_iter().map(|shown| (shown.key, shown.value))).finish()
    }
}

fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

fn read_file(path: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let refuse = |problem: String| ConfigError::File(format!("{}: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| refuse(error.to_string().trim_end().to_owned()))?;
    let plain = |(key, value): (String, toml::Value)| match value {
        toml::Value::String(text) => Ok((key, text)),
        toml::Value::Integer(number) => Ok((key, number.to_string())),
        toml::Value::Boolean(on) => Ok((key, on.to_string())),
        other => Err(refuse(format!("{key} is a {}, which no setting is", other.type_str()))),
    };
    table.into_iter().map(plain).collect()
}

#[cfg(test)]
mod tests;
