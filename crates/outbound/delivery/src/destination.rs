//! Where requests may go.
//!
//! A queue must not be an open proxy: a record may name its URL, and a name may resolve to any address. Two checks, both
//! pure: the URL against the allowed hosts, and each resolved address against the ranges that are not public. The client
//! connects to the address that was checked, so that a DNS answer that changes in between does not matter.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::Uri;
use ipnet::IpNet;

/// Where requests may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationPolicy {
    /// The hosts that a URL may name. Empty: none.
    pub hosts: Vec<HostRule>,
    /// Addresses that are allowed although they are not public, such as the operator's own network.
    pub networks: Vec<IpNet>,
    /// Whether `http` is allowed beside `https`.
    pub plain_text: bool,
}

/// A host that a URL may name: `api.example.com`, `*.example.com` (any name below it), `api.example.com:8443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    name: Box<str>,
    below: bool,
    port: Option<u16>,
}

/// A text is no host rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no host: write a name such as `api.example.com`, `*.example.com` or `api.example.com:8443`"
)]
pub struct HostRuleError(String);

/// Why a request may not go somewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The URL has no host, or another scheme than `http` and `https`.
    #[error("the URL must begin with `https://` or `http://` and a host")]
    NotAbsolute,
    /// The URL has a user name.
    #[error("the URL must not contain a user name or password")]
    UserInfo,
    /// The URL is not encrypted.
    #[error("the URL must begin with `https://`; `http://` is not allowed for this target")]
    PlainText,
    /// The host is not on the list.
    #[error("the host `{0}` is not among the allowed hosts of the target")]
    Host(String),
    /// The address is not public.
    #[error("the address {0} is not public and not among the allowed networks of the target")]
    Address(IpAddr),
}

impl FromStr for HostRule {
    type Err = HostRuleError;

