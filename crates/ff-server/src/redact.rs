//! Settings as they are shown: without what opens a database.

use reqwest::Url;

const HIDDEN: &str = "(hidden)";

/// Parameters of a database URL that say where and how, and not by what right.
const HARMLESS: [&str; 11] = [
    "application_name",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "sslmode",
    "ssl-mode",
    "statement-cache-capacity",
    "target_session_attrs",
    "user",
];

/// A database URL without its password, in whatever form that was given. A text that is no URL is
/// not shown at all.
pub fn database_url(url: &Option<String>) -> String {
    let Some(text) = url else { return String::new() };
    if text.starts_with("sqlite:") {
        return text.clone();
    }
    let Ok(parsed) = Url::parse(text) else { return HIDDEN.to_owned() };
    let Some(host) = parsed.host_str() else { return HIDDEN.to_owned() };
    let mut shown = format!("{}://{}", parsed.scheme(), parsed.username());
    if parsed.password().is_some() {
        shown += ":";
        shown += HIDDEN;
    }
    if parsed.password().is_some() || !parsed.username().is_empty() {
        shown += "@";
    }
    shown += host;
    if let Some(port) = parsed.port() {
        shown += &format!(":{port}");
    }
    shown += parsed.path();
    for (at, (key, value)) in parsed.query_pairs().enumerate() {
        let known = HARMLESS.contains(&key.to_ascii_lowercase().as_str());
        let value = if known { &*value } else { HIDDEN };
        shown += &format!("{}{key}={value}", if at == 0 { '?' } else { '&' });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_database_url_shows_its_password() {
        let shown = |url: &str| database_url(&Some(url.to_owned()));
        for (url, expected) in [
            ("postgres://me:canary@db/x", "postgres://me:(hidden)@db/x"),
            ("postgres://me:can%61ry@db/x", "postgres://me:(hidden)@db/x"),
            ("postgres://me@db:5433/x?sslmode=require", "postgres://me@db:5433/x?sslmode=require"),
            ("postgres://db/x?password=canary", "postgres://db/x?password=(hidden)"),
            ("postgres://db/x?p%61ssword=canary", "postgres://db/x?password=(hidden)"),
            (
                "postgresql://me@db/x?user=me&PASSWORD=canary&sslpassword=canary&host=h",
                "postgresql://me@db/x?user=me&PASSWORD=(hidden)&sslpassword=(hidden)&host=h",
            ),
            ("postgres://db/x?options=-c%20a.b%3Dcanary", "postgres://db/x?options=(hidden)"),
            ("postgres://me:can@ary@db/x", "postgres://me:(hidden)@db/x"),
            ("postgres://me:canary@a:1,b:2/x", "(hidden)"),
            ("host=db password=canary", "(hidden)"),
            ("sqlite:/data/flow@fabric.db", "sqlite:/data/flow@fabric.db"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
