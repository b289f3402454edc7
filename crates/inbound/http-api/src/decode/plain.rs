//! Parses the body that nearly all clients send, in one pass.
//!
//! Such a body is one request with a domain and descriptors, each with entries and nothing else, and no string has
//! escapes. A general JSON parser takes four times as long. Any other body, also an invalid one, is left to serde.

use std::borrow::Cow;

use tidegate_engine::DESCRIPTORS_MAX;

use super::object::{List, Object};
use super::{CheckRequest, RequestDescriptor, RequestEntry};

/// Bytes that end a string or need a general parser: quotes, backslashes, control characters. A table, because every byte
/// of a body is looked up.
const ENDS: [bool; 256] = {
    let mut ends = [false; 256];
    let mut byte = 0;
    while byte < b' ' as usize {
        ends[byte] = true;
        byte += 1;
    }
    ends[b'"' as usize] = true;
    ends[b'\\' as usize] = true;
    ends
};

/// Parses a request; none if it is not plain.
pub(super) fn parse(body: &str) -> Option<CheckRequest<'_>> {
    let mut parser = PlainParser { body, at: 0 };
    let (mut domain, mut descriptors) = (None, None);
    parser.take(b'{')?;
    loop {
        match parser.name()? {
            "domain" if domain.is_none() => domain = Some(parser.text()?),
            "descriptors" if descriptors.is_none() => descriptors = Some(parser.descriptors()?),
            _ => return None,
        }
        if !parser.has_more(b'}')? {
            break;
        }
    }
    parser.skip_space();
    let whole = parser.at == body.len();
    let domain = domain.filter(|domain| whole && !domain.is_empty())?;
    Some(CheckRequest { domain: Cow::Borrowed(domain), descriptors: descriptors?, cost: 1 })
}

/// A body, and the position in it.
struct PlainParser<'a> {
    body: &'a str,
    at: usize,
}

