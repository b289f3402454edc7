//! What an upstream is told of where a request came from.
//!
//! What a trusted hop said is kept and added to. What anybody else said is dropped: an upstream
//! that believes these fields would believe it.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::OnceLock;

use bytes::Bytes;
use compact_str::CompactString;
use http::header::{Entry, FORWARDED, HeaderMap, HeaderName, HeaderValue, VIA};
use http::{Version, uri::Authority};

use crate::client_address::X_FORWARDED_FOR;
use crate::describe::OfConnection;
use crate::settings::ProvenanceSettings;
use tidegate_server::Peer;

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Fields that tell where a request came from.
const CLAIMS: [HeaderName; 6] =
    [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT, X_REAL_IP, FORWARDED];

/// The hop that a connection comes from.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) address: Option<IpAddr>,
    proto: &'static str,
    /// Its address as people write it.
    pub(crate) name: CompactString,
    /// The same as `X-Forwarded-For` has it.
    text: HeaderValue,
    /// Its address as `Forwarded` has it, with the scheme.
    element: Box<str>,
    /// What is told of the first host that it asked for. A connection seldom asks for another.
    told: OnceLock<Told>,
    /// What its requests are limited by.
    pub(crate) described: OfConnection,
}

/// What is told of a host that is asked for.
#[derive(Clone, Debug)]
struct Told {
    authority: Authority,
    host: HeaderValue,
    /// The element of `Forwarded`.
    element: HeaderValue,
}

impl Hop {
    pub(crate) fn of(peer: &Peer) -> Self {
        let address = peer.address.map(|address| address.ip().to_canonical());
        let text = address.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        let proto = if peer.encrypted { "https" } else { "http" };
        let node = match address {
            Some(IpAddr::V6(address)) => format!("\"[{address}]\""),
            _ => text.clone(),
        };
        Hop {
            address,
            proto,
            name: text.as_str().into(),
            text: HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("unknown")),
            element: format!("for={node};proto={proto}").into(),
            told: OnceLock::new(),
            described: OfConnection::default(),
        }
    }

    /// The first host that was asked for over the connection.
    pub(crate) fn host(&self) -> Option<&Authority> {
        self.told.get().map(|told| &told.authority)
    }

    /// What is told of a host, written at most once for the first one.
    fn told<'h>(&'h self, authority: &Authority, other: &'h mut Option<Told>) -> &'h Told {
        let told = self.told.get_or_init(|| self.write(authority));
        if told.authority.as_str() == authority.as_str() {
            return told;
        }
        other.insert(self.write(authority))
    }

    fn write(&self, authority: &Authority) -> Told {
        let host = HeaderValue::from_str(authority.as_str());
        Told {
            authority: authority.clone(),
            host: host.unwrap_or(HeaderValue::from_static("unknown")),
            element: element(self, Some(authority)),
        }
    }
}

/// What is told.
#[derive(Clone, Debug)]
pub(crate) struct Provenance {
    /// `Via` for each version of HTTP that a request can have come in.
    via: Option<[HeaderValue; 3]>,
    x_forwarded: bool,
    forwarded: bool,
}

impl Provenance {
    pub(crate) fn of(settings: &ProvenanceSettings) -> Result<Self, String> {
        let via = settings.via.as_ref().map(|name| {
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
            let sound = !name.is_empty() && name.bytes().all(token);
            let value = |version: &str| HeaderValue::try_from(format!("{version} {name}"));
            match (sound, value("1.0"), value("1.1"), value("2.0")) {
                (true, Ok(zero), Ok(one), Ok(two)) => Ok([zero, one, two]),
                _ => Err(format!("`{name}` is no name of a host")),
            }
        });
        Ok(Provenance {
            via: via.transpose()?,
            x_forwarded: settings.x_forwarded,
            forwarded: settings.forwarded,
        })
    }

    /// Tells where a request came from, and whether that hop is trusted.
    pub(crate) fn tell(
        &self,
        headers: &mut HeaderMap,
        (hop, trusted): (&Hop, bool),
        version: Version,
        authority: Option<&Authority>,
    ) {
        // Most requests say nothing of it, and looking at the names that are there costs less than
        // looking for those that are not.
        let mut account = Account { begun: headers.keys().any(tells_origin), headers };
        if account.begun && !trusted {
            account.retract();
        }
        let mut other = None;
        let told = authority.map(|authority| hop.told(authority, &mut other));
        if self.x_forwarded {
            account.append(X_FORWARDED_FOR, &hop.text);
            account.add_missing(X_FORWARDED_PROTO, &HeaderValue::from_static(hop.proto));
            if let Some(told) = told {
                account.add_missing(X_FORWARDED_HOST, &told.host);
            }
        }
        if self.forwarded {
            match told {
                Some(told) => account.append(FORWARDED, &told.element),
                None => account.append(FORWARDED, &element(hop, None)),
            }
        }
        if let Some([zero, one, two]) = &self.via {
            let via = match version {
                Version::HTTP_2 => two,
                Version::HTTP_10 | Version::HTTP_09 => zero,
                _ => one,
            };
            account.append(VIA, via);
        }
    }
}

/// One element of `Forwarded`.
fn element(hop: &Hop, authority: Option<&Authority>) -> HeaderValue {
    let mut element = String::with_capacity(96);
    element.push_str(&hop.element);
    if let Some(authority) = authority {
        // Quoted, because a port has a colon. A host has nothing to escape.
        let _ = write!(element, ";host=\"{authority}\"");
    }
    let value = HeaderValue::from_maybe_shared(Bytes::from(element));
    value.unwrap_or(HeaderValue::from_static("for=unknown"))
}

/// Whether a field tells where a request came from.
fn tells_origin(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "x-forwarded-for"
            | "x-forwarded-proto"
            | "x-forwarded-host"
            | "x-forwarded-port"
            | "x-real-ip"
            | "forwarded"
            | "via"
    )
}

/// The account of where a request came from, as it is being written.
struct Account<'h> {
    headers: &'h mut HeaderMap,
    /// Whether anybody has written in it before us.
    begun: bool,
}

impl Account<'_> {
    /// Takes back what a stranger claimed.
    fn retract(&mut self) {
        for name in &CLAIMS {
            self.headers.remove(name);
        }
    }

    /// Adds to a list, in one line with what is there.
    fn append(&mut self, name: HeaderName, value: &HeaderValue) {
        if !self.begun {
            return self.put(name, value);
        }
        let Ok(entry) = self.headers.try_entry(name) else { return };
        match entry {
            Entry::Vacant(vacant) => drop(vacant.try_insert(value.clone())),
            Entry::Occupied(mut occupied) => {
                let mut line = Vec::new();
                for part in occupied.iter().chain([value]) {
                    if !line.is_empty() {
                        line.extend_from_slice(b", ");
                    }
                    line.extend_from_slice(part.as_bytes());
                }
                if let Ok(line) = HeaderValue::from_maybe_shared(Bytes::from(line)) {
                    occupied.insert(line);
                }
            }
        }
    }

    /// Adds a field unless it is there.
    fn add_missing(&mut self, name: HeaderName, value: &HeaderValue) {
        if !self.begun || !self.headers.contains_key(&name) {
            self.put(name, value);
        }
    }

    /// Adds a field that is not there.
    fn put(&mut self, name: HeaderName, value: &HeaderValue) {
        // A request with tens of thousands of fields has no room for more.
        let _ = self.headers.try_append(name, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_claim_is_overlooked() {
        assert!(CLAIMS.iter().chain([&VIA]).all(tells_origin));
    }
}
