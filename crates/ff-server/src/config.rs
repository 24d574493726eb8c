//! Settings and where each came from: defaults, then `flowfabric.toml`, then `FF_*` variables, then
//! flags. A key that nobody knows is refused, because it is a setting that somebody believes in.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ff_api::Span;

use crate::secrets;
use crate::webhooks::guard::{self, Guard};

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
    /// Networks of one's own that webhooks may call.
    pub webhook_allow: Option<String>,
    pub payload_bytes: usize,
    pub body_bytes: usize,
    pub connections: usize,
    pub requests: usize,
    pub streams_per_token: usize,
    pub header_timeout: Duration,
    pub body_idle: Duration,
    pub connection_idle: Duration,
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
    backend: some, shown_url, "sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE.";
    auth: auth, shown_auth, "Who is let in: tokens (whoever has one) or none (everybody).";
    insecure: switch, ToString::to_string, "Listen beyond this machine without tokens.";
    root_token: token, shown_secret, "A token that may do everything; it is never stored.";
    waitpoint_secrets: some_secrets, shown_secret, "id:hex,…: what waitpoint tokens rest on.";
    tls_cert: some_path, shown_some_path, "A PEM file with the certificate chain for TLS.";
    tls_key: some_path, shown_some_path, "A PEM file with the private key for TLS.";
    webhook_allow: some_networks, shown_text, "Networks of one's own that webhooks may call.";
    payload_bytes: count, ToString::to_string, "The largest payload or result.";
    body_bytes: count, ToString::to_string, "The largest body of a request.";
    connections: count, ToString::to_string, "How many connections may be open.";
    requests: count, ToString::to_string, "How many requests may be worked on at once.";
    streams_per_token: count, ToString::to_string, "How many streams one token may hold open.";
    header_timeout: span, shown_span, "How long the head of a request may take to arrive.";
    body_idle: span, shown_span, "How long a body may pause.";
    connection_idle: span, shown_span, "How long a connection may stand still.";
    drain: span, shown_span, "How long open requests are waited for at the end.";
}

fn is_secret(key: &str) -> bool {
    matches!(key, "root_token" | "backend" | "waitpoint_secrets")
}

/// Variables that belong to clients and tests, not to the server.
const FOREIGN: [&str; 6] =
    ["FF_URL", "FF_TOKEN", "FF_NAMESPACE", "FF_OUTPUT", "FF_CONFIG", "FF_LOG"];
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
            webhook_allow: None,
            payload_bytes: 1024 * 1024,
            body_bytes: 16 * 1024 * 1024,
            connections: 4096,
            requests: 1024,
            streams_per_token: 32,
            header_timeout: Duration::from_secs(30),
            body_idle: Duration::from_secs(10),
            connection_idle: Duration::from_secs(75),
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

    /// Refuses settings that contradict each other.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |text: &str| Err(ConfigError::Contradiction(text.to_owned()));
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return refuse("tls_cert and tls_key are needed together");
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

fn parsed<T: std::str::FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn count(text: &str) -> Result<usize, String> {
    let number: usize = parsed(text)?;
    if number == 0 { Err("it must be at least 1".to_owned()) } else { Ok(number) }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("say true or false".to_owned()),
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let Span(duration) = parsed(text)?;
    if duration.is_zero() { Err("it must be longer than nothing".to_owned()) } else { Ok(duration) }
}

fn auth(text: &str) -> Result<Auth, String> {
    match text {
        "tokens" => Ok(Auth::Tokens),
        "none" => Ok(Auth::None),
        _ => Err("say tokens or none".to_owned()),
    }
}

fn token(text: &str) -> Result<Option<String>, String> {
    const SHORTEST: usize = 32;
    if text.len() < SHORTEST {
        return Err(format!("a token has at least {SHORTEST} characters"));
    }
    Ok(Some(text.to_owned()))
}

fn some_secrets(text: &str) -> Result<Option<String>, String> {
    secrets::parse(text).map(|_| Some(text.to_owned()))
}

fn some_networks(text: &str) -> Result<Option<String>, String> {
    guard::parse(text).map(|_| Some(text.to_owned()))
}

fn shown_text(text: &Option<String>) -> String {
    text.clone().unwrap_or_default()
}

fn some(text: &str) -> Result<Option<String>, String> {
    path(text)?;
    Ok(Some(text.to_owned()))
}

