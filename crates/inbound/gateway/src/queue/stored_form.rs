//! Queued requests and their results as records of a durable queue.
//!
//! Fields with a colon hold what is not a header field. A record that was not written by this code is not read.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use tidegate_overload::Caller;
use tidegate_queue::Payload;
use tidegate_server::Peer;

use super::{QueueId, QueuedRequest, QueuedResponse, QueuedState};

const ID: &str = ":id";
const METHOD: &str = ":method";
const URL: &str = ":url";
const CALLER: &str = ":caller";
const CLIENT: &str = ":client";
const ENCRYPTED: &str = ":encrypted";
const STATUS: &str = ":status";
const TRUNCATED: &str = ":truncated";

/// The id in a record.
pub(super) fn read_id(payload: &Payload) -> Option<QueueId> {
    QueueId::parse(text(payload, ID)?)
}

/// A request, without the fields that must not be stored.
pub(super) fn encode_request(
    id: QueueId,
    request: &QueuedRequest,
    may_store: impl Fn(&str) -> bool,
) -> Payload {
    let QueuedRequest { head, body, caller, peer } = request;
    let mut payload = Payload::from_body(body.clone())
        .with_header(ID, id.to_string())
        .with_header(METHOD, head.method.as_str().to_owned())
        .with_header(URL, head.uri.to_string())
        .with_header(CALLER, caller.number().to_string());
    if let Some(address) = peer.address {
        payload = payload.with_header(CLIENT, address.to_string());
    }
    if peer.encrypted {
        payload = payload.with_header(ENCRYPTED, "1");
    }
    add_fields(&mut payload, &head.headers, may_store);
    payload
}

/// Reads [`encode_request`] back.
pub(super) fn decode_request(payload: &Payload) -> Option<(QueueId, QueuedRequest)> {
    let id = read_id(payload)?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(text(payload, METHOD)?.as_bytes()).ok()?;
    *request.uri_mut() = text(payload, URL)?.parse::<Uri>().ok()?;
    *request.headers_mut() = read_fields(payload)?;
    let (head, ()) = request.into_parts();
    let address = text(payload, CLIENT).and_then(|address| address.parse().ok());
    let peer = Peer { address, named_by: None, encrypted: text(payload, ENCRYPTED).is_some() };
    let caller = Caller::numbered(text(payload, CALLER)?.parse().ok()?);
    Some((id, QueuedRequest { head, body: payload.body.clone(), caller, peer }))
}

/// The final state of a request.
pub(super) fn encode_result(id: QueueId, caller: Caller, state: &QueuedState) -> Payload {
    let (body, response) = match state {
        QueuedState::Done(response) => (response.body.clone(), Some(response)),
        QueuedState::Waiting | QueuedState::Expired => (Bytes::new(), None),
    };
    let mut payload = Payload::from_body(body)
        .with_header(ID, id.to_string())
        .with_header(CALLER, caller.number().to_string());
    if let Some(response) = response {
        payload = payload.with_header(STATUS, response.status.as_str().to_owned());
        if response.truncated {
            payload = payload.with_header(TRUNCATED, "1");
        }
        add_fields(&mut payload, &response.headers, |_| true);
    }
    payload
}

/// Reads [`encode_result`] back.
pub(super) fn decode_result(payload: &Payload) -> Option<(QueueId, Caller, QueuedState)> {
    let id = read_id(payload)?;
    let caller = Caller::numbered(text(payload, CALLER)?.parse().ok()?);
    let Some(status) = text(payload, STATUS) else {
        return Some((id, caller, QueuedState::Expired));
    };
    let response = QueuedResponse {
        status: StatusCode::from_bytes(status.as_bytes()).ok()?,
        headers: read_fields(payload)?,
        body: payload.body.clone(),
        truncated: text(payload, TRUNCATED).is_some(),
    };
    Some((id, caller, QueuedState::Done(response)))
}

fn add_fields(payload: &mut Payload, headers: &HeaderMap, may_store: impl Fn(&str) -> bool) {
    for (name, value) in headers {
        if may_store(name.as_str()) {
            let value = Bytes::copy_from_slice(value.as_bytes());
            payload.headers.push((name.as_str().to_owned(), value));
        }
    }
}

fn read_fields(payload: &Payload) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in payload.headers.iter().filter(|(name, _)| !name.starts_with(':')) {
        let name: HeaderName = name.parse().ok()?;
        headers.append(name, HeaderValue::from_maybe_shared(value.clone()).ok()?);
    }
    Some(headers)
}

fn text<'a>(payload: &'a Payload, name: &str) -> Option<&'a str> {
    let (_, value) = payload.headers.iter().find(|(field, _)| field == name)?;
    std::str::from_utf8(value).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_and_results_are_read_back_without_secrets() {
        let request = Request::put("http://api.test/a?b=c")
            .header("x-a", "1")
            .header("x-a", "2")
            .header("authorization", "Bearer t");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let address = Some("192.0.2.1:80".parse().unwrap());
        let peer = Peer { address, named_by: None, encrypted: true };
        let caller = Caller::named("a");
        let stored = QueuedRequest { head, body: Bytes::from("body"), caller, peer };
        let id = QueueId::new(7);
        let payload = encode_request(id, &stored, |name| name != "authorization");
        let (read_id, read) = decode_request(&payload).unwrap();
        assert_eq!((read_id, read.caller, read.peer), (id, caller, peer));
        assert_eq!((read.head.method, read.head.uri), (stored.head.method, stored.head.uri));
        assert_eq!(read.body, "body");
        assert_eq!(read.head.headers.get_all("x-a").iter().count(), 2);
        assert!(!read.head.headers.contains_key("authorization"));

        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        let status = StatusCode::CREATED;
        let response = QueuedResponse { status, headers, body: Bytes::from("x"), truncated: true };
        for state in [QueuedState::Done(response), QueuedState::Expired] {
            let payload = encode_result(id, caller, &state);
            assert_eq!(decode_result(&payload), Some((id, caller, state)));
        }
    }

    proptest! {
        #[test]
        fn foreign_records_are_read_or_ignored(
            headers in prop::collection::vec((":?[a-z]{1,9}", ".{0,12}"), 0..8),
        ) {
            let mut payload = Payload::default().with_header(ID, "0".repeat(32));
            for (name, value) in headers {
                payload = payload.with_header(name, value);
            }
            let _ = (decode_request(&payload), decode_result(&payload));
        }
    }
}
