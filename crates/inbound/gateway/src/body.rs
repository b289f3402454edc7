//! Bodies while they stream: from client to upstream, and back.
//!
//! Neither is buffered. A timer is made only when a body has to be waited for: most responses arrive with their head.

mod held_bytes;
mod request;
mod response;

pub(super) use held_bytes::is_over_budget;
pub(super) use request::{BodyProgress, BodyState, ContinueGate, ContinueSignal, RequestBody};
pub use response::{GatewayBody, GatewayBodyError};

use std::error::Error as StdError;

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HOST, TRAILER};

use super::forward::remove_hop_by_hop;

/// Any error of a body.
pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

/// Removes trailer fields that concern the connection or the framing (RFC 9110 §6.5.1): HTTP/2 does not send them.
fn clean_trailers(trailers: &mut HeaderMap) {
    remove_hop_by_hop(trailers);
    for name in [CONTENT_LENGTH, HOST, TRAILER] {
        trailers.remove(name);
    }
}
