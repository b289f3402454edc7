//! Requests and answers of the throttled service.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use tidegate_algorithms::Timestamp;
use tidegate_capacity::Cost;
use tidegate_server::RequestBody;
use tokio::time::sleep;

use super::{Ruling, ServiceState, Visit};
use crate::settings::{RetryHint, ServiceFault};

/// The path of the report.
pub const REPORT_PATH: &str = "/.throttled/report";

/// The most bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const ATTEMPT: HeaderName = HeaderName::from_static("tidegate-attempt");
const SLOT: HeaderName = HeaderName::from_static("tidegate-slot");
const DEPARTED: HeaderName = HeaderName::from_static("departed-ns");
/// Requests with this field always fail.
const POISON: HeaderName = HeaderName::from_static("x-poison");
const UNITS: HeaderName = HeaderName::from_static("x-units");
const CHARGE: HeaderName = HeaderName::from_static("x-request-charge");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

pub(super) async fn serve(
    state: Arc<ServiceState>,
    request: Request<RequestBody>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == REPORT_PATH {
        return Ok(json(200, &state.report()));
    }
    let received = state.now();
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_BYTES_MAX).collect().await else {
        return Ok(json(400, &serde_json::json!({ "error": "the body is cut off or too long" })));
    };
    let body = body.to_bytes();
    let delay = state.draw_delay_before();
    if !delay.is_zero() {
        sleep(delay).await;
    }
    let cost = Cost {
        operations: 1,
        bytes: u64::try_from(body.len()).unwrap_or(u64::MAX),
        units: number(&head.headers, &UNITS).unwrap_or(state.settings.units),
    };
    let visit = Visit {
        received,
        departed: number(&head.headers, &DEPARTED).map(Timestamp::from_nanos),
        id: text(&head.headers, &IDEMPOTENCY_KEY).map(Into::into),
        attempt: number(&head.headers, &ATTEMPT),
        slot: text(&head.headers, &SLOT).and_then(read_slot),
        poison: head.headers.contains_key(&POISON),
        cost,
    };
    let ruling = state.rule(visit);
    if ruling.fault == ServiceFault::Silent {
        pending::<()>().await;
    }
    if !ruling.delay.is_zero() {
        sleep(ruling.delay).await;
    }
    Ok(encode(&ruling, state.settings.retry_hint))
}

fn encode(ruling: &Ruling, hint: RetryHint) -> Response<Full<Bytes>> {
    let charged = if ruling.status < 300 { ruling.charged } else { 0 };
    let mut response = json(ruling.status, &serde_json::json!({ "charged": charged }));
    let headers = response.headers_mut();
    if ruling.status < 300 {
        headers.insert(CHARGE, charged.into());
    }
    if let Some((limit, remaining, reset)) = ruling.room {
        headers.insert("x-ratelimit-limit", limit.into());
        headers.insert("x-ratelimit-remaining", remaining.into());
        headers.insert("x-ratelimit-reset", reset.as_secs_ceil().into());
    }
    if let Some(wait) = ruling.retry_after {
        match hint {
            RetryHint::Milliseconds if ruling.status == 429 => {
                headers.insert(RETRY_AFTER_MS, wait.get().div_ceil(1_000_000).into());
            }
            RetryHint::None if ruling.status == 429 => {}
            _ => {
                headers.insert(RETRY_AFTER, wait.as_secs_ceil().into());
            }
        }
    }
    response
}

fn json(status: u16, value: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn number<N: std::str::FromStr>(headers: &HeaderMap, name: &HeaderName) -> Option<N> {
    text(headers, name)?.parse().ok()
}

/// Reads `slot:epoch`.
fn read_slot(text: &str) -> Option<(u16, u64)> {
    let (slot, epoch) = text.split_once(':')?;
    Some((slot.parse().ok()?, epoch.parse().ok()?))
}
