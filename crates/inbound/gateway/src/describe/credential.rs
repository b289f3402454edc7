//! Reads credentials from a request: bearer tokens, header fields, cookies and query parameters.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use http::request::Parts;
use percent_encoding::percent_decode_str;
use tidegate_access::bearer_token;

use crate::settings::PresentedIn;

/// The result of looking for a value that should be there at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValueMatch<T> {
    Missing,
    One(T),
    /// Values that differ: servers choose the first, the last or all of them.
    Several,
}

impl<T> ValueMatch<T> {
    pub(super) fn map<U>(self, convert: impl FnOnce(T) -> U) -> ValueMatch<U> {
        match self {
            ValueMatch::Missing => ValueMatch::Missing,
            ValueMatch::One(value) => ValueMatch::One(convert(value)),
            ValueMatch::Several => ValueMatch::Several,
        }
    }
}

impl<T> From<Option<T>> for ValueMatch<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(ValueMatch::Missing, ValueMatch::One)
    }
}

/// The only value; equal ones count as one.
pub(super) fn only<T: PartialEq>(mut values: impl Iterator<Item = T>) -> ValueMatch<T> {
    let Some(first) = values.next() else { return ValueMatch::Missing };
    if values.all(|other| other == first) { ValueMatch::One(first) } else { ValueMatch::Several }
}

/// The credential of a request, from where the settings expect it.
pub(super) fn credential<'r>(
    head: &'r Parts,
    presented_in: &PresentedIn,
) -> ValueMatch<Cow<'r, str>> {
    match presented_in {
        PresentedIn::Bearer => {
            let values = head.headers.get_all(AUTHORIZATION).iter();
            match only(values.map(HeaderValue::as_bytes)) {
                ValueMatch::One(value) => bearer_token(value).map(text).into(),
                ValueMatch::Several => ValueMatch::Several,
                ValueMatch::Missing => ValueMatch::Missing,
            }
        }
        PresentedIn::Header(name) => only(header_values(&head.headers, name)),
        PresentedIn::Cookie(name) => only(cookie_values(&head.headers, name)),
        PresentedIn::Query(name) => only(query_values(head.uri.query(), name)),
    }
}

/// The values of a header field.
pub(super) fn header_values<'r>(
    headers: &'r HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Cow<'r, str>> {
    headers.get_all(name).iter().map(|value| text(value.as_bytes()))
}

/// The values of a cookie. Lines are read as bytes: one that is not text must not hide the others.
pub(super) fn cookie_values<'r>(
    headers: &'r HeaderMap,
    name: &str,
) -> impl Iterator<Item = Cow<'r, str>> {
    let lines = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let key = pair.get(..equals)?.trim_ascii();
        let value = pair.get(equals + 1..)?.trim_ascii();
        let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        (key == name.as_bytes()).then(|| text(bare.unwrap_or(value)))
    })
}

/// The bytes of a value as text: in UTF-8, or else each byte as the character with its number. No bytes make a value
/// unreadable, because a request without a value may go unlimited.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().copied().map(char::from).collect()),
    }
}

/// The values of a query parameter.
pub(super) fn query_values<'r>(
    query: Option<&'r str>,
    name: &str,
) -> impl Iterator<Item = Cow<'r, str>> {
    let pairs = query.unwrap_or_default().split('&');
    pairs.filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (!pair.is_empty() && decode(key) == name).then(|| decode(value))
    })
}

/// Decodes percent escapes and `+`. Returns the text unchanged if the result is not UTF-8.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().map(Cow::into_owned);
    decoded.map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use proptest::prelude::*;

    use super::*;

    fn head(name: &str, value: &str) -> Parts {
        Request::get("/?a=1&b%61=x+y%21&c").header(name, value).body(()).unwrap().into_parts().0
    }

    fn one(text: &str) -> ValueMatch<Cow<'_, str>> {
        ValueMatch::One(Cow::Borrowed(text))
    }

    #[test]
    fn cookies_are_found_among_others() {
        let head = head("cookie", "x=1; session=\"ab=c\"; y");
        assert_eq!(only(cookie_values(&head.headers, "session")), one("ab=c"));
        assert_eq!(only(cookie_values(&head.headers, "y")), ValueMatch::Missing);
    }

    #[test]
    fn bytes_that_are_not_text_hide_neither_their_value_nor_others() {
        let request = Request::get("/").header("cookie", b"x=\xff; s=1; y=\xe4".as_slice());
        let head = request.header("x-key", b"k\xff".as_slice()).body(()).unwrap().into_parts().0;
        assert_eq!(only(cookie_values(&head.headers, "s")), one("1"));
        assert_eq!(only(cookie_values(&head.headers, "y")), one("ä"));
        let key = PresentedIn::Header("x-key".parse().unwrap());
        assert_eq!(credential(&head, &key), one("kÿ"));
    }

    #[test]
    fn query_parameters_are_found_in_any_escaping() {
        let of = |name| only(query_values(Some("a=1&b%61=x+y%21&c"), name));
        assert_eq!(of("a"), one("1"));
        assert_eq!(of("ba"), one("x y!"));
        assert_eq!(of("c"), one(""));
        assert_eq!(of("d"), ValueMatch::Missing);
        assert_eq!(only(query_values(Some(""), "")), ValueMatch::Missing);
    }

    #[test]
    fn values_that_differ_are_several_and_equal_ones_are_one() {
        let head = head("cookie", "s=1; t=1; s=2; t=1");
        assert_eq!(only(cookie_values(&head.headers, "s")), ValueMatch::Several);
        assert_eq!(only(cookie_values(&head.headers, "t")), one("1"));
        assert_eq!(only(query_values(Some("a=1&a=%31&b=1&b=2"), "a")), one("1"));
        assert_eq!(only(query_values(Some("a=1&a=%31&b=1&b=2"), "b")), ValueMatch::Several);
    }

    #[test]
    fn a_credential_is_read_from_where_the_settings_expect_it() {
        let bearer = head("authorization", "bearer  t.o.k ");
        assert_eq!(credential(&bearer, &PresentedIn::Bearer), one("t.o.k"));
        let basic = head("authorization", "Basic abc");
        assert_eq!(credential(&basic, &PresentedIn::Bearer), ValueMatch::Missing);
        assert_eq!(credential(&basic, &PresentedIn::Query("a".into())), one("1"));
    }

    proptest! {
        #[test]
        fn no_query_panics(text in "\\PC{0,40}") {
            let _ = only(query_values(Some(&text), "a"));
            let _ = decode(&text);
        }
    }
}
