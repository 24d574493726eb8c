//! Layers, mistakes and secrets of the configuration.

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
        ("", &[("body_bytes", "99999999")], "body_budget must be at least twice body_bytes"),
        ("", &[("log", "loud")], "off, error, warn"),
        ("", &[("burst", "5")], "burst needs requests_per_second"),
        ("", &[("requests_per_second", "0")], "at least 1"),
        ("", &[("trusted_proxies", "proxy")], "is no network"),
        ("", &[("token_check", "16s")], "token_check = \"16s\": it must be at most 15s"),
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
    assert!(load("", &[], &[("token_check", "15s")]).is_ok());
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

#[test]
fn plain_http_beyond_this_machine_is_warned_of() {
    let warned = |flags: &[(&str, &str)]| !load("", &[], flags).unwrap().warnings().is_empty();
    assert!(!warned(&[]));
    assert!(!warned(&[("listen", "[::1]:1")]));
    assert!(warned(&[("listen", "0.0.0.0:1")]));
    assert!(warned(&[("listen", "10.0.0.1:1")]));
    assert!(!warned(&[("listen", "0.0.0.0:1"), ("tls_proxy", "true")]));
    assert!(!warned(&[("listen", "0.0.0.0:1"), ("tls_cert", "c"), ("tls_key", "k")]));
}
