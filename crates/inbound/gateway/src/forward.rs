//! Changes to requests and responses on their way.
//!
//! Hop-by-hop fields are removed (RFC 9110 §7.6.1). The fields that name the client and the hops are rewritten: those
//! of an untrusted client are not forwarded. The body gets new framing.

mod header_edits;
mod provenance;
mod rewrite;
mod tunnel;
mod upstream_request;

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

pub(super) use header_edits::HeaderEdits;
pub(super) use provenance::{Hop, Provenance, ProvenanceContext};
pub(super) use rewrite::Rewrite;
pub(super) use tunnel::tunnel;
pub(super) use upstream_request::UpstreamRequest;

/// Whether a field is hop-by-hop even if `Connection` does not name it.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "http2-settings"
    )
}

/// Whether any field is hop-by-hop. Most messages have none. One pass over the names that are present costs less than a
/// lookup of each possible name.
fn has_hop_by_hop(headers: &HeaderMap) -> bool {
    headers.keys().any(is_hop_by_hop)
}

/// Removes hop-by-hop fields.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if !has_hop_by_hop(headers) {
        return;
    }
    if headers.contains_key(CONNECTION) {
        let lines = headers.get_all(CONNECTION).iter().cloned();
        for named in lines.collect::<SmallVec<[HeaderValue; 2]>>() {
            remove_named(headers, named.as_bytes());
        }
    }
    let hop_by_hop = headers.keys().filter(|name| is_hop_by_hop(name)).cloned();
    for name in hop_by_hop.collect::<SmallVec<[HeaderName; 4]>>() {
        headers.remove(name);
    }
}

fn remove_named(headers: &mut HeaderMap, options: &[u8]) {
    for option in options.split(|byte| *byte == b',') {
        // An invalid name matches no field.
        if let Ok(name) = HeaderName::from_bytes(option.trim_ascii()) {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
mod tests;
