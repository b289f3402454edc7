//! Reads credentials from a request: bearer tokens, header fields, cookies and query parameters.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderValue};
use http::request::Parts;

use crate::settings::PresentedIn;

/// The credential of a request, from where the settings expect it.
pub(super) fn credential<'r>(head: &'r Parts, presented_in: &PresentedIn) -> Option<Cow<'r, str>> {
    match presented_in {
        PresentedIn::Bearer => {
            let value = head.headers.get(AUTHORIZATION)?.as_bytes();
            let space = value.iter().position(|byte| *byte == b' ')?;
            let (scheme, token) = value.split_at_checked(space)?;
            scheme.eq_ignore_ascii_case(b"bearer").then(|| text(token.trim_ascii()))
        }
        PresentedIn::Header(name) => head.headers.get(name).map(|value| text(value.as_bytes())),
        PresentedIn::Cookie(name) => cookie(&head.headers, name),
        PresentedIn::Query(name) => query_parameter(head.uri.query()?, name),
    }
}

/// The value of a cookie. Lines are read as bytes: one that is not text must not hide the others.
pub(super) fn cookie<'r>(headers: &'r HeaderMap, name: &str) -> Option<Cow<'r, str>> {
    let lines = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let mut pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.find_map(|pair| {
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
        assert_eq!(cookie(&head.headers, "session").as_deref(), Some("ab=c"));
        assert_eq!(cookie(&head.headers, "y"), None);
    }

    #[test]
    fn bytes_that_are_not_text_hide_neither_their_value_nor_others() {
        let request = Request::get("/").header("cookie", b"x=\xff; s=1; y=\xe4".as_slice());
        let head = request.header("x-key", b"k\xff".as_slice()).body(()).unwrap().into_parts().0;
        assert_eq!(cookie(&head.headers, "s").as_deref(), Some("1"));
        assert_eq!(cookie(&head.headers, "y").as_deref(), Some("ä"));
        let key = PresentedIn::Header("x-key".parse().unwrap());
        assert_eq!(credential(&head, &key).as_deref(), Some("kÿ"));
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
