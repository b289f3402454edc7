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

use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use smallvec::SmallVec;

pub(super) use edits::Edits;
pub(super) use outgoing::{Outgoing, outgoing};
pub(super) use provenance::{Hop, Provenance};
pub(super) use rewrite::Rewrite;
pub(super) use tunnel::tunnel;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Fields that are between neighbours whether `Connection` names them or not.
const BETWEEN_NEIGHBOURS: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HTTP2_SETTINGS,
];

/// Removes what is between neighbours.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let lines = headers.get_all(CONNECTION).iter().cloned();
        for named in lines.collect::<SmallVec<[HeaderValue; 2]>>() {
            remove_named(headers, named.as_bytes());
        }
    }
    for name in &BETWEEN_NEIGHBOURS {
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
