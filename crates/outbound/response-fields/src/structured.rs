//! Lists of items with parameters, as `RateLimit` and `RateLimit-Policy` write them (RFC 9651).
//!
//! Only what these fields use is kept: an item is a string, a token or an integer; of its parameters those with an
//! integer, a string or a token count. A list that is malformed anywhere is ignored as a whole, as the RFC asks.

use compact_str::CompactString;
use smallvec::SmallVec;

/// Bytes of a field that are read: a longer one is ignored.
pub(crate) const FIELD_BYTES_MAX: usize = 4_096;
/// Parameters of an item that are kept; the fields use five.
const PARAMETERS_MAX: usize = 16;

/// A value without its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BareItem {
    Text(CompactString),
    Number(i64),
    /// A value of another type: a boolean, a decimal, bytes.
    Other,
}

/// One member of a list, or of a dictionary with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) value: BareItem,
    pub(crate) parameters: SmallVec<[(&'a str, BareItem); 4]>,
}

impl Item<'_> {
    /// A parameter that is a whole number and not negative.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.parameter(name)? {
            BareItem::Number(number) => u64::try_from(*number).ok(),
            BareItem::Text(_) | BareItem::Other => None,
        }
    }

    /// A parameter that is text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.parameter(name)? {
            BareItem::Text(text) => Some(text),
            BareItem::Number(_) | BareItem::Other => None,
        }
    }

    /// The last parameter of a name counts.
    fn parameter(&self, name: &str) -> Option<&BareItem> {
        self.parameters.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// Reads a list, or a dictionary: its members have keys.
pub(crate) fn read_list(text: &str) -> Option<SmallVec<[Item<'_>; 2]>> {
    if text.len() > FIELD_BYTES_MAX || !text.is_ascii() {
        return None;
    }
    let mut reader = Reader { rest: text.trim_matches(' ') };
    let mut items = SmallVec::new();
    while !reader.rest.is_empty() {
        items.push(reader.member()?);
        reader.skip_white();
        if reader.rest.is_empty() {
            break;
        }
        reader.take(b',').then_some(())?;
        reader.skip_white();
        // A comma at the end is malformed.
        (!reader.rest.is_empty()).then_some(())?;
    }
    Some(items)
}

struct Reader<'a> {
    /// ASCII only.
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn member(&mut self) -> Option<Item<'a>> {
        let (key, value) = self.keyed_value()?;
        let mut parameters = SmallVec::new();
        while self.take(b';') {
            while self.take(b' ') {}
            let name = self.key()?;
            let value = if self.take(b'=') { self.bare_item()? } else { BareItem::Other };
            if parameters.len() < PARAMETERS_MAX {
                parameters.push((name, value));
            }
        }
        Some(Item { key, value, parameters })
    }

    /// A value, with its key if the list is a dictionary.
    fn keyed_value(&mut self) -> Option<(Option<&'a str>, BareItem)> {
        let start = self.rest;
        if let Some(key) = self.key()
            && self.take(b'=')
        {
            return Some((Some(key), self.bare_item()?));
        }
        self.rest = start;
        Some((None, self.bare_item()?))
    }

    fn bare_item(&mut self) -> Option<BareItem> {
        match self.first()? {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b'a'..=b'z' | b'A'..=b'Z' | b'*' => {
                Some(BareItem::Text(self.span(is_token_byte).into()))
            }
            b'?' => {
                self.take(b'?');
                (self.take(b'0') || self.take(b'1')).then_some(BareItem::Other)
            }
            b':' => {
                self.take(b':');
                self.span(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.take(b':').then_some(BareItem::Other)
            }
            _ => None,
        }
    }

    fn string(&mut self) -> Option<BareItem> {
        self.take(b'"').then_some(())?;
        let mut text = CompactString::const_new("");
        loop {
            text.push_str(
                self.span(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'),
            );
            if self.take(b'"') {
                return Some(BareItem::Text(text));
            }
            self.take(b'\\').then_some(())?;
            let escaped = self.first().filter(|byte| b"\"\\".contains(byte))?;
            self.take(escaped);
            text.push(char::from(escaped));
        }
    }

    fn number(&mut self) -> Option<BareItem> {
        let negative = self.take(b'-');
        let digits = self.span(|byte| byte.is_ascii_digit());
        if self.take(b'.') {
            let decimals = self.span(|byte| byte.is_ascii_digit());
            let valid = (1..=12).contains(&digits.len()) && (1..=3).contains(&decimals.len());
            return valid.then_some(BareItem::Other);
        }
        if digits.len() > 15 {
            return None;
        }
        let number: i64 = digits.parse().ok()?;
        Some(BareItem::Number(if negative { -number } else { number }))
    }

    fn key(&mut self) -> Option<&'a str> {
        let first = self.first()?;
        let starts = first.is_ascii_lowercase() || first == b'*';
        starts.then(|| {
            self.span(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
            })
        })
    }

    /// Takes the bytes that fit.
    fn span(&mut self, fits: impl Fn(u8) -> bool) -> &'a str {
        let end = self.rest.bytes().position(|byte| !fits(byte)).unwrap_or(self.rest.len());
        let (span, rest) = self.rest.split_at(end);
        self.rest = rest;
        span
    }

    fn first(&self) -> Option<u8> {
        self.rest.as_bytes().first().copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.first() == Some(byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn skip_white(&mut self) {
        while self.take(b' ') || self.take(b'\t') {}
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{ListEntry, Parser};

    use super::*;

    #[test]
    fn items_with_parameters_are_read() {
        let list =
            read_list(r#""hourly";q=5;w=3600, other;qu="concurrent-requests" , 100;w=60"#).unwrap();
        assert_eq!(list.len(), 3);
        assert_eq!(list[0].value, BareItem::Text("hourly".into()));
        assert_eq!(list[0].number("q"), Some(5));
        assert_eq!(list[1].text("qu"), Some("concurrent-requests"));
        assert_eq!(list[2].value, BareItem::Number(100));
    }

    #[test]
    fn dictionaries_have_keys() {
        let list = read_list("limit=10, remaining=0, reset=30").unwrap();
        assert_eq!(list[1].key, Some("remaining"));
        assert_eq!(list[1].value, BareItem::Number(0));
    }

    #[test]
    fn malformed_lists_are_ignored() {
        for text in
            ["\"open", "a,", ",", "1234567890123456", "a;;b", "\"\\n\"", "é", "a;B=1", "--1"]
        {
            assert_eq!(read_list(text), None, "{text}");
        }
        assert_eq!(read_list(&"a,".repeat(FIELD_BYTES_MAX)), None);
    }

    /// What the reference parser makes of a list, as far as we keep it; `None` also for inner lists, which we refuse.
    fn reference(text: &str) -> Option<Vec<(BareItem, usize)>> {
        let list = Parser::new(text).parse::<sfv::List>().ok()?;
        list.iter()
            .map(|entry| match entry {
                ListEntry::Item(item) => Some((bare(&item.bare_item), item.params.len())),
                ListEntry::InnerList(_) => None,
            })
            .collect()
    }

    fn bare(item: &sfv::BareItem) -> BareItem {
        match item {
            sfv::BareItem::Integer(number) => BareItem::Number(i64::from(*number)),
            sfv::BareItem::String(text) => BareItem::Text(text.as_str().into()),
            sfv::BareItem::Token(text) => BareItem::Text(text.as_str().into()),
            _ => BareItem::Other,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn every_list_that_the_reference_parser_reads_is_read_alike(
            text in r#"("[a-z\\" ]{0,4}"|[a-z*][a-z0-9]{0,3}|-?[0-9]{1,16}|[0-9]{1,3}\.[0-9]{1,4}|\?[01])(;[ ]?[a-z]{1,2}(=([0-9]{1,3}|"[a-z]{0,3}"|[a-z]{1,3}))?){0,3}([ ]?,[ ]?([a-z]{1,3}|[0-9]{1,3})){0,2}"#
        ) {
            let ours = read_list(&text).map(|list| {
                list.into_iter().map(|item| {
                    let mut names: Vec<_> = item.parameters.iter().map(|(name, _)| *name).collect();
                    names.sort();
                    names.dedup();
                    (item.value, names.len())
                }).collect::<Vec<_>>()
            });
            prop_assert_eq!(ours, reference(&text));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = read_list(&text);
        }
    }
}