    fn from_str(text: &str) -> Result<Self, HostRuleError> {
        let error = || HostRuleError(text.to_owned());
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let authority: http::uri::Authority = rest.parse().map_err(|_| error())?;
        let port = authority.port_u16();
        let has_port_text = authority.host().len() != rest.len();
        let port_fits = has_port_text == port.is_some();
        let name = bare_host(authority.host()).to_ascii_lowercase();
        let known =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
        if rest.contains('@') || name.is_empty() || !known || !port_fits {
            return Err(error());
        }
        Ok(HostRule { name: name.into(), below, port })
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.below { "*." } else { "" };
        write!(f, "{star}{}", self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl HostRule {
    fn allows(&self, host: &str, port: u16) -> bool {
        // A name may end with the dot of the root.
        let host = host.strip_suffix('.').unwrap_or(host);
        let names_it = match self.below {
            false => host == &*self.name,
            true => host.strip_suffix(&*self.name).is_some_and(|front| front.ends_with('.')),
        };
        names_it && self.port.is_none_or(|allowed| allowed == port)
    }
}

impl DestinationPolicy {
    /// Checks a URL before anything is resolved.
    ///
    /// # Errors
    /// When requests may not go there.
    pub fn check_url(&self, url: &Uri) -> Result<(), DestinationError> {
        let authority = url.authority().ok_or(DestinationError::NotAbsolute)?;
        let default_port = match url.scheme_str() {
            Some("https") => 443,
            Some("http") if self.plain_text => 80,
            Some("http") => return Err(DestinationError::PlainText),
            _ => return Err(DestinationError::NotAbsolute),
        };
        if authority.as_str().contains('@') {
            return Err(DestinationError::UserInfo);
        }
        let host = bare_host(authority.host()).to_ascii_lowercase();
        if host.is_empty() {
            return Err(DestinationError::NotAbsolute);
        }
        let port = authority.port_u16().unwrap_or(default_port);
        if !self.hosts.iter().any(|rule| rule.allows(&host, port)) {
            return Err(DestinationError::Host(host));
        }
        match host.parse() {
            Ok(address) => self.check_address(address),
            Err(_) => Ok(()),
        }
    }

    /// Checks a resolved address; call it for the address that is then connected to.
    ///
    /// # Errors
    /// When requests may not go there.
    pub fn check_address(&self, address: IpAddr) -> Result<(), DestinationError> {
        let address = address.to_canonical();
        if is_public(address) || self.networks.iter().any(|network| network.contains(&address)) {
            return Ok(());
        }
        Err(DestinationError::Address(address))
    }
}

/// The host without the brackets of an IPv6 address.
pub(crate) fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Whether an address is on the public internet: no loopback, private, link-local, shared, multicast, documentation or
/// reserved range, and no metadata service of a cloud. An IPv6 address that carries an IPv4 address (mapped, 6to4,
/// NAT64) is judged by that.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// The address of Azure's metadata and DNS service, which looks public.
const AZURE_WIRE_SERVER: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        // 240/4, reserved, with the broadcast address.
        || a >= 240
        // 100.64/10, shared by carriers; clouds have metadata services there.
        || (a == 100 && (64..128).contains(&b))
        // 192.0.0/24, protocol assignments, and 192.88.99/24, the old 6to4 relay.
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        // 198.18/15, benchmarks.
        || (a == 198 && (b == 18 || b == 19));
    !special && address != AZURE_WIRE_SERVER
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // ::ffff:0:0/96, mapped.
        [0, 0, 0, 0, 0, 0xffff, high, low] => embedded(high, low),
        // 64:ff9b::/96, NAT64.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 2002::/16, 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // 2001::/23, protocol assignments with Teredo; 2001:db8::/32 and 3fff::/20, documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Only 2000::/3 is assigned to the public internet. The rest has ::1, ::, fc00::/7, fe80::/10 and ff00::/8.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(hosts: &[&str], networks: &[&str]) -> DestinationPolicy {
        DestinationPolicy {
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
            plain_text: false,
        }
    }

    fn check(policy: &DestinationPolicy, url: &str) -> Result<(), DestinationError> {
        policy.check_url(&url.parse().unwrap())
    }

    #[test]
    fn addresses_that_are_not_public_are_known_in_every_notation() {
        let inside = [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:4136:e378::1",
            "fec0::1",
            "64:ff9b:1::1",
        ];
        for text in inside {
            let address: IpAddr = text.parse().unwrap();
            assert!(!is_public(address), "{text}");
            assert!(policy(&[], &[]).check_address(address).is_err(), "{text}");
        }
        for text in ["8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "100.128.0.1"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn an_allowed_network_holds_for_the_mapped_notation_too() {
        let policy = policy(&[], &["10.0.0.0/8", "127.0.0.1/32"]);
        for (text, allowed) in [
            ("10.9.9.9", true),
            ("::ffff:10.9.9.9", true),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
        ] {
            assert_eq!(policy.check_address(text.parse().unwrap()).is_ok(), allowed, "{text}");
        }
    }

    #[test]
    fn a_url_needs_an_allowed_host_and_port() {
        let policy = policy(&["api.example.com", "*.cdn.test", "only.test:8443"], &[]);
        for url in [
            "https://api.example.com/a?b",
            "https://API.example.com./",
            "https://x.y.cdn.test",
            "https://api.example.com:9999/",
            "https://only.test:8443/",
        ] {
            assert_eq!(check(&policy, url), Ok(()), "{url}");
        }
        let host = |name: &str| Err(DestinationError::Host(name.to_owned()));
        assert_eq!(check(&policy, "https://example.com/"), host("example.com"));
        assert_eq!(check(&policy, "https://cdn.test/"), host("cdn.test"));
        assert_eq!(check(&policy, "https://evilcdn.test/"), host("evilcdn.test"));
        assert_eq!(
            check(&policy, "https://api.example.com.evil.test/"),
            host("api.example.com.evil.test")
        );
        assert_eq!(check(&policy, "https://only.test/"), host("only.test"));
        assert_eq!(check(&policy, "http://api.example.com/"), Err(DestinationError::PlainText));
        assert_eq!(check(&policy, "ftp://api.example.com/"), Err(DestinationError::NotAbsolute));
        assert_eq!(check(&policy, "/path"), Err(DestinationError::NotAbsolute));
        assert_eq!(
            check(&policy, "https://api.example.com@evil.test/"),
            Err(DestinationError::UserInfo)
        );
    }

    #[test]
    fn an_address_in_a_url_must_be_listed_and_public() {
        let policy = policy(&["127.0.0.1", "[::1]:80", "8.8.8.8"], &[]);
        let inside: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(check(&policy, "https://127.0.0.1/"), Err(DestinationError::Address(inside)));
        assert_eq!(check(&policy, "https://8.8.8.8/"), Ok(()));
        assert!(matches!(check(&policy, "https://[::1]:80/"), Err(DestinationError::Address(_))));
    }

    #[test]
    fn host_rules_are_read_and_shown() {
        for text in ["api.example.com", "*.example.com", "a-b.test:8443", "10.0.0.1"] {
            assert_eq!(text.parse::<HostRule>().unwrap().to_string(), text);
        }
        for text in ["", "*.", "a b", "https://a", "u@a", "a/b", "a:b", "a:99999", "*", "a,b"] {
            assert!(text.parse::<HostRule>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_notation_of_an_inner_ipv4_address_is_public(low in any::<u32>()) {
            let inner = Ipv4Addr::from(low);
            if !is_public(inner.into()) {
                let [a, b, c, d] = inner.octets();
                let high = u16::from_be_bytes([a, b]);
                let low = u16::from_be_bytes([c, d]);
                prop_assert!(!is_public(inner.to_ipv6_mapped().into()));
                prop_assert!(!is_public(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low).into()));
                prop_assert!(!is_public(Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1).into()));
            }
        }
    }
}
