//! How values of settings are read and shown.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ff_api::Span;

use super::Auth;
use crate::webhooks::guard;
use crate::{host, secrets};

pub fn parsed<T: std::str::FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

pub fn count(text: &str) -> Result<usize, String> {
    let number: usize = parsed(text)?;
    if number == 0 { Err("it must be at least 1".to_owned()) } else { Ok(number) }
}

pub fn some_count(text: &str) -> Result<Option<usize>, String> {
    count(text).map(Some)
}

pub fn shown_count(count: &Option<usize>) -> String {
    count.map(|count| count.to_string()).unwrap_or_default()
}

pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("say true or false".to_owned()),
    }
}

pub fn span(text: &str) -> Result<Duration, String> {
    let Span(duration) = parsed(text)?;
    if duration.is_zero() { Err("it must be longer than nothing".to_owned()) } else { Ok(duration) }
}

/// A revoked token loses its streams and long polls within this time, whatever is configured.
pub const LONGEST_TOKEN_CHECK: Duration = Duration::from_secs(15);

pub fn token_span(text: &str) -> Result<Duration, String> {
    let duration = span(text)?;
    match duration > LONGEST_TOKEN_CHECK {
        true => Err(too_rarely()),
        false => Ok(duration),
    }
}

pub fn too_rarely() -> String {
    let longest = Span(LONGEST_TOKEN_CHECK);
    format!("it must be at most {longest}, because a revoked token loses its streams within it")
}

pub fn auth(text: &str) -> Result<Auth, String> {
    match text {
        "tokens" => Ok(Auth::Tokens),
        "none" => Ok(Auth::None),
        _ => Err("say tokens or none".to_owned()),
    }
}

pub fn token(text: &str) -> Result<Option<String>, String> {
    const SHORTEST: usize = 32;
    if text.len() < SHORTEST {
        return Err(format!("a token has at least {SHORTEST} characters"));
    }
    Ok(Some(text.to_owned()))
}

pub fn some_secrets(text: &str) -> Result<Option<String>, String> {
    secrets::parse(text).map(|_| Some(text.to_owned()))
}

pub fn some_networks(text: &str) -> Result<Option<String>, String> {
    guard::parse(text).map(|_| Some(text.to_owned()))
}

pub fn some_level(text: &str) -> Result<Option<String>, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    match LEVELS.contains(&text) {
        true => Ok(Some(text.to_owned())),
        false => Err(format!("use one of {}", LEVELS.join(", "))),
    }
}

pub fn some_hosts(text: &str) -> Result<Option<String>, String> {
    host::parse(text).map(|_| Some(text.to_owned()))
}

pub fn shown_text(text: &Option<String>) -> String {
    text.clone().unwrap_or_default()
}

pub fn some(text: &str) -> Result<Option<String>, String> {
    path(text)?;
    Ok(Some(text.to_owned()))
}

pub fn some_path(text: &str) -> Result<Option<PathBuf>, String> {
    path(text).map(Some)
}

pub fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}

pub fn shown_path(path: &Path) -> String {
    path.display().to_string()
}

pub fn shown_some_path(path: &Option<PathBuf>) -> String {
    path.as_deref().map(shown_path).unwrap_or_default()
}

pub fn shown_span(duration: &Duration) -> String {
    Span(*duration).to_string()
}

pub fn shown_auth(auth: &Auth) -> String {
    match auth {
        Auth::Tokens => "tokens".to_owned(),
        Auth::None => "none".to_owned(),
    }
}

pub fn shown_secret(secret: &Option<String>) -> String {
    secret.as_ref().map(|_| "(hidden)".to_owned()).unwrap_or_default()
}
