//! What an upstream is told of where a request came from.
//!
//! What a trusted hop said is kept and added to. What anybody else said is dropped: an upstream
//! that believes these fields would believe it.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{Entry, FORWARDED, HeaderMap, HeaderName, HeaderValue, VIA};
use http::{Version, uri::Authority};

use crate::gateway::client_address::X_FORWARDED_FOR;
use crate::gateway::settings::ProvenanceSettings;
use crate::server::Peer;

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Fields that tell where a request came from.
const CLAIMS: [HeaderName; 6] =
    [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT, X_REAL_IP, FORWARDED];

/// The hop that a connection comes from.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct Hop {
    pub(in crate::gateway) address: Option<IpAddr>,
    proto: &'static str,
    /// Its address as `X-Forwarded-For` has it.
    text: HeaderValue,
    /// Its address as `Forwarded` has it, with the scheme.
    element: Box<str>,
    /// What is told of the first host that it asked for. A connection seldom asks for another.
    told: OnceLock<Told>,
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
    pub(in crate::gateway) fn of(peer: &Peer) -> Self {
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
            text: HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("unknown")),
            element: format!("for={node};proto={proto}").into(),
            told: OnceLock::new(),
        }
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
pub(in crate::gateway) struct Provenance {
    /// `Via` for each version of HTTP that a request can have come in.
    via: Option<[HeaderValue; 3]>,
    x_forwarded: bool,
    forwarded: bool,
}

impl Provenance {
    pub(in crate::gateway) fn of(settings: &ProvenanceSettings) -> Result<Self, String> {
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
    pub(in crate::gateway) fn tell(
        &self,
        headers: &mut HeaderMap,
        (hop, trusted): (&Hop, bool),
        version: Version,
        authority: Option<&Authority>,
    ) {
        if !trusted {
            for name in &CLAIMS {
                headers.remove(name);
            }
        }
        let mut other = None;
        let told = authority.map(|authority| hop.told(authority, &mut other));
        if self.x_forwarded {
            append(headers, X_FORWARDED_FOR, &hop.text);
            add_missing(headers, X_FORWARDED_PROTO, || HeaderValue::from_static(hop.proto));
            if let Some(told) = told {
                add_missing(headers, X_FORWARDED_HOST, || told.host.clone());
            }
        }
        if self.forwarded {
            match told {
                Some(told) => append(headers, FORWARDED, &told.element),
                None => append(headers, FORWARDED, &element(hop, None)),
            }
        }
        if let Some([zero, one, two]) = &self.via {
            let via = match version {
                Version::HTTP_2 => two,
                Version::HTTP_10 | Version::HTTP_09 => zero,
                _ => one,
            };
            append(headers, VIA, via);
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

/// Adds to a list, in one line with what is there.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    let Ok(entry) = headers.try_entry(name) else { return };
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

fn add_missing(headers: &mut HeaderMap, name: HeaderName, value: impl FnOnce() -> HeaderValue) {
    if let Ok(Entry::Vacant(vacant)) = headers.try_entry(name) {
        drop(vacant.try_insert(value()));
    }
}
