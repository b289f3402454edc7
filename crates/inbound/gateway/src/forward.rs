//! What is changed on the way to an upstream, and back.
//!
//! Fields that are between two neighbours stay between them (RFC 9110 §7.6.1). Where the
//! request came from is told anew: what a stranger says of it is not passed on. The body gets a
//! framing of ours, whatever it came in.

mod edits;
mod outgoing;
mod provenance;
mod rewrite;
mod tunnel;

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

pub(super) use edits::Edits;
pub(super) use outgoing::{Outgoing, outgoing};
pub(super) use provenance::{Hop, Provenance};
pub(super) use rewrite::Rewrite;
pub(super) use tunnel::tunnel;

/// Whether a field is between neighbours, whether `Connection` names it or not.
fn is_between_neighbours(name: &HeaderName) -> bool {
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

/// Whether anything has to be removed. Most messages have nothing, and looking at the names that
/// are there costs less than looking for those that are not.
fn has_hop_by_hop(headers: &HeaderMap) -> bool {
    headers.keys().any(is_between_neighbours)
}

/// Removes what is between neighbours.
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
    let between = headers.keys().filter(|name| is_between_neighbours(name)).cloned();
    for name in between.collect::<SmallVec<[HeaderName; 4]>>() {
        headers.remove(name);
    }
}

fn remove_named(headers: &mut HeaderMap, options: &[u8]) {
    for option in options.split(|byte| *byte == b',') {
        // What is no name of a field names none.
        if let Ok(name) = HeaderName::from_bytes(option.trim_ascii()) {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
mod tests;
