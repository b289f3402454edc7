//! Requests to upstream's `/json`, in protobuf's JSON.
//!
//! Names in lower camel case or as in the proto files, numbers of 64 bits as text or numbers, enums by name or number,
//! null for an absent member; unknown and duplicate members are errors.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::request::{LimitOverride, RateLimitRequest};
use crate::unit::UnitNumber;

/// A `RateLimitRequest`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct JsonRequest<'b> {
    #[serde(borrow, deserialize_with = "or_default")]
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
    #[serde(borrow, deserialize_with = "or_default")]
    key: Text<'b>,
    #[serde(borrow, deserialize_with = "or_default")]
    value: Text<'b>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct JsonLimit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Number<u32>,
    unit: JsonUnit,
}

/// Parses a request.
pub(crate) fn parse(body: &[u8], bytes_max: usize) -> Result<JsonRequest<'_>, String> {
    if body.len() > bytes_max {
        return Err(format!("the request is longer than {bytes_max} bytes"));
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

impl JsonRequest<'_> {
    /// The same request as a message would have it.
    pub(crate) fn request(&self) -> RateLimitRequest<'_> {
        let mut request = RateLimitRequest::default();
        request.domain = &self.domain.0;
        request.hits = self.hits_addend.0;
        for json in &self.descriptors {
            let mut descriptor = request.start_descriptor();
            for entry in &json.entries {
                request.push_entry(&entry.key.0, &entry.value.0);
            }
            descriptor.limit = json.limit.as_ref().map(|limit| LimitOverride {
                requests_per_unit: limit.requests_per_unit.0,
                unit: limit.unit.0,
            });
            descriptor.hits = json.hits_addend.as_ref().map(|hits| hits.0);
            descriptor.negative = json.is_negative_hits;
            request.end_descriptor(descriptor);
        }
        request
    }
}

/// Reads null as an absent member.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Text, borrowed unless it has escapes.
#[derive(Debug, Default, Deserialize)]
struct Text<'b>(#[serde(borrow)] Cow<'b, str>);

/// An unsigned number, as a number or as text. A fraction or an exponent is fine if the value is whole.
#[derive(Debug, Default)]
struct Number<N>(N);

impl<'de, N: TryFrom<u64> + Default> Deserialize<'de> for Number<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = match Value::deserialize(deserializer)? {
            Value::Null => return Ok(Number::default()),
            // By JSON's grammar of numbers: Rust's also accepts `inf` and `+1`.
            Value::String(text) if text.trim() == text => {
                serde_json::from_str(&text).unwrap_or(Value::String(text))
            }
            value => value,
        };
        let Some(number) = whole(&value) else {
            return Err(unexpected(&value, "a whole number"));
        };
        let too_large = |_| Error::custom(format_args!("the number {number} is too large"));
        N::try_from(number).map(Number).map_err(too_large)
    }
}

/// A unit, by number or name.
#[derive(Debug, Default)]
struct JsonUnit(i32);

impl<'de> Deserialize<'de> for JsonUnit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(JsonUnit(match Value::deserialize(deserializer)? {
            Value::Null => 0,
            Value::String(word) => UnitNumber::of_name(&word)
                .ok_or_else(|| Error::custom(format_args!("`{word}` is not a unit")))?,
            // An unknown number is rejected when the request is validated.
            Value::Number(number) => {
                whole(&number.into()).and_then(|number| number.try_into().ok()).unwrap_or(i32::MAX)
            }
            value => return Err(unexpected(&value, "the name or number of a unit")),
        }))
    }
}

/// The error of a value that is not what it should be. It may be long, so only its start is shown.
fn unexpected<E: Error>(value: &Value, expected: &str) -> E {
    let shown: String = value.to_string().chars().take(64).collect();
    E::custom(format_args!("`{shown}` is not {expected}"))
}

/// A number that is whole and not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
fn whole(value: &Value) -> Option<u64> {
    const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
    let is_whole = |number: &f64| number.fract() == 0.0 && (0.0..TOO_LARGE).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(is_whole).map(|number| number as u64))
}
