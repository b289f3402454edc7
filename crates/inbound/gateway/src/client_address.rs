//! The address of the client of a request.
//!
//! Any client can send a field that names an address, so only the part that trusted hops wrote counts. Each hop appends
//! the address that it received the request from. Read from the end, the first address that is not a trusted hop is the
//! client; addresses further left are ignored. An entry that is not an address ends the search: the client is then the
//! last hop found.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;
use smallvec::SmallVec;

use super::settings::AddressFrom;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The maximum number of hops. Addresses further left are ignored.
const HOPS_MAX: usize = 32;

/// The trusted hops, and the field in which they name the client.
#[derive(Clone, Debug)]
pub(super) struct TrustedHops {
    networks: Box<[IpNet]>,
    from: AddressFrom,
}

impl TrustedHops {
    pub(super) fn new(networks: Vec<IpNet>, from: AddressFrom) -> Self {
        TrustedHops { networks: networks.into(), from }
    }

    /// Whether the peer is a trusted hop. A peer at a Unix socket has no address; it is trusted if any hop is, because
    /// the permissions of the file restrict who can connect.
    pub(super) fn trusts(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(peer) => self.contains(peer),
            None => !self.networks.is_empty(),
        }
    }

    /// The client of a request that `peer` sent.
    pub(super) fn client(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        if !self.trusts(peer) {
            return peer;
        }
        let addresses = match self.from {
            AddressFrom::Peer => return peer,
            AddressFrom::XForwardedFor => forwarded_for(headers),
            AddressFrom::Forwarded => forwarded(headers),
        };
        let mut client = peer;
        for address in addresses.into_iter().rev() {
            let Some(address) = address else { break };
            client = Some(address);
            if !self.contains(address) {
                break;
            }
        }
        client
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// Addresses in the order of the field; `None` for an entry that is not an address.
type AddressList = SmallVec<[Option<IpAddr>; 4]>;

/// Appends an entry, and removes the first if there are too many.
fn push(addresses: &mut AddressList, address: Option<IpAddr>) {
    if addresses.len() >= HOPS_MAX {
        addresses.remove(0);
    }
    addresses.push(address);
}

fn forwarded_for(headers: &HeaderMap) -> AddressList {
    let mut addresses = AddressList::new();
    for value in headers.get_all(X_FORWARDED_FOR) {
        match value.to_str() {
            Ok(text) => {
                text.split(',').for_each(|entry| push(&mut addresses, address(entry.trim())))
            }
            Err(_) => push(&mut addresses, None),
        }
    }
    addresses
}

fn forwarded(headers: &HeaderMap) -> AddressList {
    let mut addresses = AddressList::new();
    for value in headers.get_all(FORWARDED) {
        let Ok(text) = value.to_str() else {
            push(&mut addresses, None);
            continue;
        };
        for element in split_unquoted(text, ',') {
            let mut pairs = split_unquoted(element, ';').filter_map(|pair| pair.split_once('='));
            let node = pairs.find(|(key, _)| key.trim().eq_ignore_ascii_case("for"));
            push(&mut addresses, node.and_then(|(_, value)| address(unquoted(value.trim()))));
        }
    }
    addresses
}

/// Splits at separators outside quoted strings.
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |character| {
        if escaped {
            escaped = false;
        } else if quoted && character == '\\' {
            escaped = true;
        } else if character == '"' {
            quoted = !quoted;
        }
        character == separator && !quoted
    })
}

/// Removes quotes. An address contains no character that needs an escape.
fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// Parses an address with or without a port; IPv6 with a port is in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let parsed = bare.parse::<IpAddr>().ok();
    let parsed = parsed.or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    parsed.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn hops(from: AddressFrom) -> TrustedHops {
        let networks = ["10.0.0.0/8", "2001:db8:1::/48"].map(|text| text.parse().unwrap());
        TrustedHops::new(networks.to_vec(), from)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn client(from: AddressFrom, peer: &str, lines: &[&'static str]) -> IpAddr {
        let name = if from == AddressFrom::Forwarded { FORWARDED } else { X_FORWARDED_FOR };
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&name, HeaderValue::from_static(line));
        }
        hops(from).client(Some(ip(peer)), &headers).unwrap()
    }

    #[test]
    fn the_claim_of_an_untrusted_peer_is_ignored() {
        let claimed = &["192.0.2.1", "10.0.0.9"];
        assert_eq!(client(AddressFrom::XForwardedFor, "203.0.113.9", claimed), ip("203.0.113.9"));
    }

    #[test]
    fn a_trusted_hop_names_the_client_and_addresses_further_left_are_ignored() {
        let of = |lines| client(AddressFrom::XForwardedFor, "10.0.0.1", lines);
        assert_eq!(of(&["198.51.100.7"]), ip("198.51.100.7"));
        assert_eq!(of(&["1.1.1.1, 198.51.100.7"]), ip("198.51.100.7"));
        assert_eq!(of(&["1.1.1.1, 198.51.100.7, 10.9.9.9"]), ip("198.51.100.7"));
        assert_eq!(of(&["1.1.1.1", "198.51.100.7:4711", "10.9.9.9"]), ip("198.51.100.7"));
        assert_eq!(of(&["::ffff:198.51.100.7"]), ip("198.51.100.7"));
        assert_eq!(of(&["10.1.1.1, 10.2.2.2"]), ip("10.1.1.1"));
        assert_eq!(of(&[]), ip("10.0.0.1"));
    }

    #[test]
    fn an_entry_that_is_not_an_address_ends_the_search() {
        let of = |lines| client(AddressFrom::XForwardedFor, "10.0.0.1", lines);
        assert_eq!(of(&["198.51.100.7, unknown"]), ip("10.0.0.1"));
        assert_eq!(of(&["198.51.100.7, <script>, 10.3.3.3"]), ip("10.3.3.3"));
    }

    #[test]
    fn quoted_values_of_forwarded_are_read() {
        let of = |lines| client(AddressFrom::Forwarded, "10.0.0.1", lines);
        assert_eq!(of(&["for=198.51.100.7;proto=https"]), ip("198.51.100.7"));
        assert_eq!(of(&["proto=http; For=\"[2001:db8::7]:80\";by=x"]), ip("2001:db8::7"));
        assert_eq!(of(&["for=1.1.1.1, for=198.51.100.7, for=10.2.2.2"]), ip("198.51.100.7"));
        assert_eq!(of(&["for=\"1.1.1.1, for=2.2.2.2\", for=10.2.2.2"]), ip("10.2.2.2"));
        assert_eq!(of(&["for=198.51.100.7, for=_hidden"]), ip("10.0.0.1"));
    }

    #[test]
    fn a_long_field_is_read_from_its_end() {
        let many = "1.1.1.1, ".repeat(500) + "198.51.100.7, 10.0.0.2";
        let mut headers = HeaderMap::new();
        headers.insert(X_FORWARDED_FOR, HeaderValue::from_str(&many).unwrap());
        let found = hops(AddressFrom::XForwardedFor).client(Some(ip("10.0.0.1")), &headers);
        assert_eq!(found, Some(ip("198.51.100.7")));
    }

    #[test]
    fn a_unix_socket_is_trusted_if_any_hop_is() {
        assert!(hops(AddressFrom::XForwardedFor).trusts(None));
        assert!(!TrustedHops::new(Vec::new(), AddressFrom::XForwardedFor).trusts(None));
    }
}
