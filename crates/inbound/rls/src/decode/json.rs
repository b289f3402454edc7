//! Requests to upstream's `/json`, in protobuf's JSON.
//!
//! Names in lower camel case or as in the proto files, numbers of 64 bits as text or numbers, enums by name or number,
//! null for an absent member; unknown and duplicate members are errors.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use super::request::{LimitOverride, RateLimitRequest};
use crate::unit::UnitNumber;

/// A `RateLimitRequest`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct JsonRequest<'b> {
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
#[derive(Debug, Default)]
struct Text<'b>(Cow<'b, str>);

impl<'de: 'b, 'b> Deserialize<'de> for Text<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
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
        deserializer.deserialize_any(TextVisitor)
    }
}

/// An unsigned number, as a number or as text. A fraction or an exponent is fine if the value is whole.
#[derive(Debug, Default)]
struct Number<N>(N);

impl<'de, N: TryFrom<u64> + Default> Deserialize<'de> for Number<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(NumberVisitor)? {
            NumberOrWord::Null => Ok(Number::default()),
            NumberOrWord::Number(number) => match N::try_from(number) {
                Ok(number) => Ok(Number(number)),
                Err(_) => Err(de::Error::custom(format_args!("the number {number} is too large"))),
            },
            NumberOrWord::Word(word) => {
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
        match deserializer.deserialize_any(UnitVisitor)? {
            NumberOrWord::Null => Ok(JsonUnit(0)),
            // An unknown number is rejected when the request is validated.
            NumberOrWord::Number(number) => Ok(JsonUnit(i32::try_from(number).unwrap_or(i32::MAX))),
            NumberOrWord::Word(word) => match UnitNumber::of_name(&word) {
                Some(number) => Ok(JsonUnit(number)),
                None => Err(de::Error::custom(format_args!("`{word}` is not a unit"))),
            },
        }
    }
}

/// A value where a number is expected.
enum NumberOrWord {
    Null,
    Number(u64),
    Word(String),
}

/// Reads a number, also as text.
struct NumberVisitor;

/// Reads the number or the name of a unit.
struct UnitVisitor;

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = NumberOrWord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<NumberOrWord, E> {
        Ok(NumberOrWord::Number(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<NumberOrWord, E> {
        match whole(number) {
            Some(number) => Ok(NumberOrWord::Number(number)),
            None => Ok(NumberOrWord::Word(number.to_string())),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<NumberOrWord, E> {
        if let Ok(number) = text.parse() {
            return Ok(NumberOrWord::Number(number));
        }
        // By JSON's grammar of numbers: Rust's also accepts `inf` and `+1`.
        let number: Option<f64> = serde_json::from_str(text).ok();
        let trimmed = text.trim() == text;
        match number.filter(|_| trimmed).and_then(whole) {
            Some(number) => Ok(NumberOrWord::Number(number)),
            None => Ok(NumberOrWord::Word(text.to_owned())),
        }
    }

    fn visit_unit<E: de::Error>(self) -> Result<NumberOrWord, E> {
        Ok(NumberOrWord::Null)
    }
}

impl<'de> Visitor<'de> for UnitVisitor {
    type Value = NumberOrWord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name or the number of a unit")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<NumberOrWord, E> {
        Ok(NumberOrWord::Number(number))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<NumberOrWord, E> {
        // No unit has a negative number.
        Ok(NumberOrWord::Number(u64::MAX))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<NumberOrWord, E> {
        NumberVisitor.visit_f64(number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<NumberOrWord, E> {
        Ok(NumberOrWord::Word(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<NumberOrWord, E> {
        Ok(NumberOrWord::Null)
    }
}

/// The number, if it is whole and not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
fn whole(number: f64) -> Option<u64> {
    const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
    let is_whole = number.fract() == 0.0 && (0.0..TOO_LARGE).contains(&number);
    is_whole.then_some(number as u64)
}
