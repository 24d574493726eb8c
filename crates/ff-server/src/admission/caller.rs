//! To whom what a request takes is counted: a token, or an address where no token is needed.

use std::net::{IpAddr, Ipv6Addr};

use uuid::Uuid;

use crate::gate::Principal;
use crate::route::Access;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    Token(Uuid),
    /// The token of the configuration, or every caller of a server without tokens.
    Root,
    Address(IpAddr),
}

impl Caller {
    pub fn new(principal: &Principal, access: Access, remote: IpAddr) -> Self {
        match access {
            Access::Public | Access::Waitpoint => Self::Address(block(remote)),
            Access::Known | Access::Scoped(_) => principal.token_id.map_or(Self::Root, Self::Token),
        }
    }

    pub fn has_token(self) -> bool {
        !matches!(self, Self::Address(_))
    }
}

/// What counts as one address. A host on IPv6 has a network of 64 bits to itself and can come from
/// a new address each time.
pub fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}
