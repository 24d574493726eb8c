//! Which addresses outside may be called. A name is resolved once, every address of it is checked,
//! and the connection goes to an address that was.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A part of the address space, such as `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// Networks of one's own that may be called all the same.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    allowed: Arc<[Network]>,
}

/// Networks separated by commas; an address stands for itself.
pub fn parse(text: &str) -> Result<Vec<Network>, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(network).collect()
}

fn network(word: &str) -> Result<Network, String> {
    let unreadable = || format!("{word:?} is no network; say for example 10.1.0.0/16 or ::1");
    let (address, bits) = word.split_once('/').unwrap_or((word, ""));
    let address: IpAddr = address.parse().map_err(|_| unreadable())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = if bits.is_empty() { most } else { bits.parse().map_err(|_| unreadable())? };
    if bits > most { Err(unreadable()) } else { Ok(Network { address, bits }) }
}

impl Network {
    pub fn has(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(given)) => {
                let shift = 32 - self.bits;
                shift == 32 || own.to_bits() >> shift == given.to_bits() >> shift
            }
            (IpAddr::V6(own), IpAddr::V6(given)) => {
                let shift = 128 - self.bits;
                shift == 128 || own.to_bits() >> shift == given.to_bits() >> shift
            }
            _ => false,
        }
    }
}

impl Guard {
    pub fn new(allowed: Vec<Network>) -> Self {
        Self { allowed: allowed.into() }
    }

    /// An address that may be written down as a receiver. What its name stands for is checked each
    /// time it is called.
    pub fn check_url(&self, text: &str) -> Result<Url, String> {
        let url = Url::parse(text).map_err(|error| format!("the url cannot be read: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("the url must begin with https:// or http://".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err("the url must not have a user, a password or a fragment".to_owned());
        }
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if let Ok(address) = literal {
            self.check(address)?;
        }
        Ok(url)
    }

    pub fn check(&self, address: IpAddr) -> Result<(), String> {
        let address = address.to_canonical();
        if is_public(address) || self.allowed.iter().any(|network| network.has(address)) {
            return Ok(());
        }
        Err(format!("{address} is no public address, and webhook_allow does not have it"))
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            // The owner of a webhook reads this. It must not learn what a name stands for inside
            // the network, nor whether it stands for anything.
            let refuse = |why: String| {
                tracing::debug!(name = name.as_str(), why, "a receiver was not called");
                io::Error::other("its name has no address that webhooks may call")
            };
            let found = tokio::net::lookup_host((name.as_str(), 0)).await;
            let found: Vec<SocketAddr> =
                found.map_err(|error| refuse(error.to_string()))?.collect();
            for address in &found {
                guard.check(address.ip()).map_err(refuse)?;
            }
            Ok::<Addrs, _>(Box::new(found.into_iter()))
        })
    }
}

/// Whether an address is meant to be reached from everywhere.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    // Besides what the library knows, all of IANA's registry of special-purpose addresses: "this
    // network", shared addresses of providers (with the metadata of one of them), protocol
    // assignments, sinks for queries about private names, relays, benchmarks, and what is reserved.
    let special = matches!(
        address.octets(),
        [0 | 240..=255, ..]
            | [100, 64..=127, ..]
            | [192, 0, 0, _]
            | [192, 31, 196, _]
            | [192, 52, 193, _]
            | [192, 88, 99, _]
            | [192, 175, 48, _]
            | [198, 18 | 19, ..]
    );
    !(special
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        // Old forms of addresses of the other kind, and the ways to translate them.
        [0, 0, 0, 0, 0, 0, ..] => false,
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x64, 0xff9b, 1, ..] => false,
        [0x2002, high, low, ..] => embedded(high, low),
        // IANA's registry of special-purpose addresses: protocol assignments (tunnels, benchmarks
        // and identifiers that are no places), documentation, and sinks.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [0x2620, 0x4f, 0x8000, ..] => false,
        // Only this part of the space is given out.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ones_own_are_refused() {
        let guard = Guard::default();
        let refused = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.9.9.9 \
            169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.192 192.168.1.1 192.0.2.1 \
            198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 :: ::1 \
            ::ffff:10.0.0.1 ::ffff:127.0.0.1 ::7f00:1 64:ff9b::a00:1 64:ff9b::7f00:1 \
            64:ff9b:1::1 2001::1 2001:db8::1 2002:7f00:1:: 2002:a00:1:: fc00::1 \
            fd00:ec2::254 fe80::1 fec0::1 ff02::1 100::1 100:0:0:1::1 192.88.99.1 \
            192.31.196.1 192.52.193.1 192.175.48.1 2001:1::1 2001:2::1 2001:3::1 \
            2001:4:112::1 2001:10::1 2001:20::1 2001:2f:ffff::1 2001:30::1 2001:1ff::1 \
            2002:c058:6301::1 2620:4f:8000::1 3fff::1 3fff:fff:ffff::1 5f00::1";
        for refused in refused.split_whitespace() {
            assert!(guard.check(refused.parse().unwrap()).is_err(), "{refused}");
        }
        for public in [
            "1.1.1.1",
            "93.184.216.34",
            "192.88.98.1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700:4700::1111",
            "64:ff9b::101:101",
            "3fff:1000::1",
        ] {
            assert_eq!(guard.check(public.parse().unwrap()), Ok(()), "{public}");
        }
    }

    #[test]
    fn networks_are_allowed_by_name() {
        let guard = Guard::new(parse("127.0.0.0/8, 10.1.2.3,fd00::/8").unwrap());
        for allowed in ["127.0.0.1", "::ffff:127.0.0.1", "10.1.2.3", "fd12::1"] {
            assert_eq!(guard.check(allowed.parse().unwrap()), Ok(()), "{allowed}");
        }
        for refused in ["10.1.2.4", "192.168.0.1", "fc00::1", "::1"] {
            assert!(guard.check(refused.parse().unwrap()).is_err(), "{refused}");
        }
        assert!(Guard::new(parse("0.0.0.0/0").unwrap()).check([10, 0, 0, 1].into()).is_ok());
        for bad in ["10.0.0.0/33", "x", "10.0.0.0/", "::/129", "10.0.0.0/-1"] {
            assert!(parse(bad).is_err() || bad.ends_with('/'), "{bad}");
        }
    }

    #[test]
    fn urls_are_checked_before_they_are_written_down() {
        let guard = Guard::default();
        for bad in [
            "",
            "example.com",
            "ftp://example.com",
            "file:///etc/passwd",
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://017700000001/",
            "http://[::1]:80/",
            "http://[::ffff:7f00:1]/",
            "http://user@example.com/",
            "http://:x@example.com/",
            "https://example.com/#x",
            "http://169.254.169.254/latest/meta-data",
        ] {
            assert!(guard.check_url(bad).is_err(), "{bad}");
        }
        assert!(guard.check_url("https://example.com:8443/hook?x=1").is_ok());
    }

    #[tokio::test]
    async fn names_are_checked_when_they_are_resolved() {
        let name = || "localhost".parse::<Name>().unwrap();
        let refused = Guard::default().resolve(name()).await.err().unwrap().to_string();
        let unknown = "no-such-name.invalid".parse::<Name>().unwrap();
        let unknown = Guard::default().resolve(unknown).await.err().unwrap().to_string();
        assert_eq!(refused, unknown, "what a name stands for is not told");
        assert!(!refused.contains("127.0.0.1") && !refused.contains("::1"), "{refused}");
        let allowed = Guard::new(parse("127.0.0.0/8,::1").unwrap());
        assert!(allowed.resolve(name()).await.unwrap().count() > 0);
    }
}
