//! Answers to upstream's `/json`, in protobuf's JSON. Members that are zero are left out.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::{Serialize, Serializer};
use tidegate_metrics::AnswerKind;

use super::answer::{Answer, Code, DescriptorStatus};
use super::metadata::Metadata;
use crate::settings::RlsSettings;
use crate::unit::UnitNumber;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");

/// The answer to a request that is admitted because limiter code panicked.
pub(crate) const ADMITTED: (Code, Bytes) =
    (Code::Ok, Bytes::from_static(b"{\"overallCode\":\"OK\"}"));

/// Renders an answer.
pub(crate) fn render(answer: &Answer<'_>) -> (Code, Bytes) {
    let json = JsonResponse {
        overall_code: answer.overall.name(),
        statuses: answer.statuses.iter().map(JsonStatus::of).collect(),
        response_headers_to_add: answer
            .headers
            .iter()
            .flatten()
            .map(|(key, value)| JsonHeader { key, value: value.to_string() })
            .collect(),
        dynamic_metadata: answer.metadata.as_ref(),
    };
    // Cannot fail: all keys are text, all numbers finite.
    (answer.overall, Bytes::from(serde_json::to_vec(&json).unwrap_or_default()))
}

/// The HTTP response for an answer.
pub(crate) fn response(kind: AnswerKind, code: Code, answer: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer));
    *response.status_mut() = match (code, kind) {
        (Code::OverLimit, AnswerKind::Undecided) => StatusCode::SERVICE_UNAVAILABLE,
        (Code::OverLimit, _) => StatusCode::TOO_MANY_REQUESTS,
        (Code::Ok, _) => StatusCode::OK,
        (Code::Unknown, _) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// The HTTP response for an invalid request. Upstream gives no reason.
pub(crate) fn bad_request(why: &str, settings: &RlsSettings) -> Response<Full<Bytes>> {
    let text = if settings.upstream_errors {
        "Bad Request\n".to_owned()
    } else {
        format!("Bad Request: {why}\n")
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
    response
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonResponse<'v> {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<JsonStatus<'v>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<JsonHeader<'v>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic_metadata: Option<&'v Metadata>,
}

#[derive(Serialize)]
struct JsonHeader<'v> {
    key: &'v str,
    value: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonStatus<'v> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<JsonCurrentLimit<'v>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    duration_until_reset: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonCurrentLimit<'v> {
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'v str,
}

impl<'v> JsonStatus<'v> {
    fn of(status: &DescriptorStatus<'v>) -> Self {
        let limit = status.current_limit.as_ref();
        JsonStatus {
            code: (status.code != Code::Unknown).then(|| status.code.name()),
            current_limit: limit.map(|limit| JsonCurrentLimit {
                requests_per_unit: limit.requests_per_unit,
                unit: (limit.unit != UnitNumber::default()).then(|| limit.unit.name()),
                name: limit.name,
            }),
            limit_remaining: status.remaining,
            duration_until_reset: limit.map(|_| status.reset_seconds),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes by reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn seconds<S: Serializer>(seconds: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}s", seconds.unwrap_or_default()))
}
