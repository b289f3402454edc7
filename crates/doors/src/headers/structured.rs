//! The IETF's fields: lists of strings with parameters, as RFC 9651 writes them.

use super::number::write_number;
use crate::notice::{Notice, Policy, PolicyName};

/// Structured fields have integers of up to fifteen digits.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// `RateLimit-Policy`: every limit, as its rule has it.
pub(super) fn write_policies(out: &mut Vec<u8>, notice: &Notice<'_>) {
    let mut list = List::new(out);
    for policy in notice.policies() {
        list.member(policy.name());
        list.parameter(b'q', policy.quota());
        if policy.is_concurrency() {
            list.out.extend_from_slice(b";qu=\"concurrent-requests\"");
        }
        list.parameter(b'w', policy.window_seconds());
    }
}

/// `RateLimit`: what is left. A refusal tells only of the limits that refused,
/// so that no window told ends after `Retry-After`.
pub(super) fn write_available(out: &mut Vec<u8>, notice: &Notice<'_>) {
    let mut list = List::new(out);
    let told = |policy: &&Policy<'_>| !notice.is_refusal() || policy.is_violated();
    for policy in notice.policies().iter().filter(told) {
        list.member(policy.name());
        list.parameter(b'r', policy.decision().remaining);
        list.parameter(b't', policy.effective_window_seconds());
    }
}

/// A list that is being written.
struct List<'b> {
    out: &'b mut Vec<u8>,
    begun: bool,
}

impl<'b> List<'b> {
    fn new(out: &'b mut Vec<u8>) -> Self {
        List { out, begun: false }
    }

    fn member(&mut self, name: PolicyName<'_>) {
        self.out.extend_from_slice(if self.begun { b", \"" } else { b"\"" });
        self.begun = true;
        if let Some(plain) = name.plain() {
            self.out.extend_from_slice(plain);
        } else {
            for byte in name.bytes() {
                if matches!(byte, b'"' | b'\\') {
                    self.out.push(b'\\');
                }
                self.out.push(byte);
            }
        }
        if let Some(number) = name.number() {
            self.out.push(b'#');
            write_number(self.out, number);
        }
        self.out.push(b'"');
    }

    fn parameter(&mut self, key: u8, number: impl Into<Option<u64>>) {
        if let Some(number) = number.into() {
            self.out.extend_from_slice(&[b';', key, b'=']);
            write_number(self.out, number.min(INTEGER_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{ListEntry, Parser};

    use super::*;
    use crate::notice::NAME_CHARS_MAX;

    /// The field with these names and numbers, and what a parser reads in it.
    fn parsed(members: &[(String, usize, u64)]) -> Vec<(String, i64)> {
        let mut out = Vec::new();
        let mut list = List::new(&mut out);
        for (text, ordinal, number) in members {
            list.member(PolicyName::new(text, *ordinal));
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
