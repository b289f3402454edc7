//! The literal values of a whole tree, in one table.
//!
//! All keys of all nodes share the table, so a step by value is one lookup, whatever the number of rules, keys and values.
//! A value of up to sixteen bytes is stored as the two words that are hashed: comparing the words compares the text, and
//! the common step reads one cache line. Longer values are stored in a list.
//!
//! A fixed seed is safe: rules fill the table and requests only read it, so callers cannot cause collisions.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use super::tree::{Edge, SPREAD, fold};

/// Two arbitrary numbers with well-mixed bits.
const FIRST: u64 = 0x2D35_8DCC_AA6C_78A5;
const LAST: u64 = 0x8BB8_4B93_962E_ACC9;

/// The length of values that do not fit into two words.
const LONG: u32 = u32::MAX;
/// The owner of vacant entries.
const VACANT_OWNER: u32 = u32::MAX;

/// Values, each with its owner (the index of a slot) and its edge.
#[derive(Debug)]
pub(super) struct Literals {
    /// Open addressing with linear probing. A search ends at a vacant entry or at the end of the table; it does not wrap
    /// around, so there may be more entries than hash values.
    entries: Vec<Literal>,
    /// A hash shifted right by this is the index where a search begins. At most a third of the entries are occupied: a
    /// second probe is a branch misprediction, which costs as much as the rest of the search.
    shift: u32,
    long: Vec<Box<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Literal {
    text: Text,
    edge: Edge,
}

/// An owner's text: a short one as two words, a long one as its hash and its index in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Text {
    first: u64,
    last: u64,
    length: u32,
    owner: u32,
}

impl Default for Literals {
    fn default() -> Self {
        Literals::new(std::iter::empty())
    }
}

impl Literals {
    /// A table of these values.
    pub(super) fn new<'v>(values: impl ExactSizeIterator<Item = (u32, &'v str, Edge)>) -> Self {
        let homes = (values.len() * 3).next_power_of_two().max(2);
        let mut literals = Literals {
            entries: vec![Literal::VACANT; homes],
            shift: 64 - homes.trailing_zeros(),
            long: Vec::new(),
        };
        for (owner, value, edge) in values {
            literals.insert(owner, value, edge);
        }
        literals
    }

    fn insert(&mut self, owner: u32, value: &str, edge: Edge) {
        let short = Text::short(owner, value);
        let mut text = short.unwrap_or_else(|| Text::long(owner, value));
        let home = self.home(text);
        if short.is_none() {
            text.last = self.long.len() as u64;
            self.long.push(value.into());
        }
        let literal = Literal { text, edge };
        match self.entries.iter_mut().skip(home).find(|entry| entry.is_vacant()) {
            Some(vacant) => *vacant = literal,
            None => self.entries.push(literal),
        }
    }

    /// The edge of a value.
    #[inline]
    pub(super) fn find(&self, owner: u32, value: &str) -> Option<&Edge> {
        let Some(text) = Text::short(owner, value) else { return self.find_long(owner, value) };
        self.search(text, |known| *known == text)
    }

    #[inline(never)]
    fn find_long(&self, owner: u32, value: &str) -> Option<&Edge> {
        let text = Text::long(owner, value);
        self.search(text, |known| {
            let number = usize::try_from(known.last).unwrap_or(usize::MAX);
            Text { last: 0, ..*known } == text
                && self.long.get(number).is_some_and(|long| **long == *value)
        })
    }

    #[inline(always)]
    fn search(&self, text: Text, same: impl Fn(&Text) -> bool) -> Option<&Edge> {
        for literal in self.entries.get(self.home(text)..)? {
            if same(&literal.text) {
                return Some(&literal.edge);
            }
            if literal.is_vacant() {
                return None;
            }
        }
        None
    }

    /// The index where a search for a text begins.
    ///
    /// The owner is mixed in last: it is known only after the previous step, and the processor can hash the text before.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "there are fewer homes than addresses")]
    const fn home(&self, text: Text) -> usize {
        let words = fold(text.first ^ FIRST, text.last ^ LAST);
        let hash = fold(words ^ text.owner as u64, SPREAD);
        (hash >> (self.shift & 63)) as usize
    }
}

impl Literal {
    const VACANT: Literal = Literal {
        text: Text { first: 0, last: 0, length: 0, owner: VACANT_OWNER },
        edge: Edge::NOWHERE,
    };

    #[inline]
    const fn is_vacant(&self) -> bool {
        self.text.owner == VACANT_OWNER
    }
}

impl Text {
    /// A text of up to sixteen bytes. The words of a shorter text overlap; its length makes them unique.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a short text has few bytes")]
    fn short(owner: u32, text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (first, last) = match bytes.len() {
            8..=16 => (
                u64::from_le_bytes(*bytes.first_chunk()?),
                u64::from_le_bytes(*bytes.last_chunk()?),
            ),
            4..8 => (
                u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
                u64::from(u32::from_le_bytes(*bytes.last_chunk()?)),
            ),
            0..4 => {
                let word = bytes.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
                (word, 0)
            }
            _ => return None,
        };
        Some(Text { first, last, length: bytes.len() as u32, owner })
    }

    /// A longer text, without its index.
    fn long(owner: u32, text: &str) -> Self {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(text.as_bytes());
        Text { first: hasher.finish(), last: 0, length: LONG, owner }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::matching::{CountBy, NodeId};

    fn edge(number: usize) -> Edge {
        Edge::to(NodeId(u32::try_from(number).unwrap()), CountBy::Nothing)
    }

    proptest! {
        #[test]
        fn every_value_of_every_owner_is_found_and_no_other(
            known in prop::collection::hash_set((0..4_u32, "[ab]{0,20}"), 0..200),
            asked in prop::collection::vec((0..4_u32, "[ab]{0,20}"), 100),
        ) {
            let known: Vec<(u32, String)> = known.into_iter().collect();
            let all = known.iter().enumerate().map(|(at, (slot, value))| {
                (*slot, value.as_str(), edge(at))
            });
            let literals = Literals::new(all);
            let entries: HashMap<_, _> =
                known.iter().enumerate().map(|(at, known)| (known.clone(), at)).collect();
            for (slot, value) in known.iter().chain(&asked) {
                let expected = entries.get(&(*slot, value.clone())).map(|at| edge(*at));
                prop_assert_eq!(literals.find(*slot, value).copied(), expected);
            }
        }

        #[test]
        fn short_texts_have_the_same_words_only_when_they_are_the_same(
            one in "[ab\\x00]{0,16}", other in "[ab\\x00]{0,16}",
        ) {
            prop_assert_eq!(Text::short(1, &one) == Text::short(1, &other), one == other);
            prop_assert_ne!(Text::short(1, &one), Text::short(2, &one));
        }
    }

    #[test]
    fn values_that_many_owners_share_do_not_crowd() {
        let values: Vec<String> = (0..10).map(|at| format!("/path{at}")).collect();
        let all: Vec<(u32, &str, Edge)> = (0..10_000)
            .flat_map(|slot| values.iter().map(move |value| (slot * 89, value.as_str(), edge(0))))
            .collect();
        let literals = Literals::new(all.into_iter());
        let runs = literals.entries.split(Literal::is_vacant);
        let longest = runs.map(<[_]>::len).max().unwrap();
        assert!(longest < 40, "{longest}");
    }

    #[test]
    fn a_literal_is_less_than_a_cache_line() {
        assert!(size_of::<Literal>() <= 48, "{}", size_of::<Literal>());
    }
}
