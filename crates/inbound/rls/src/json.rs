//! Upstream's `/json`: the messages of the service in protobuf's JSON.
//!
//! Names in lower camel case or as in the proto files, numbers of 64 bits as
//! text or numbers, enums by name or number, null for what is not there;
//! unknown members and members given twice are errors. Answers leave out what
//! is zero.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::answer::{Answer, Code, DescriptorStatus};
use super::asked::{Asked, OwnLimit};
use super::metadata::Metadata;
use super::settings::RlsSettings;
use super::unit::UnitNumber;
use tidegate_metrics::AnswerKind;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");

/// A `RateLimitRequest`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct JsonRequest<'b> {
    #[serde(borrow)]
    domain: Text<'b>,
    #[serde(borrow, deserialize_with = "or_default")]
    descriptors: Vec<JsonDescriptor<'b>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Number<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct JsonDescriptor<'b> {
    #[serde(borrow, deserialize_with = "or_default")]
    entries: Vec<JsonEntry<'b>>,
    limit: Option<JsonLimit>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number<u64>>,
    #[serde(alias = "is_negative_hits", deserialize_with = "or_default")]
    is_negative_hits: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JsonEntry<'b> {
    #[serde(borrow)]
    key: Text<'b>,
    #[serde(borrow)]
    value: Text<'b>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct JsonLimit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Number<u32>,
    unit: JsonUnit,
}

/// Reads a request.
pub(super) fn read(body: &[u8], bytes_max: usize) -> Result<JsonRequest<'_>, String> {
    if body.len() > bytes_max {
        return Err(format!("the request is longer than {bytes_max} bytes"));
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

impl JsonRequest<'_> {
    /// What is asked.
    pub(super) fn asked(&self) -> Asked<'_> {
        let mut asked = Asked::default();
        asked.domain = &self.domain.0;
        asked.hits = self.hits_addend.0;
        for descriptor in &self.descriptors {
            let mut part = asked.begin();
            for entry in &descriptor.entries {
                asked.entry(&entry.key.0, &entry.value.0);
            }
            part.limit = descriptor.limit.as_ref().map(|limit| OwnLimit {
                requests_per_unit: limit.requests_per_unit.0,
                unit: limit.unit.0,
            });
            part.hits = descriptor.hits_addend.as_ref().map(|hits| hits.0);
            part.negative = descriptor.is_negative_hits;
            asked.end(part);
        }
        asked
    }
}

/// Writes an answer.
pub(super) fn write(answer: &Answer<'_>) -> (Code, Bytes) {
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
    // Nothing in it can fail: all keys are text, all numbers finite.
    (answer.overall, Bytes::from(serde_json::to_vec(&json).unwrap_or_default()))
}

/// The HTTP answer to a request that was answered.
pub(super) fn answered(answered: AnswerKind, code: Code, answer: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer));
    *response.status_mut() = match (code, answered) {
        (Code::OverLimit, AnswerKind::Undecided) => StatusCode::SERVICE_UNAVAILABLE,
        (Code::OverLimit, _) => StatusCode::TOO_MANY_REQUESTS,
        (Code::Ok, _) => StatusCode::OK,
        (Code::Unknown, _) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// The HTTP answer to a request that makes no sense. Upstream does not say why.
pub(super) fn failed(why: &str, settings: &RlsSettings) -> Response<Full<Bytes>> {
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

/// Null stands for what is not there.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Text, borrowed where nothing in it is escaped.
#[derive(Debug, Default)]
struct Text<'b>(Cow<'b, str>);

impl<'de: 'b, 'b> Deserialize<'de> for Text<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reading;
        impl<'de> Visitor<'de> for Reading {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(Reading)
    }
}

/// A number without a sign: as a number or as text, with a fraction or an
/// exponent where that makes it whole.
#[derive(Debug, Default)]
struct Number<N>(N);

impl<'de, N: TryFrom<u64> + Default> Deserialize<'de> for Number<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(Numeral)? {
            Read::Nothing => Ok(Number::default()),
            Read::Number(number) => match N::try_from(number) {
                Ok(number) => Ok(Number(number)),
                Err(_) => Err(de::Error::custom(format_args!("the number {number} is too large"))),
            },
            Read::Word(word) => {
                Err(de::Error::custom(format_args!("`{word}` is not a whole number")))
            }
        }
    }
}

/// A unit, by number or name.
#[derive(Debug, Default)]
struct JsonUnit(i32);

impl<'de> Deserialize<'de> for JsonUnit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(Unread)? {
            Read::Nothing => Ok(JsonUnit(0)),
            // A number without a name is judged with the request.
            Read::Number(number) => Ok(JsonUnit(i32::try_from(number).unwrap_or(i32::MAX))),
            Read::Word(word) => match UnitNumber::of_name(&word) {
                Some(number) => Ok(JsonUnit(number)),
                None => Err(de::Error::custom(format_args!("`{word}` is not a unit"))),
            },
        }
    }
}

/// What was found where a number is expected.
enum Read {
    Nothing,
    Number(u64),
    Word(String),
}

/// Reads a number, also from text.
struct Numeral;

/// Reads a number, or text as it is.
struct Unread;

impl<'de> Visitor<'de> for Numeral {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Read, E> {
        Ok(Read::Number(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Read, E> {
        match whole(number) {
            Some(number) => Ok(Read::Number(number)),
            None => Ok(Read::Word(number.to_string())),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Read, E> {
        if let Ok(number) = text.parse() {
            return Ok(Read::Number(number));
        }
        // The grammar of JSON's numbers, not Rust's, which knows `inf` and `+1`.
        let number: Option<f64> = serde_json::from_str(text).ok();
        let trimmed = text.trim() == text;
        match number.filter(|_| trimmed).and_then(whole) {
            Some(number) => Ok(Read::Number(number)),
            None => Ok(Read::Word(text.to_owned())),
        }
    }

    fn visit_unit<E: de::Error>(self) -> Result<Read, E> {
        Ok(Read::Nothing)
    }
}

impl<'de> Visitor<'de> for Unread {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name or the number of a unit")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Read, E> {
        Ok(Read::Number(number))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Read, E> {
        // No unit has a number below zero.
        Ok(Read::Number(u64::MAX))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Read, E> {
        Numeral.visit_f64(number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Read, E> {
        Ok(Read::Word(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Read, E> {
        Ok(Read::Nothing)
    }
}

/// The number, if it is whole and not below zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
fn whole(number: f64) -> Option<u64> {
    const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
    let is_whole = number.fract() == 0.0 && (0.0..TOO_LARGE).contains(&number);
    is_whole.then_some(number as u64)
}
