//! Where a request came from: the peer of its connection, or what a trusted proxy says of it.

use std::net::{IpAddr, Ipv4Addr};

use axum::http::{HeaderMap, HeaderName, Request};

use crate::webhooks::guard::Network;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The other end of the connection that a request came by; the listener adds it to each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The proxies whose word about addresses is taken.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Vec<Network>);

impl Proxies {
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    pub fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.has(address))
    }

    /// The address that a request came from. Each proxy appends the address that it was called
    /// from, so the list is read from its end, and only as far as every proxy is trusted.
    pub fn remote(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut remote = peer.to_canonical();
        let given: Vec<&str> = headers
            .get_all(FORWARDED_FOR)
            .iter()
            .flat_map(|value| value.to_str().unwrap_or_default().split(','))
            .collect();
        for word in given.into_iter().rev() {
            if !self.has(remote) {
                break;
            }
            let Some(address) = parse(word.trim()) else { break };
            remote = address.to_canonical();
        }
        remote
    }
}

/// The peer of a request. One that came by no connection, as in a test of the router, has none.
pub fn peer<B>(request: &Request<B>) -> IpAddr {
    let peer = request.extensions().get::<Peer>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0)
}

/// An address, perhaps with a port, as proxies write it.
fn parse(word: &str) -> Option<IpAddr> {
    let address = word.parse::<IpAddr>().ok();
    address.or_else(|| word.parse::<std::net::SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(trusted: &str, peer: &str, forwarded: &[&str]) -> String {
        let proxies = Proxies::new(crate::webhooks::guard::parse(trusted).unwrap());
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, value.parse().unwrap());
        }
        proxies.remote(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        assert_eq!(remote("", "1.1.1.1", &["2.2.2.2"]), "1.1.1.1");
        assert_eq!(remote("10.0.0.0/8", "1.1.1.1", &["2.2.2.2"]), "1.1.1.1");
        assert_eq!(remote("10.0.0.0/8", "10.0.0.1", &["2.2.2.2"]), "2.2.2.2");
        assert_eq!(remote("10.0.0.0/8", "::ffff:10.0.0.1", &["2.2.2.2"]), "2.2.2.2");
        // What a client has written itself stands before what the proxy has seen.
        assert_eq!(remote("10.0.0.0/8", "10.0.0.1", &["9.9.9.9, 2.2.2.2"]), "2.2.2.2");
        assert_eq!(remote("10.0.0.0/8", "10.0.0.1", &["9.9.9.9", "2.2.2.2, 10.0.0.7"]), "2.2.2.2");
        assert_eq!(remote("10.0.0.0/8", "10.0.0.1", &["2.2.2.2:1234"]), "2.2.2.2");
        assert_eq!(remote("10.0.0.0/8", "10.0.0.1", &["2.2.2.2, unknown"]), "10.0.0.1");
        assert_eq!(remote("10.0.0.0/8", "10.0.0.1", &[]), "10.0.0.1");
    }
}
