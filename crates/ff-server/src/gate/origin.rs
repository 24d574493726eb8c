//! A server that asks for no token must still not be driven by pages of other sites: a browser on
//! the same machine would do it for them.

use axum::http::{HeaderMap, HeaderName, header};

use crate::refusal::{Answered, Refusal};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub fn check(headers: &HeaderMap) -> Answered<()> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    let own_site = text(SITE).is_none_or(|site| matches!(site, "same-origin" | "none"));
    let own_origin = text(header::ORIGIN).is_none_or(|origin| {
        origin.split_once("://").is_some_and(|(_, authority)| authority == host)
    });
    if own_site && own_origin {
        return Ok(());
    }
    Err(Refusal::new("forbidden", "a page of another site may not use a server without tokens"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_refused() {
        let passes = |pairs: &[(HeaderName, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
            check(&pairs.collect()).is_ok()
        };
        let host = (header::HOST, "127.0.0.1:7411");
        assert!(passes(&[]));
        assert!(passes(&[host.clone(), (header::ORIGIN, "http://127.0.0.1:7411")]));
        assert!(!passes(&[host.clone(), (header::ORIGIN, "http://evil.example")]));
        assert!(!passes(&[host.clone(), (header::ORIGIN, "null")]));
        assert!(!passes(&[host, (SITE, "cross-site")]));
    }
}
