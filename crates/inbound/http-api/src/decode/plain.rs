//! The body that nearly everybody sends, read in one pass.
//!
//! One request with its domain and its descriptors, each with its entries and
//! nothing else, and no text that has something escaped in it. A reader of any
//! JSON takes four times as long for it. Whatever else a body is, also whatever
//! is wrong with it, is left to that one.

use std::borrow::Cow;

use tidegate_engine::DESCRIPTORS_MAX;

use super::object::Written;
use super::{Asked, AskedDescriptor, AskedEntry};

/// Bytes that no text has as they are: its end, what begins something escaped,
/// control characters. In a table, because every byte of a body is looked up.
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

/// Reads a request, if it is as plain as that.
pub(super) fn read(body: &str) -> Option<Asked<'_>> {
    let mut scan = Scan { body, at: 0 };
    let (mut domain, mut descriptors) = (None, None);
    scan.take(b'{')?;
    loop {
        match scan.name()? {
            "domain" if domain.is_none() => domain = Some(scan.text()?),
            "descriptors" if descriptors.is_none() => descriptors = Some(scan.descriptors()?),
            _ => return None,
        }
        if !scan.goes_on(b'}')? {
            break;
        }
    }
    scan.skip_space();
    let whole = scan.at == body.len();
    let domain = domain.filter(|domain| whole && !domain.is_empty())?;
    Some(Asked { domain: Cow::Borrowed(domain), descriptors: descriptors?, cost: 1 })
}

/// A body, read so far.
struct Scan<'a> {
    body: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
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

    /// Takes this character, with space before it.
    #[inline]
    fn take(&mut self, wanted: u8) -> Option<()> {
        self.skip_space();
        if self.peek()? != wanted {
            return None;
        }
        self.at += 1;
        Some(())
    }

    /// Whether another member follows, or the end.
    #[inline]
    fn goes_on(&mut self, end: u8) -> Option<bool> {
        self.skip_space();
        let found = self.peek()?;
        self.at += 1;
        match found {
            b',' => Some(true),
            found if found == end => Some(false),
            _ => None,
        }
    }

    /// A text in which nothing is escaped.
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

    /// A field's name and what follows it.
    #[inline]
    fn name(&mut self) -> Option<&'a str> {
        let name = self.text()?;
        self.take(b':')?;
        Some(name)
    }

    fn descriptors(&mut self) -> Option<Vec<AskedDescriptor<'a>>> {
        let mut descriptors = Vec::with_capacity(1);
        self.take(b'[')?;
        loop {
            self.take(b'{')?;
            if self.name()? != "entries" {
                return None;
            }
            let entries = self.entries()?;
            self.take(b'}')?;
            descriptors.push(AskedDescriptor { entries, cost: None, limit: None });
            if !self.goes_on(b']')? {
                return (descriptors.len() <= DESCRIPTORS_MAX).then_some(descriptors);
            }
        }
    }

    fn entries(&mut self) -> Option<Vec<Written<AskedEntry<'a>>>> {
        let mut entries = Vec::with_capacity(1);
        self.take(b'[')?;
        loop {
            entries.push(Written(self.entry()?));
            if !self.goes_on(b']')? {
                return Some(entries);
            }
        }
    }

    #[inline]
    fn entry(&mut self) -> Option<AskedEntry<'a>> {
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
        Some(AskedEntry { key: Cow::Borrowed(key), value: Cow::Borrowed(value) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Question;
    use super::*;

    /// What is read in general.
    fn in_general(body: &str) -> Option<Asked<'_>> {
        match super::super::read(body.as_bytes()) {
            Ok(Question::One(asked)) => Some(asked),
            _ => None,
        }
    }

    fn same(body: &str) -> bool {
        let Some(plain) = read(body) else { return false };
        let general = in_general(body).unwrap_or_else(|| panic!("{body:?} is no request"));
        assert_eq!(format!("{plain:?}"), format!("{general:?}"), "{body:?}");
        true
    }

    #[test]
    fn a_plain_body_is_read_in_any_order_and_with_any_space() {
        let compact = r#"{"domain":"api","descriptors":[{"entries":[{"key":"a","value":"b"}]}]}"#;
        assert!(same(compact));
        assert!(same(
            " {\n \"descriptors\" : [ { \"entries\":[ {\"value\":\"\u{e9}\" ,\"key\":\"\"},\r\
             {\"key\":\"k\",\t\"value\":\"v\"} ] } , {\"entries\":[{\"key\":\"x\",\"value\":\"y\"}]}\
             ], \"domain\":\"api\" }\n"
        ));
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_general_reader() {
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
            assert!(read(&body).is_none(), "{body}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_read_otherwise_than_in_general(
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
