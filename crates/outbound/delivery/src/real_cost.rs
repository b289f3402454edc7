//! Reads from an answer what a request really cost.

use http::HeaderMap;
use http::header::HeaderName;
use serde_json::Value;
use tidegate_queue::COST_MAX;

/// Where an answer says what the request cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CostSource {
    /// It does not.
    #[default]
    None,
    /// In a header field, such as `x-ms-request-charge`.
    Header(HeaderName),
    /// At a JSON pointer of the body, such as `/usage/total_tokens`.
    JsonPointer(String),
}

impl CostSource {
    /// The cost in whole units, rounded up. `None` if the answer does not say it.
    pub fn read(&self, headers: &HeaderMap, body: &[u8]) -> Option<u64> {
        match self {
            CostSource::None => None,
            CostSource::Header(name) => {
                let text = headers.get(name)?.to_str().ok()?.trim();
                whole_units(text.parse().ok()?)
            }
            CostSource::JsonPointer(pointer) => {
                let document: Value = serde_json::from_slice(body).ok()?;
                read_number(document.pointer(pointer)?)
            }
        }
    }
}

/// A cost in JSON: a number, or a number as text.
pub(crate) fn read_number(value: &Value) -> Option<u64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    whole_units(number)
}

fn whole_units(cost: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "a billion is exact")]
    let max = COST_MAX as f64;
    if !cost.is_finite() || cost < 0.0 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within bounds")]
    let whole = cost.ceil().min(max) as u64;
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_read_from_a_field_or_the_body_and_rounded_up() {
        let mut headers = HeaderMap::new();
        headers.insert("x-charge", "10.29".parse().unwrap());
        let field = CostSource::Header(HeaderName::from_static("x-charge"));
        assert_eq!(field.read(&headers, b""), Some(11));
        let pointer = CostSource::JsonPointer("/usage/total".to_owned());
        assert_eq!(pointer.read(&headers, br#"{"usage":{"total":7}}"#), Some(7));
        assert_eq!(pointer.read(&headers, br#"{"usage":{"total":"8"}}"#), Some(8));
        for body in ["", "{}", r#"{"usage":{"total":-1}}"#, r#"{"usage":{"total":null}}"#, "[[["] {
            assert_eq!(pointer.read(&headers, body.as_bytes()), None, "{body}");
        }
        headers.insert("x-charge", "NaN".parse().unwrap());
        assert_eq!(field.read(&headers, b""), None);
        headers.insert("x-charge", "1e300".parse().unwrap());
        assert_eq!(field.read(&headers, b""), Some(COST_MAX));
    }
}