impl<'a> PlainParser<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.body.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes this character, and the space before it.
    #[inline]
    fn take(&mut self, wanted: u8) -> Option<()> {
        self.skip_space();
        if self.peek()? != wanted {
            return None;
        }
        self.at += 1;
        Some(())
    }

    /// Whether another item follows, or the end.
    #[inline]
    fn has_more(&mut self, end: u8) -> Option<bool> {
        self.skip_space();
        let found = self.peek()?;
        self.at += 1;
        match found {
            b',' => Some(true),
            found if found == end => Some(false),
            _ => None,
        }
    }

    /// A string without escapes.
    #[inline]
    fn text(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let rest = self.body.as_bytes().get(self.at..)?;
        let length = rest.iter().position(|byte| ENDS[usize::from(*byte)])?;
        if *rest.get(length)? != b'"' {
            return None;
        }
        let begin = self.at;
        self.at = begin + length + 1;
        self.body.get(begin..begin + length)
    }

    /// The name of a field, and the colon.
    #[inline]
    fn name(&mut self) -> Option<&'a str> {
        let name = self.text()?;
        self.take(b':')?;
        Some(name)
    }

    fn descriptors(&mut self) -> Option<List<RequestDescriptor<'a>>> {
        let mut descriptors = Vec::with_capacity(1);
        self.take(b'[')?;
        loop {
            self.take(b'{')?;
            if self.name()? != "entries" {
                return None;
            }
            let entries = self.entries()?;
            self.take(b'}')?;
            descriptors.push(Object(RequestDescriptor { entries, cost: None, limit: None }));
            if !self.has_more(b']')? {
                return (descriptors.len() <= DESCRIPTORS_MAX).then_some(List(descriptors));
            }
        }
    }

    fn entries(&mut self) -> Option<List<RequestEntry<'a>>> {
        let mut entries = Vec::with_capacity(1);
        self.take(b'[')?;
        loop {
            entries.push(Object(self.entry()?));
            if !self.has_more(b']')? {
                return Some(List(entries));
            }
        }
    }

    #[inline]
    fn entry(&mut self) -> Option<RequestEntry<'a>> {
        self.take(b'{')?;
        let (first, one) = (self.name()?, self.text()?);
        self.take(b',')?;
        let (second, other) = (self.name()?, self.text()?);
        self.take(b'}')?;
        let (key, value) = match (first, second) {
            ("key", "value") => (one, other),
            ("value", "key") => (other, one),
            _ => return None,
        };
        Some(RequestEntry { key: Cow::Borrowed(key), value: Cow::Borrowed(value) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::CheckBody;
    use super::*;

    /// The request as serde parses it.
    fn parse_with_serde(body: &str) -> Option<CheckRequest<'_>> {
        match super::super::parse(body.as_bytes()) {
            Ok(CheckBody::One(request)) => Some(request),
            _ => None,
        }
    }

    fn same(body: &str) -> bool {
        let Some(plain) = parse(body) else { return false };
        let general = parse_with_serde(body).unwrap_or_else(|| panic!("{body:?} is no request"));
        assert_eq!(format!("{plain:?}"), format!("{general:?}"), "{body:?}");
        true
    }

    #[test]
    fn a_plain_body_is_parsed_in_any_order_and_with_any_space() {
        let compact = r#"{"domain":"api","descriptors":[{"entries":[{"key":"a","value":"b"}]}]}"#;
        assert!(same(compact));
        assert!(same(
            " {\n \"descriptors\" : [ { \"entries\":[ {\"value\":\"\u{e9}\" ,\"key\":\"\"},\r\
             {\"key\":\"k\",\t\"value\":\"v\"} ] } , {\"entries\":[{\"key\":\"x\",\"value\":\"y\"}]}\
             ], \"domain\":\"api\" }\n"
        ));
    }

    #[test]
    fn any_other_body_is_left_to_serde() {
        let entries = r#"[{"key":"a","value":"b"}]"#;
        for body in [
            String::new(),
            "{}".to_owned(),
            format!(r#"{{"domain":"","descriptors":[{{"entries":{entries}}}]}}"#),
            format!(r#"{{"domain":"a","descriptors":[{{"entries":{entries}}}],"cost":2}}"#),
            format!(r#"{{"domain":"a","descriptors":[{{"entries":{entries},"cost":2}}]}}"#),
            format!(r#"{{"domain":"a","domain":"a","descriptors":[{{"entries":{entries}}}]}}"#),
            format!(r#"{{"domain":"a","descriptors":[{{"entries":{entries}}}]}} x"#),
            format!(r#"{{"domain":"\u0061","descriptors":[{{"entries":{entries}}}]}}"#),
            format!("{{\"domain\":\"a\nb\",\"descriptors\":[{{\"entries\":{entries}}}]}}"),
            format!(r#"{{"domain":"a","descriptors":[{{"entries":{entries}}},]}}"#),
            r#"{"domain":"a","descriptors":[{"entries":[{"key":"a","key":"b"}]}]}"#.to_owned(),
            r#"{"domain":"a","descriptors":[{"entries":[]}]}"#.to_owned(),
            r#"{"domain":"a","descriptors":[]}"#.to_owned(),
        ] {
            assert!(parse(&body).is_none(), "{body}");
        }
    }

    proptest! {
        #[test]
        fn both_parsers_agree(
            texts in prop::collection::vec("[a-c\"\\\\\u{e9} ]{0,3}", 5),
            at in 0_usize..90,
            byte in prop::option::of(" -~"),
        ) {
            let [domain, key, value, other, last] = &texts[..] else { unreachable!() };
            let mut body = serde_json::json!({
                "domain": domain,
                "descriptors": [
                    {"entries": [{"key": key, "value": value}]},
                    {"entries": [{"key": other, "value": last}]},
                ],
            })
            .to_string();
            if let Some(byte) = byte && body.is_char_boundary(at) && body.is_char_boundary(at + 1) {
                body.replace_range(at..at + 1, &byte);
            }
            same(&body);
        }
    }
}
