//! The fields that tell an upstream where a request came from: `X-Forwarded-*`, `Forwarded` and `Via`.
//!
//! Values from a trusted hop are extended. Values from any other client are removed, because the upstream trusts them.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::OnceLock;

use bytes::Bytes;
use compact_str::CompactString;
use http::header::{Entry, FORWARDED, HeaderMap, HeaderName, HeaderValue, VIA};
use http::{Version, uri::Authority};

use crate::client_address::X_FORWARDED_FOR;
use crate::describe::ConnectionDescription;
use crate::settings::ProvenanceSettings;
use tidegate_server::Peer;

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The fields that are removed from requests of untrusted clients.
const FORWARDING_FIELDS: [HeaderName; 6] =
    [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT, X_REAL_IP, FORWARDED];

/// The other end of a connection, with its values for these fields.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) address: Option<IpAddr>,
    pub(crate) peer: Peer,
    proto: &'static str,
    /// Its address as text.
    pub(crate) name: CompactString,
    /// The same for `X-Forwarded-For`.
    text: HeaderValue,
    /// The parameters `for` and `proto` of `Forwarded`.
    element: Box<str>,
    /// The fields for the first host that it requested. Most connections request only one.
    host_fields: OnceLock<HostFields>,
    /// The cached description of its requests.
    pub(crate) description: ConnectionDescription,
}

/// The field values for one requested host.
#[derive(Clone, Debug)]
struct HostFields {
    authority: Authority,
    host: HeaderValue,
    /// The element for `Forwarded`.
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
            peer: *peer,
            proto,
            name: text.as_str().into(),
            text: HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("unknown")),
            element: format!("for={node};proto={proto}").into(),
            host_fields: OnceLock::new(),
            description: ConnectionDescription::default(),
        }
    }

    /// The first host that was requested over the connection.
    pub(crate) fn host(&self) -> Option<&Authority> {
        self.host_fields.get().map(|fields| &fields.authority)
    }

    /// The field values for a host, cached for the first one and rendered into `other` for others.
    fn host_fields<'h>(
        &'h self,
        authority: &Authority,
        other: &'h mut Option<HostFields>,
    ) -> &'h HostFields {
        let first = self.host_fields.get_or_init(|| self.render_host_fields(authority));
        if first.authority.as_str() == authority.as_str() {
            return first;
        }
        other.insert(self.render_host_fields(authority))
    }

    fn render_host_fields(&self, authority: &Authority) -> HostFields {
        let host = HeaderValue::from_str(authority.as_str());
        HostFields {
            authority: authority.clone(),
            host: host.unwrap_or(HeaderValue::from_static("unknown")),
            element: element(self, Some(authority)),
        }
    }
}

/// Which of the fields are added.
#[derive(Clone, Debug)]
pub(crate) struct Provenance {
    /// `Via` for requests in HTTP/1.0, 1.1 and 2.
    via: Option<[HeaderValue; 3]>,
    x_forwarded: bool,
    forwarded: bool,
}

impl Provenance {
    pub(crate) fn of(settings: &ProvenanceSettings) -> Result<Self, String> {
        let via = settings.via.as_ref().map(|name| {
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
            let valid = !name.is_empty() && name.bytes().all(token);
            let value = |version: &str| HeaderValue::try_from(format!("{version} {name}"));
            match (valid, value("1.0"), value("1.1"), value("2.0")) {
                (true, Ok(zero), Ok(one), Ok(two)) => Ok([zero, one, two]),
                _ => Err(format!("`{name}` is not a host name")),
            }
        });
        Ok(Provenance {
            via: via.transpose()?,
            x_forwarded: settings.x_forwarded,
            forwarded: settings.forwarded,
        })
    }

    /// Adds the fields to a request.
    pub(crate) fn add_fields(
        &self,
        headers: &mut HeaderMap,
        hop: &Hop,
        trusted: bool,
        version: Version,
        authority: Option<&Authority>,
    ) {
        // Most requests have none of the fields. One pass over the names that are present costs less than a lookup of
        // each of the others.
        let mut fields =
            ForwardingFields { present: headers.keys().any(is_forwarding_field), headers };
        if fields.present && !trusted {
            fields.remove_all();
        }
        let mut other = None;
        let host_fields = authority.map(|authority| hop.host_fields(authority, &mut other));
        if self.x_forwarded {
            fields.append(X_FORWARDED_FOR, &hop.text);
            fields.add_missing(X_FORWARDED_PROTO, &HeaderValue::from_static(hop.proto));
            if let Some(host_fields) = host_fields {
                fields.add_missing(X_FORWARDED_HOST, &host_fields.host);
            }
        }
        if self.forwarded {
            match host_fields {
                Some(host_fields) => fields.append(FORWARDED, &host_fields.element),
                None => fields.append(FORWARDED, &element(hop, None)),
            }
        }
        if let Some([zero, one, two]) = &self.via {
            let via = match version {
                Version::HTTP_2 => two,
                Version::HTTP_10 | Version::HTTP_09 => zero,
                _ => one,
            };
            fields.append(VIA, via);
        }
    }
}

/// Where a request came from, and how the upstream learns it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProvenanceContext<'r> {
    pub(crate) provenance: &'r Provenance,
    pub(crate) hop: &'r Hop,
    /// Whether the hop is trusted.
    pub(crate) trusted: bool,
}

/// Renders one element of `Forwarded`.
fn element(hop: &Hop, authority: Option<&Authority>) -> HeaderValue {
    let mut element = String::with_capacity(96);
    element.push_str(&hop.element);
    if let Some(authority) = authority {
        // Quoted because of the colon before a port. A host contains no character to escape.
        let _ = write!(element, ";host=\"{authority}\"");
    }
    let value = HeaderValue::from_maybe_shared(Bytes::from(element));
    value.unwrap_or(HeaderValue::from_static("for=unknown"))
}

/// Whether a field is one of those that this module adds or removes.
fn is_forwarding_field(name: &HeaderName) -> bool {
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

/// The headers of a request, while the fields are added.
struct ForwardingFields<'h> {
    headers: &'h mut HeaderMap,
    /// Whether the request had any of the fields.
    present: bool,
}

impl ForwardingFields<'_> {
    /// Removes the values of an untrusted client.
    fn remove_all(&mut self) {
        for name in &FORWARDING_FIELDS {
            self.headers.remove(name);
        }
    }

    /// Appends to a list, merging its lines into one.
    fn append(&mut self, name: HeaderName, value: &HeaderValue) {
        if !self.present {
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

    /// Adds a field unless it is present.
    fn add_missing(&mut self, name: HeaderName, value: &HeaderValue) {
        if !self.present || !self.headers.contains_key(&name) {
            self.put(name, value);
        }
    }

    /// Adds a field that is not present.
    fn put(&mut self, name: HeaderName, value: &HeaderValue) {
        // Fails only at the maximum number of fields, which is in the tens of thousands.
        let _ = self.headers.try_append(name, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_removed_field_is_recognized() {
        assert!(FORWARDING_FIELDS.iter().chain([&VIA]).all(is_forwarding_field));
    }
}
