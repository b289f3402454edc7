//! How an HTTP/1.1 response says where its body ends.

use http::Response;
use http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};

/// How clear the end of a response's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    Clear,
    /// `Transfer-Encoding` and `Content-Length` differ in what they say. The first wins, and the connection is not used
    /// again (RFC 9112 §6.3): what follows may be a response of an attacker.
    Ambiguous,
    /// A transfer coding that the gateway did not ask for. Its client could not decode the body: the field that names
    /// the coding ends here.
    Unknown,
}

/// Checks the framing of a response, and removes a `Content-Length` that does not apply.
pub(super) fn check<B>(response: &mut Response<B>) -> ResponseFraming {
    let headers = response.headers_mut();
    if !headers.contains_key(TRANSFER_ENCODING) {
        return ResponseFraming::Clear;
    }
    if !has_known_codings(headers) {
        return ResponseFraming::Unknown;
    }
    match headers.remove(CONTENT_LENGTH) {
        Some(_) => ResponseFraming::Ambiguous,
        None => ResponseFraming::Clear,
    }
}

/// Whether the body is chunked once, or has no coding (`identity`, of old servers). hyper has decoded the chunks.
/// Servers and clients disagree about any other list.
fn has_known_codings(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let mut codings = codings.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty());
    let only = codings.next();
    let is_known = |coding: &[u8]| {
        [b"chunked".as_slice(), b"identity"].iter().any(|known| coding.eq_ignore_ascii_case(known))
    };
    codings.next().is_none() && only.is_none_or(is_known)
}
