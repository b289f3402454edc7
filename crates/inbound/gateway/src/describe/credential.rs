//! Reads credentials from a request: bearer tokens, header fields, cookies and query parameters.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;

use crate::settings::PresentedIn;

/// The credential of a request, from where the settings expect it.
pub(super) fn credential<'r>(head: &'r Parts, presented_in: &PresentedIn) -> Option<Cow<'r, str>> {
    match presented_in {
        PresentedIn::Bearer => {
            let value = head.headers.get(AUTHORIZATION)?.to_str().ok()?;
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| Cow::Borrowed(token.trim()))
        }
        PresentedIn::Header(name) => head.headers.get(name)?.to_str().ok().map(Cow::Borrowed),
        PresentedIn::Cookie(name) => cookie(&head.headers, name).map(Cow::Borrowed),
        PresentedIn::Query(name) => query_parameter(head.uri.query()?, name),
    }
}

/// The value of a cookie.
pub(super) fn cookie<'r>(headers: &'r HeaderMap, name: &str) -> Option<&'r str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let value = pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name);
    value.map(|(_, value)| {
        value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
    })
}

/// The value of a query parameter.
pub(super) fn query_parameter<'r>(query: &'r str, name: &str) -> Option<Cow<'r, str>> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key) == name).then(|| decode(value))
    })
}

/// Decodes percent escapes and `+`. Returns the text unchanged if the result is not UTF-8.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => out.push(b' '),
            b'%' => match hex_byte(after) {
                Some(byte) => {
                    out.push(byte);
                    rest = after.get(2..).unwrap_or_default();
                }
                None => out.push(b'%'),
            },
            other => out.push(*other),
        }
    }
    String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The byte of two hexadecimal digits.
fn hex_byte(bytes: &[u8]) -> Option<u8> {
    let digits = bytes.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use http::Request;
    use proptest::prelude::*;

    use super::*;

    fn head(name: &str, value: &str) -> Parts {
        Request::get("/?a=1&b%61=x+y%21&c").header(name, value).body(()).unwrap().into_parts().0
    }

    #[test]
    fn cookies_are_found_among_others() {
        let head = head("cookie", "x=1; session=\"ab=c\"; y");
        assert_eq!(cookie(&head.headers, "session"), Some("ab=c"));
        assert_eq!(cookie(&head.headers, "y"), None);
    }

    #[test]
    fn query_parameters_are_found_in_any_escaping() {
        let of = |name| query_parameter("a=1&b%61=x+y%21&c", name).map(Cow::into_owned);
        assert_eq!(of("a").as_deref(), Some("1"));
        assert_eq!(of("ba").as_deref(), Some("x y!"));
        assert_eq!(of("c").as_deref(), Some(""));
        assert_eq!(of("d"), None);
    }

    #[test]
    fn a_credential_is_read_from_where_the_settings_expect_it() {
        let bearer = head("authorization", "bearer  t.o.k ");
        assert_eq!(credential(&bearer, &PresentedIn::Bearer).as_deref(), Some("t.o.k"));
        let basic = head("authorization", "Basic abc");
        assert_eq!(credential(&basic, &PresentedIn::Bearer), None);
        assert_eq!(credential(&basic, &PresentedIn::Query("a".into())).as_deref(), Some("1"));
    }

    proptest! {
        #[test]
        fn no_query_panics(text in "\\PC{0,40}") {
            let _ = query_parameter(&text, "a");
            let _ = decode(&text);
        }
    }
}
