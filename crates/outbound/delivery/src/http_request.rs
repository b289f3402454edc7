//! Makes the HTTP request of a record.
//!
//! Method and URL come from the settings, or from the record's fields [`METHOD_FIELD`] and [`URL_FIELD`]. The other fields
//! become header fields, except those that belong to a connection.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Full;
use tidegate_queue::{Payload, Timestamp};

use crate::destination::DestinationError;
use crate::http_processor::HttpSettings;
use crate::processor::Attempt;
use crate::signature::{SIGNATURE_FIELD, sign_all};

/// The field of a payload that names the method.
pub const METHOD_FIELD: &str = ":method";
/// The field of a payload that names the URL: absolute, or a path below the target's URL.
pub const URL_FIELD: &str = ":url";

/// The fields that belong to a connection, and those that this crate sets itself.
const CONNECTION_FIELDS: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
    "content-length",
    "host",
];
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const ATTEMPT_FIELD: HeaderName = HeaderName::from_static("tidegate-attempt");
const SLOT_FIELD: HeaderName = HeaderName::from_static("tidegate-slot");

/// Why a record cannot become a request. It never will.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("`{0}` is no HTTP method")]
    Method(String),
    #[error("the URL of the record cannot be read")]
    Url,
    #[error("the header field `{0}` cannot be sent")]
    Field(String),
    #[error(transparent)]
    Destination(#[from] DestinationError),
}

/// Makes the request of one record. `now` is the wall clock, for the signature.
pub(crate) fn build(
    attempt: &Attempt,
    settings: &HttpSettings,
    now: Timestamp,
) -> Result<Request<Full<Bytes>>, RequestError> {
    let Payload { headers, body } = &attempt.record.payload;
    let method = read_method(headers, &settings.method)?;
    let url = read_url(headers, &settings.url)?;
    settings.destinations.check_url(&url)?;
    let mut fields = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| !name.starts_with(':')) {
        let unusable = || RequestError::Field(name.clone());
        let field: HeaderName = name.parse().map_err(|_| unusable())?;
        if !CONNECTION_FIELDS.contains(&field.as_str()) {
            let value = HeaderValue::from_maybe_shared(value.clone()).map_err(|_| unusable())?;
            fields.append(field, value);
        }
    }
    let id = attempt.record.id.to_string();
    fields.insert(IDEMPOTENCY_KEY, HeaderValue::from_str(&id).map_err(|_| RequestError::Url)?);
    Ok(finish(attempt, settings, (method, url), fields, body.clone(), now))
}

/// Makes the request of several records, with this body.
pub(crate) fn build_bulk(
    batch: &[Attempt],
    settings: &HttpSettings,
    content_type: HeaderValue,
    body: Bytes,
    now: Timestamp,
) -> Result<Request<Full<Bytes>>, RequestError> {
    settings.destinations.check_url(&settings.url)?;
    let mut fields = HeaderMap::new();
    fields.insert(http::header::CONTENT_TYPE, content_type);
    let target = (settings.method.clone(), settings.url.clone());
    let first = batch.first().ok_or(RequestError::Url)?;
    Ok(finish(first, settings, target, fields, body, now))
}

fn finish(
    attempt: &Attempt,
    settings: &HttpSettings,
    (method, url): (Method, Uri),
    mut fields: HeaderMap,
    body: Bytes,
    now: Timestamp,
) -> Request<Full<Bytes>> {
    for (name, value) in &settings.headers {
        fields.insert(name.clone(), value.clone());
    }
    fields.insert(ATTEMPT_FIELD, attempt.number.into());
    if let Some(slot) = attempt.slot.filter(|_| settings.send_slot)
        && let Ok(value) = HeaderValue::from_str(&slot.to_string())
    {
        fields.insert(SLOT_FIELD, value);
    }
    if !settings.signing_keys.is_empty()
        && let Ok(value) = HeaderValue::from_str(&sign_all(&settings.signing_keys, &body, now))
    {
        fields.insert(HeaderName::from_static(SIGNATURE_FIELD), value);
    }
    fields.remove(HOST);
    fields.remove(CONTENT_LENGTH);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = url;
    *request.headers_mut() = fields;
    request
}

fn read_method(headers: &[(String, Bytes)], default: &Method) -> Result<Method, RequestError> {
    let Some((_, value)) = headers.iter().find(|(name, _)| name == METHOD_FIELD) else {
        return Ok(default.clone());
    };
    let shown = || String::from_utf8_lossy(value).chars().take(32).collect();
    let method = Method::from_bytes(value).map_err(|_| RequestError::Method(shown()))?;
    // CONNECT opens a tunnel, and TRACE returns the header fields.
    let unusable = method == Method::CONNECT || method == Method::TRACE;
    if unusable { Err(RequestError::Method(shown())) } else { Ok(method) }
}

fn read_url(headers: &[(String, Bytes)], base: &Uri) -> Result<Uri, RequestError> {
    let Some((_, value)) = headers.iter().find(|(name, _)| name == URL_FIELD) else {
        return Ok(base.clone());
    };
    let text = std::str::from_utf8(value).map_err(|_| RequestError::Url)?;
    resolve(base, text).ok_or(RequestError::Url)
}

/// A URL as written at `base`: absolute, or an absolute path.
pub(crate) fn resolve(base: &Uri, text: &str) -> Option<Uri> {
    // A scheme-relative URL names another host.
    if !text.starts_with('/') || text.starts_with("//") {
        let url: Uri = text.parse().ok()?;
        return (url.scheme().is_some() && url.authority().is_some()).then_some(url);
    }
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(text.parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_path_below_the_target_or_absolute() {
        let base: Uri = "https://api.test:8443/v1?x".parse().unwrap();
        let resolved = |text| resolve(&base, text).map(|url| url.to_string());
        assert_eq!(
            resolved("/orders/1?a=b").as_deref(),
            Some("https://api.test:8443/orders/1?a=b")
        );
        assert_eq!(resolved("https://other.test/").as_deref(), Some("https://other.test/"));
        for text in ["", "orders", "//evil.test/a", "a:b:c", "/a b", "http://"] {
            assert_eq!(resolved(text), None, "{text}");
        }
    }

    #[test]
    fn methods_that_tunnel_or_echo_are_rejected() {
        let field =
            |value: &'static str| [(METHOD_FIELD.to_owned(), Bytes::from_static(value.as_bytes()))];
        assert_eq!(read_method(&[], &Method::POST), Ok(Method::POST));
        assert_eq!(read_method(&field("PUT"), &Method::POST), Ok(Method::PUT));
        for value in ["CONNECT", "TRACE", "", "A B"] {
            assert!(read_method(&field(value), &Method::POST).is_err(), "{value}");
        }
    }
}