fn some_path(text: &str) -> Result<Option<PathBuf>, String> {
    path(text).map(Some)
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}

fn shown_path(path: &Path) -> String {
    path.display().to_string()
}

fn shown_some_path(path: &Option<PathBuf>) -> String {
    path.as_deref().map(shown_path).unwrap_or_default()
}

fn shown_span(duration: &Duration) -> String {
    Span(*duration).to_string()
}

fn shown_auth(auth: &Auth) -> String {
    match auth {
        Auth::Tokens => "tokens".to_owned(),
        Auth::None => "none".to_owned(),
    }
}

fn shown_secret(secret: &Option<String>) -> String {
    secret.as_ref().map(|_| "(hidden)".to_owned()).unwrap_or_default()
}

/// A URL without its password.
fn shown_url(url: &Option<String>) -> String {
    let Some(url) = url else { return String::new() };
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (user, host))) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:(hidden)@{host}")
        }
        None => url.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn load(
        file: &str,
        environment: &[(&str, &str)],
        flags: &[(&str, &str)],
    ) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.toml");
        std::fs::write(&path, file).unwrap();
        let (environment, flags) = (pairs(environment), pairs(flags));
        let layers = Layers { file: Some(path), environment, flags };
        Config::load(&layers).map(|(config, _)| config).map_err(|error| error.to_string())
    }

    #[test]
    fn later_layers_win() {
        let file = "listen = \"127.0.0.1:1\"\nconnections = 7\nrequests = 8\n";
        let environment = [("FF_LISTEN", "127.0.0.1:2"), ("FF_REQUESTS", "9")];
        let config = load(file, &environment, &[("listen", "127.0.0.1:3")]).unwrap();
        assert_eq!((config.listen.port(), config.connections, config.requests), (3, 7, 9));
        assert_eq!(config.origin("listen"), Origin::Flag);
        assert_eq!(config.origin("requests"), Origin::Environment("FF_REQUESTS".into()));
        assert!(matches!(config.origin("connections"), Origin::File(_)));
        assert_eq!(config.origin("drain"), Origin::Default);
        assert_eq!(config.shown().len(), SETTINGS.len());
    }

    #[test]
    fn mistakes_are_refused() {
        for (file, flags, expected) in [
            ("lisen = \"x\"", &[][..], "no setting \"lisen\""),
            ("listen = \"x\"", &[], "listen = \"x\""),
            ("listen = [1]", &[], "which no setting is"),
            ("listen = ", &[], "f.toml"),
            ("", &[("drain", "0s")], "longer than nothing"),
            ("", &[("root_token", "short")], "at least 32"),
            ("", &[("tls_key", "x")], "needed together"),
            ("", &[("auth", "none"), ("listen", "0.0.0.0:1")], "this machine only"),
            ("", &[("auth", "none"), ("listen", "[::]:1")], "this machine only"),
        ] {
            let error = load(file, &[], flags).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let open = [("auth", "none"), ("listen", "0.0.0.0:1"), ("insecure", "true")];
        assert!(load("", &[], &open).is_ok());
        assert!(load("", &[], &[("auth", "none")]).is_ok());
    }

    #[test]
    fn secrets_come_from_files_and_are_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "canary-canary-canary-canary-canary\n").unwrap();
        let url = "postgres://me:canary@db/x";
        let environment = [("FF_ROOT_TOKEN_FILE", path.to_str().unwrap()), ("FF_BACKEND", url)];
        let config = load("", &environment, &[]).unwrap();
        assert_eq!(config.root_token.as_deref(), Some("canary-canary-canary-canary-canary"));
        let printed = format!("{config:?} {:?}", config.shown());
        assert!(!printed.contains("canary"), "{printed}");
        assert!(printed.contains("postgres://me:(hidden)@db/x"), "{printed}");
        let error = load("", &[("FF_ROOT_TOKEN", "canary")], &[]).unwrap_err();
        assert!(!error.contains("canary"), "{error}");
    }

    #[test]
    fn strange_variables_are_named() {
        let environment = pairs(&[("FF_LISTN", "x"), ("FF_URL", "x"), ("PATH", "x")]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        std::fs::write(&file, "").unwrap();
        let layers = Layers { file: Some(file), environment, flags: Vec::new() };
        assert_eq!(Config::load(&layers).unwrap().1, ["FF_LISTN"]);
    }
}
