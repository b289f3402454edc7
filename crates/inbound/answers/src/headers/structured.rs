//! The IETF's fields: lists of strings with parameters (RFC 9651).

use http::HeaderValue;

use super::number::write_number;
use crate::notice::PolicyName;

/// The largest integer of a structured field: fifteen digits.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// A name as a quoted string.
pub(super) fn quoted(name: PolicyName<'_>) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in name.bytes() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    if let Some(number) = name.number() {
        out.push(b'#');
        write_number(&mut out, number);
    }
    out.push(b'"');
    out
}

/// Writes a list.
pub(super) struct List<'b>(&'b mut Vec<u8>);

impl<'b> List<'b> {
    /// Begins a list in `out`, which is cleared.
    pub(super) fn new(out: &'b mut Vec<u8>) -> Self {
        out.clear();
        List(out)
    }

    /// Adds a member, by its quoted name.
    pub(super) fn member(&mut self, quoted: &[u8]) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b", ");
        }
        self.0.extend_from_slice(quoted);
    }

    /// Adds a number to the last member.
    pub(super) fn parameter(&mut self, key: u8, number: u64) {
        self.0.extend_from_slice(&[b';', key, b'=']);
        write_number(self.0, number.min(INTEGER_MAX));
    }

    /// Marks the last member as a limit of requests in flight.
    pub(super) fn counts_requests_in_flight(&mut self) {
        self.0.extend_from_slice(b";qu=\"concurrent-requests\"");
    }

    /// The list as a field value.
    pub(super) fn value(&self) -> HeaderValue {
        // Everything written is printable, so it is a value.
        HeaderValue::from_bytes(self.0).unwrap_or(HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{ListEntry, Parser};

    use super::*;
    use crate::notice::NAME_CHARS_MAX;

    /// Writes these names and numbers, and parses the field.
    fn parsed(members: &[(String, usize, u64)]) -> Vec<(String, i64)> {
        let mut out = Vec::new();
        let mut list = List::new(&mut out);
        for (text, ordinal, number) in members {
            list.member(&quoted(PolicyName::new(text, *ordinal)));
            list.parameter(b'r', *number);
        }
        let list: sfv::List = Parser::new(&out).parse().unwrap();
        let read = |entry: &ListEntry| {
            let ListEntry::Item(item) = entry else { panic!("{entry:?} is no item") };
            let name = item.bare_item.as_string().unwrap().as_str().to_owned();
            (name, i64::from(item.params.get("r").unwrap().as_integer().unwrap()))
        };
        list.iter().map(read).collect()
    }

    #[test]
    fn quotes_and_backslashes_survive_and_the_rest_is_replaced() {
        let read = parsed(&[("a\"b\\c\u{e9}\n~ ".to_owned(), 0, 1)]);
        assert_eq!(read, [("a\"b\\c??~ ".to_owned(), 1)]);
    }

    #[test]
    fn a_number_tells_nameless_limits_of_one_rule_apart() {
        let read = parsed(&[("user".to_owned(), 0, 1), ("user".to_owned(), 1, 2)]);
        assert_eq!(read, [("user".to_owned(), 1), ("user#2".to_owned(), 2)]);
    }

    proptest! {
        #[test]
        fn any_name_and_number_is_read_back_as_it_is_shown(
            members in prop::collection::vec((".{0,200}", 0..3_usize, any::<u64>()), 1..5),
        ) {
            let read = parsed(&members);
            prop_assert_eq!(read.len(), members.len());
            for ((text, ordinal, number), (name, read_number)) in members.iter().zip(read) {
                let shown = PolicyName::new(text, *ordinal).to_string();
                prop_assert!(shown.len() <= NAME_CHARS_MAX + 2);
                prop_assert_eq!(name, shown);
                prop_assert_eq!(u64::try_from(read_number), Ok((*number).min(INTEGER_MAX)));
            }
        }
    }
}
