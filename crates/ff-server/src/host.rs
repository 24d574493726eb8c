//! The `Host` of a request: there is one, and a server without tokens answers to its own names
//! alone. Otherwise a page of another site could have its name resolve to this machine and act
//! through the browser of its reader (DNS rebinding).

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Request, Version, header};

use crate::refusal::{Answered, Refusal};

/// The names that a server answers to.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    allowed: Vec<String>,
    /// The address that it listens on, unless that is every one.
    own: Option<IpAddr>,
}

/// Names separated by commas, without ports; `*` allows every name.
pub fn parse(text: &str) -> Result<Vec<String>, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(name).collect()
}

fn name(word: &str) -> Result<String, String> {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
    if word == "*" || (word.chars().all(plain) && (bare(word) == word || literal(word).is_some())) {
        return Ok(word.to_ascii_lowercase());
    }
    Err(format!("{word:?} is no host name; use for example flows.example.com, without a port"))
}

/// A request of HTTP/1.1 has one `Host`, and it can be read.
pub fn check<B>(request: &Request<B>) -> Answered<()> {
    let mut given = request.headers().get_all(header::HOST).iter();
    let (first, second) = (given.next(), given.next());
    let refuse = |detail: &str| Err(Refusal::new("invalid_host", detail));
    if second.is_some() {
        return refuse("the request has more than one Host header");
    }
    let Some(first) = first else {
        // Probes of load balancers speak HTTP/1.0, which has no such rule.
        return match request.version() {
            Version::HTTP_10 => Ok(()),
            _ => refuse("the request has no Host header"),
        };
    };
    match first.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) {
        Some(authority) if !authority.as_str().contains('@') => Ok(()),
        _ => refuse("the Host header is not a host name with an optional port"),
    }
}

impl Hosts {
    pub fn new(allowed: Vec<String>, listen: IpAddr) -> Self {
        let own = (!listen.is_unspecified()).then_some(listen);
        Self { allowed, own }
    }

    /// For a server without tokens: loopback, `localhost`, its own address and what is configured.
    pub fn check_own(&self, headers: &HeaderMap) -> Answered<()> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = bare(host.unwrap_or_default()).to_ascii_lowercase();
        let address = literal(&host);
        let loopback = address.is_some_and(|address| address.to_canonical().is_loopback());
        let local = loopback || host == "localhost" || (address.is_some() && address == self.own);
        if local || self.is_configured(&host) {
            return Ok(());
        }
        let detail = format!(
            "the Host {host:?} is not served without tokens: use localhost or a loopback \
             address, or add it to the setting allowed_hosts"
        );
        Err(Refusal::new("host_not_allowed", detail))
    }

    fn is_configured(&self, host: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == "*" || allowed == host)
    }
}

/// A host without its port.
fn bare(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && port.bytes().all(|b| b.is_ascii_digit()) => {
            name
        }
        _ => host,
    }
}

fn literal(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(allowed: &str, listen: &str, host: &str) -> bool {
        let hosts = Hosts::new(parse(allowed).unwrap(), listen.parse().unwrap());
        let headers = [(header::HOST, host.parse().unwrap())].into_iter().collect();
        hosts.check_own(&headers).is_ok()
    }

    #[test]
    fn names_of_others_are_refused() {
        for host in ["localhost", "LOCALHOST:7411", "127.0.0.1", "127.9.9.9:1", "[::1]:7411"] {
            assert!(passes("", "127.0.0.1", host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""]
        {
            assert!(!passes("", "127.0.0.1", host), "{host}");
            assert!(!passes("flows.example.com", "0.0.0.0", host), "{host}");
            assert!(passes("*", "127.0.0.1", host), "{host}");
        }
        assert!(passes("a.example, Flows.Example.com", "0.0.0.0", "flows.example.com:80"));
        assert!(passes("", "10.0.0.1", "10.0.0.1:7411"));
        for bad in ["a.example:80", "http://a.example", "a b", "ü"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_has_one_host() {
        let code = |version, hosts: &[&str]| {
            let mut request = Request::builder().version(version);
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            check(&request.body(()).unwrap()).map_err(|refusal| refusal.code)
        };
        assert_eq!(code(Version::HTTP_11, &["a.example:80"]), Ok(()));
        assert_eq!(code(Version::HTTP_10, &[]), Ok(()));
        for hosts in [&[][..], &["a", "a"], &["a", "b"], &["a b"], &["u@a"], &["a/b"], &[""]] {
            assert_eq!(code(Version::HTTP_11, hosts), Err("invalid_host"), "{hosts:?}");
        }
    }
}
