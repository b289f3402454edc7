//! The query of a data page: names and values, decoded, each known.

use std::borrow::Cow;

use http::StatusCode;

use super::answer::Problem;

/// The most parameters of a query.
const PARAMETERS_MAX: usize = 16;
/// The longest value.
const VALUE_BYTES_MAX: usize = 1_024;

/// The parameters of a query.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query that may have these parameters, each once.
    pub(super) fn parse(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut parameters: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                let detail = format!("the query may have {}", known.join(", "));
                return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
            }
            let is_double = parameters.iter().any(|(other, _)| other == name);
            if is_double || parameters.len() >= PARAMETERS_MAX || value.len() > VALUE_BYTES_MAX {
                let detail = format!("`{name}` is there twice, or is too long");
                return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
            }
            let value = decode(value).ok_or_else(|| {
                let detail = format!("`{name}` is not percent-encoded UTF-8");
                Problem::new(StatusCode::BAD_REQUEST, detail)
            })?;
            parameters.push((name.to_owned(), value.into_owned()));
        }
        Ok(Query(parameters))
    }

    /// A parameter, unless it is missing or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A whole number, or `default`.
    pub(super) fn number(&self, name: &str, default: u64) -> Result<u64, Problem> {
        let Some(text) = self.get(name) else { return Ok(default) };
        text.parse().map_err(|_| {
            Problem::new(StatusCode::BAD_REQUEST, format!("`{name}` takes a whole number"))
        })
    }
}

/// The text of percent-encoded UTF-8; a plus sign is a space.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_unknown_names_are_named() {
        let query = Query::parse(Some("find=a%20b+c&sort="), &["find", "sort"]).unwrap();
        assert_eq!((query.get("find"), query.get("sort")), (Some("a b c"), None));
        let error = Query::parse(Some("fnd=a"), &["find", "sort"]).unwrap_err();
        assert_eq!(error.detail, "the query may have find, sort");
        for wrong in ["find=%", "find=%zz", "find=%ff", "find=a&find=b"] {
            assert!(Query::parse(Some(wrong), &["find"]).is_err(), "{wrong}");
        }
        assert!(query.number("find", 1).is_err());
        assert_eq!(query.number("sort", 7), Ok(7));
    }
}
