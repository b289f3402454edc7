//! Addresses as values: their canonical form, and which of them share a counter.

use std::net::IpAddr;

use ipnet::IpNet;

/// How many leading bits of an address select its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PrefixLengths {
    v4: u8,
    v6: u8,
}

impl PrefixLengths {
    /// Each IPv4 address has a counter; IPv6 addresses share one by /64, the usual network of one customer.
    pub(crate) const DEFAULT: PrefixLengths = PrefixLengths { v4: 32, v6: 64 };

    /// These prefix lengths, at most the length of an address.
    pub(crate) fn new(v4: u8, v6: u8) -> Self {
        PrefixLengths { v4: v4.min(32), v6: v6.min(128) }
    }

    /// Of IPv4, and of IPv6.
    pub(crate) const fn lengths(self) -> (u8, u8) {
        (self.v4, self.v6)
    }

    /// The network that an address is counted under.
    pub(crate) fn group(self, address: IpAddr) -> IpNet {
        let length = match address {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        };
        IpNet::new(address, length).map_or_else(|_| IpNet::from(address), |net| net.trunc())
    }
}

/// Parses a request's value as an address; an IPv4-mapped IPv6 address becomes IPv4.
pub(crate) fn parse_address(value: &str) -> Option<IpAddr> {
    value.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Parses a rule's `cidr`; a single address is a range of one.
///
/// # Errors
/// With a message and a hint.
pub(crate) fn parse_cidr(text: &str) -> Result<IpNet, (String, String)> {
    let example = || "write it as `10.0.0.0/8` or `2001:db8::/32`".to_owned();
    let net = match text.parse::<IpNet>() {
        Ok(net) => net,
        Err(_) => match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address.to_canonical()),
            Err(_) => return Err((format!("`{text}` is no address range"), example())),
        },
    };
    let net = canonical(net);
    if net != net.trunc() {
        let message = format!("`{text}` has bits set after its prefix");
        return Err((message, format!("did you mean `{}`?", net.trunc())));
    }
    Ok(net)
}

/// Turns a range of IPv4-mapped addresses into a range of IPv4.
fn canonical(net: IpNet) -> IpNet {
    match (net.addr().to_canonical(), net.prefix_len().checked_sub(96)) {
        (address @ IpAddr::V4(_), Some(length)) if net.addr().is_ipv6() => {
            IpNet::new(address, length).unwrap_or(net)
        }
        _ => net,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(value: &str) -> String {
        let address = parse_address(value).unwrap();
        PrefixLengths::DEFAULT.group(address).to_string()
    }

    #[test]
    fn counts_ipv6_by_network_and_ipv4_by_address() {
        assert_eq!(group("192.0.2.7"), "192.0.2.7/32");
        assert_eq!(group("2001:db8:0:1:aaaa::1"), "2001:db8:0:1::/64");
        assert_eq!(group("2001:DB8:0:1::2"), "2001:db8:0:1::/64");
    }

    #[test]
    fn reads_mapped_addresses_as_ipv4() {
        assert_eq!(group("::ffff:192.0.2.7"), "192.0.2.7/32");
        assert_eq!(parse_cidr("::ffff:10.0.0.0/104").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(parse_cidr("::/0").unwrap().to_string(), "::/0");
    }

    #[test]
    fn reads_a_lone_address_as_a_range_of_one() {
        assert_eq!(parse_cidr("10.1.2.3").unwrap().to_string(), "10.1.2.3/32");
        assert_eq!(parse_cidr("::1").unwrap().to_string(), "::1/128");
    }

    #[test]
    fn refuses_ranges_with_stray_bits_and_says_what_would_be_right() {
        let (_, hint) = parse_cidr("10.0.0.1/8").unwrap_err();
        assert_eq!(hint, "did you mean `10.0.0.0/8`?");
        assert!(parse_cidr("10.0.0.0/33").is_err());
        assert!(parse_cidr("office").is_err());
    }
}
