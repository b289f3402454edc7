//! For whom a request is, whatever it claims.
//!
//! A field that names the client can be sent by anybody, so it is believed only as far as
//! trusted hops wrote it: from its end, each address was added by the one behind it, and the
//! first that is no trusted hop is the client. What stands before that is hearsay. An entry that
//! is no address ends the walk: then the client is the last hop that is known.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;
use smallvec::SmallVec;

use super::settings::AddressFrom;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// More hops than anybody has. What stands before them is not looked at.
const HOPS_MAX: usize = 32;

/// Whose word is taken, and which field it stands in.
#[derive(Clone, Debug)]
pub(super) struct TrustedHops {
    networks: Box<[IpNet]>,
    from: AddressFrom,
}

impl TrustedHops {
    pub(super) fn new(networks: Vec<IpNet>, from: AddressFrom) -> Self {
        TrustedHops { networks: networks.into(), from }
    }

    /// Whether this is a hop of ours. A Unix socket has no address: who may open its file is
    /// trusted as soon as anybody is.
    pub(super) fn trusts(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(peer) => self.knows(peer),
            None => !self.networks.is_empty(),
        }
    }

    /// The client of a request that came from `peer`.
    pub(super) fn client(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        if !self.trusts(peer) {
            return peer;
        }
        let named = match self.from {
            AddressFrom::Peer => return peer,
            AddressFrom::XForwardedFor => forwarded_for(headers),
            AddressFrom::Forwarded => forwarded(headers),
        };
        let mut client = peer;
        for address in named.into_iter().rev() {
            let Some(address) = address else { break };
            client = Some(address);
            if !self.knows(address) {
                break;
            }
        }
        client
    }

    fn knows(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// Addresses in the order in which they were added; `None` where an entry is no address.
type Named = SmallVec<[Option<IpAddr>; 4]>;

/// Adds an entry; the oldest go when there are too many.
fn note(named: &mut Named, address: Option<IpAddr>) {
    if named.len() >= HOPS_MAX {
        named.remove(0);
    }
    named.push(address);
}

fn forwarded_for(headers: &HeaderMap) -> Named {
    let mut named = Named::new();
    for value in headers.get_all(X_FORWARDED_FOR) {
        match value.to_str() {
            Ok(text) => text.split(',').for_each(|entry| note(&mut named, address(entry.trim()))),
            Err(_) => note(&mut named, None),
        }
    }
    named
}

fn forwarded(headers: &HeaderMap) -> Named {
    let mut named = Named::new();
    for value in headers.get_all(FORWARDED) {
        let Ok(text) = value.to_str() else {
            note(&mut named, None);
            continue;
        };
        for element in outside_quotes(text, ',') {
            let mut pairs = outside_quotes(element, ';').filter_map(|pair| pair.split_once('='));
            let named_for = pairs.find(|(key, _)| key.trim().eq_ignore_ascii_case("for"));
            note(&mut named, named_for.and_then(|(_, value)| address(unquoted(value.trim()))));
        }
    }
    named
}

/// Splits at a separator that is in no quoted string.
fn outside_quotes(text: &str, separator: char) -> impl Iterator<Item = &str> {
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

/// An address has nothing that needs an escape, so quotes are all there is to remove.
fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// An address, with a port or without; in brackets when it is IPv6 with one.
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
    fn a_stranger_is_who_it_is_whatever_it_claims() {
        let claimed = &["192.0.2.1", "10.0.0.9"];
        assert_eq!(client(AddressFrom::XForwardedFor, "203.0.113.9", claimed), ip("203.0.113.9"));
    }

    #[test]
    fn a_trusted_hop_names_the_client_and_what_stands_before_is_hearsay() {
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
    fn an_entry_that_is_no_address_ends_the_walk() {
        let of = |lines| client(AddressFrom::XForwardedFor, "10.0.0.1", lines);
        assert_eq!(of(&["198.51.100.7, unknown"]), ip("10.0.0.1"));
        assert_eq!(of(&["198.51.100.7, <script>, 10.3.3.3"]), ip("10.3.3.3"));
    }

    #[test]
    fn forwarded_is_read_with_its_quotes() {
        let of = |lines| client(AddressFrom::Forwarded, "10.0.0.1", lines);
        assert_eq!(of(&["for=198.51.100.7;proto=https"]), ip("198.51.100.7"));
        assert_eq!(of(&["proto=http; For=\"[2001:db8::7]:80\";by=x"]), ip("2001:db8::7"));
        assert_eq!(of(&["for=1.1.1.1, for=198.51.100.7, for=10.2.2.2"]), ip("198.51.100.7"));
        assert_eq!(of(&["for=\"1.1.1.1, for=2.2.2.2\", for=10.2.2.2"]), ip("10.2.2.2"));
        assert_eq!(of(&["for=198.51.100.7, for=_hidden"]), ip("10.0.0.1"));
    }

    #[test]
    fn a_line_of_many_hops_is_read_from_its_end() {
        let many = "1.1.1.1, ".repeat(500) + "198.51.100.7, 10.0.0.2";
        let mut headers = HeaderMap::new();
        headers.insert(X_FORWARDED_FOR, HeaderValue::from_str(&many).unwrap());
        let found = hops(AddressFrom::XForwardedFor).client(Some(ip("10.0.0.1")), &headers);
        assert_eq!(found, Some(ip("198.51.100.7")));
    }

    #[test]
    fn a_unix_socket_is_trusted_as_soon_as_any_hop_is() {
        assert!(hops(AddressFrom::XForwardedFor).trusts(None));
        assert!(!TrustedHops::new(Vec::new(), AddressFrom::XForwardedFor).trusts(None));
    }
}
