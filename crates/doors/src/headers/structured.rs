//! The IETF's fields: lists of strings with parameters, as RFC 9651 writes them.

use std::fmt::{self, Write};

use bytes::BytesMut;

use crate::notice::{Notice, Policy, PolicyName};

/// Structured fields have integers of up to fifteen digits.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// `RateLimit-Policy`: every limit, as its rule has it.
pub(super) fn write_policies(out: &mut BytesMut, notice: &Notice<'_>) -> fmt::Result {
    let mut list = List::new(out);
    for policy in notice.policies() {
        list.member(policy.name())?;
        list.parameter("q", policy.quota())?;
        if policy.is_concurrency() {
            list.out.write_str(";qu=\"concurrent-requests\"")?;
        }
        list.parameter("w", policy.window_seconds())?;
    }
    Ok(())
}

/// `RateLimit`: what is left. A refusal tells only of the limits that refused,
/// so that no window told ends after `Retry-After`.
pub(super) fn write_available(out: &mut BytesMut, notice: &Notice<'_>) -> fmt::Result {
    let mut list = List::new(out);
    let told = |policy: &&Policy<'_>| !notice.is_refusal() || policy.is_violated();
    for policy in notice.policies().iter().filter(told) {
        list.member(policy.name())?;
        list.parameter("r", policy.decision().remaining)?;
        list.parameter("t", policy.effective_window_seconds())?;
    }
    Ok(())
}

/// A list that is being written.
struct List<'b> {
    out: &'b mut BytesMut,
    begun: bool,
}

impl<'b> List<'b> {
    fn new(out: &'b mut BytesMut) -> Self {
        List { out, begun: false }
    }

    fn member(&mut self, name: PolicyName<'_>) -> fmt::Result {
        self.out.write_str(if self.begun { ", \"" } else { "\"" })?;
        self.begun = true;
        for text in name.chars() {
            if matches!(text, '"' | '\\') {
                self.out.write_char('\\')?;
            }
            self.out.write_char(text)?;
        }
        if let Some(number) = name.number() {
            write!(self.out, "#{number}")?;
        }
        self.out.write_char('"')
    }

    fn parameter(&mut self, key: &str, number: impl Into<Option<u64>>) -> fmt::Result {
        match number.into() {
            Some(number) => write!(self.out, ";{key}={}", number.min(INTEGER_MAX)),
            None => Ok(()),
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
        let mut out = BytesMut::new();
        let mut list = List::new(&mut out);
        for (text, ordinal, number) in members {
            list.member(PolicyName::new(text, *ordinal)).unwrap();
            list.parameter("r", *number).unwrap();
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
