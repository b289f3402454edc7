//! The literal values of a whole tree, in one table.
//!
//! Every key of every node shares it, so a step by value is one look-up
//! whatever the number of rules, of keys and of values: few are not compared
//! one by one, because finding them by hash costs no more. A value of up to
//! sixteen bytes is kept as the two words that its hash is made of. Comparing
//! them is comparing the text, and the common step reads one place of memory.
//! Longer values are kept aside.
//!
//! Filled once, from rules, and only asked by requests. So a fixed seed is
//! safe: nobody outside can make values collide.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use super::tree::{Edge, SPREAD, fold};

/// Two numbers with their bits well mixed; which ones does not matter.
const FIRST: u64 = 0x2D35_8DCC_AA6C_78A5;
const LAST: u64 = 0x8BB8_4B93_962E_ACC9;

/// Said in place of a length by values that do not fit into two words.
const LONG: u32 = u32::MAX;
/// Said in place of an owner by vacant places.
const NOBODY: u32 = u32::MAX;

/// Values, each with its owner (the place of a slot) and the way that it leads to.
#[derive(Debug)]
pub(super) struct Literals {
    /// Open addressing. A search ends at a vacant place or at the end of the
    /// table: it does not go around, so there may be more places than homes.
    places: Vec<Literal>,
    /// A hash shifted by so much is a home. At the most a third of the homes
    /// are taken: a search that does not end where it begins surprises the
    /// processor, and that costs as much as the rest of it.
    shift: u32,
    long: Vec<Box<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Literal {
    text: Text,
    edge: Edge,
}

/// An owner's text: a short one in two words, a long one as its hash and its number.
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
            places: vec![Literal::VACANT; homes],
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
        match self.places.iter_mut().skip(home).find(|place| place.is_vacant()) {
            Some(vacant) => *vacant = literal,
            None => self.places.push(literal),
        }
    }

    /// Where a value leads to.
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
        for literal in self.places.get(self.home(text)..)? {
            if same(&literal.text) {
                return Some(&literal.edge);
            }
            if literal.is_vacant() {
                return None;
            }
        }
        None
    }

    /// Where a search for a text begins.
    ///
    /// The owner comes last: it is known only when the step before is done,
    /// while the processor can work on the text ahead of that.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "there are fewer homes than addresses")]
    const fn home(&self, text: Text) -> usize {
        let words = fold(text.first ^ FIRST, text.last ^ LAST);
        let hash = fold(words ^ text.owner as u64, SPREAD);
        (hash >> (self.shift & 63)) as usize
    }
}

impl Literal {
    const VACANT: Literal =
        Literal { text: Text { first: 0, last: 0, length: 0, owner: NOBODY }, edge: Edge::NOWHERE };

    #[inline]
    const fn is_vacant(&self) -> bool {
        self.text.owner == NOBODY
    }
}

impl Text {
    /// A text of up to sixteen bytes. The words overlap where it is shorter,
    /// and its length tells them from those of any other.
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

    /// A longer one, without its number.
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
            let places: HashMap<_, _> =
                known.iter().enumerate().map(|(at, known)| (known.clone(), at)).collect();
            for (slot, value) in known.iter().chain(&asked) {
                let expected = places.get(&(*slot, value.clone())).map(|at| edge(*at));
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
        let runs = literals.places.split(Literal::is_vacant);
        let longest = runs.map(<[_]>::len).max().unwrap();
        assert!(longest < 40, "{longest}");
    }

    #[test]
    fn a_literal_is_less_than_a_cache_line() {
        assert!(size_of::<Literal>() <= 48, "{}", size_of::<Literal>());
    }
}
