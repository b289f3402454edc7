//! Addresses and networks, as bits.

use std::fmt;
use std::net::IpAddr;

/// A network: the addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) address: IpAddr,
    pub(crate) length: u32,
}

impl Network {
    pub(crate) fn holds(&self, value: &str) -> bool {
        let Some(address) = address(value) else { return false };
        let leading = |address| leading_bits(address, self.length);
        address.is_ipv4() == self.address.is_ipv4() && leading(address) == leading(self.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// The key of an address's counter: all of an IPv4 address, the first 64 bits of an IPv6 address,
/// and the text of anything else.
pub(crate) fn counted_under(value: &str) -> String {
    match address(value) {
        Some(address @ IpAddr::V4(_)) => address.to_string(),
        Some(address @ IpAddr::V6(_)) => format!("{:x}", leading_bits(address, 64)),
        None => value.to_owned(),
    }
}

/// An IPv4 address mapped to IPv6 counts as IPv4.
fn address(value: &str) -> Option<IpAddr> {
    value.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn leading_bits(address: IpAddr, length: u32) -> u128 {
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    bits.checked_shr(width - length.min(width)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_net_holds_its_own_addresses_and_no_others() {
        let net = Network { address: "10.1.0.0".parse().unwrap(), length: 16 };
        assert!(net.holds("10.1.9.9") && net.holds("::ffff:10.1.0.1"));
        assert!(!net.holds("10.2.0.1") && !net.holds("a01::1") && !net.holds("ada"));
    }

    #[test]
    fn ipv6_is_counted_by_its_first_half() {
        assert_eq!(counted_under("2001:db8:1:2::1"), counted_under("2001:db8:1:2:9::9"));
        assert_ne!(counted_under("2001:db8:1:2::1"), counted_under("2001:db8:1:3::1"));
        assert_ne!(counted_under("192.0.2.1"), counted_under("192.0.2.2"));
    }
}
