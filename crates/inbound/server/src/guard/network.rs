//! The network of an address: the unit that the guard counts.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// The lengths of the prefixes that make addresses one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPrefixes {
    /// Of IPv4 addresses, 0 to 32.
    pub ipv4: u8,
    /// Of IPv6 addresses, 0 to 128.
    pub ipv6: u8,
}

impl Default for NetworkPrefixes {
    fn default() -> Self {
        NetworkPrefixes { ipv4: 32, ipv6: 64 }
    }
}

/// A network as a number: its IPv6 address, where IPv4 is mapped. A canonical address is never a mapped one, so that
/// no two networks share a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NetworkKey(u128);

impl NetworkKey {
    /// The network of an address. An IPv4-mapped IPv6 address is the IPv4 address.
    pub(super) fn of(address: IpAddr, prefixes: NetworkPrefixes) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let bits = u32::from(prefixes.ipv4.min(32));
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                let network = address.to_bits() & mask;
                NetworkKey(std::net::Ipv4Addr::from_bits(network).to_ipv6_mapped().to_bits())
            }
            IpAddr::V6(address) => {
                let bits = u32::from(prefixes.ipv6.min(128));
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                NetworkKey(address.to_bits() & mask)
            }
        }
    }

    pub(super) const fn bits(self) -> u128 {
        self.0
    }

    /// The network, for people.
    pub(super) fn shown(self, prefixes: NetworkPrefixes) -> IpNet {
        let address = IpAddr::V6(Ipv6Addr::from_bits(self.0)).to_canonical();
        let bits = match address {
            IpAddr::V4(_) => prefixes.ipv4.min(32),
            IpAddr::V6(_) => prefixes.ipv6.min(128),
        };
        IpNet::new(address, bits).unwrap_or_else(|_| IpNet::from(address))
    }
}

impl fmt::Display for NetworkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::V6(Ipv6Addr::from_bits(self.0)).to_canonical().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: &str, ipv4: u8, ipv6: u8) -> String {
        let prefixes = NetworkPrefixes { ipv4, ipv6 };
        NetworkKey::of(address.parse().unwrap(), prefixes).shown(prefixes).to_string()
    }

    #[test]
    fn addresses_of_one_prefix_are_one_network() {
        assert_eq!(shown("192.0.2.7", 32, 64), "192.0.2.7/32");
        assert_eq!(shown("192.0.2.7", 24, 64), "192.0.2.0/24");
        assert_eq!(shown("192.0.2.7", 0, 64), "0.0.0.0/0");
        assert_eq!(shown("2001:db8:1:2:3:4:5:6", 32, 64), "2001:db8:1:2::/64");
        assert_eq!(shown("2001:db8:1:2:3:4:5:6", 32, 128), "2001:db8:1:2:3:4:5:6/128");
        assert_eq!(shown("2001:db8:1:2:3:4:5:6", 32, 0), "::/0");
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address() {
        let prefixes = NetworkPrefixes::default();
        let key = |address: &str| NetworkKey::of(address.parse().unwrap(), prefixes);
        assert_eq!(key("::ffff:192.0.2.7"), key("192.0.2.7"));
        assert_ne!(key("::ffff:192.0.2.7"), key("192.0.2.8"));
        assert_ne!(key("::"), key("0.0.0.0"), "the empty IPv6 prefix is no IPv4 network");
    }
}
