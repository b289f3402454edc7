//! Requests with three entries, and the order in which they are made.
//!
//! Written end to end ahead of time, like keys, so that reading a request
//! touches memory in order and its cost does not depend on the number of rules.

use crate::keys::{Draw, KEY_BYTES, records, write_key};
use crate::rule_text::{NAME_BYTES, path_of, tenant_of};

const REQUEST_BYTES: usize = 2 * NAME_BYTES + KEY_BYTES;

/// One request's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestValues<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) path: &'a str,
    pub(crate) user: &'a str,
}

/// Requests in the order in which they are made.
#[derive(Debug)]
pub(crate) struct RequestSequence(String);

impl RequestSequence {
    /// A request of each of the first `length` users drawn; all requests of a user match the
    /// same rule.
    pub(crate) fn new(users: Draw, length: usize, rule_of: impl Fn(u64) -> u64) -> Self {
        let mut text = String::with_capacity(length * REQUEST_BYTES);
        for user in users.take(length) {
            let rule = rule_of(user);
            text.push_str(&tenant_of(rule));
            text.push_str(&path_of(rule));
            write_key(user, KEY_BYTES, &mut text);
        }
        RequestSequence(text)
    }

    /// The requests from an index on; after the last request follows the first.
    #[inline]
    pub(crate) fn from(&self, place: usize) -> impl Iterator<Item = RequestValues<'_>> {
        records(&self.0, REQUEST_BYTES, place).filter_map(|record| {
            let (tenant, rest) = record.split_at_checked(NAME_BYTES)?;
            let (path, user) = rest.split_at_checked(NAME_BYTES)?;
            Some(RequestValues { tenant, path, user })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_the_names_of_its_rule_and_its_users_key() {
        let sequence = RequestSequence::new(Draw::uniform(1), 2, |_| 123);
        let asked = sequence.from(0).next().unwrap();
        assert_eq!((asked.tenant, asked.path), ("t0000012", "/p000003"));
        assert_eq!(asked.user.len(), KEY_BYTES);
        assert_eq!(sequence.from(1).next(), Some(asked));
    }
}
