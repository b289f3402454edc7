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

use super::tree::{Edge, SPREAD, SlotId, fold};

/// Two numbers with their bits well mixed; which ones does not matter.
const FIRST: u64 = 0x2D35_8DCC_AA6C_78A5;
const LAST: u64 = 0x8BB8_4B93_962E_ACC9;

/// Said in place of a length by values that do not fit into two words.
const LONG: usize = usize::MAX;
/// Said in place of a slot by vacant places.
const NOBODY: SlotId = SlotId::MAX;

/// Values of slots, each with the way that it leads to.
#[derive(Debug, Default)]
pub(super) struct Literals {
    /// Open addressing. A search ends at a vacant place or at the end of the
    /// table: it does not go around, so there are some more places than homes.
    places: Vec<Literal>,
    /// Half as many again as there are values.
    homes: usize,
    long: Vec<Box<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Literal {
    text: Text,
    slot: SlotId,
    edge: Edge,
}

/// A short text in two words, or a long one as its hash and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Text {
    first: u64,
    last: u64,
    length: usize,
}

impl Literals {
    /// A table of these values.
    pub(super) fn new<'v>(values: impl ExactSizeIterator<Item = (SlotId, &'v str, Edge)>) -> Self {
        let homes = values.len() + values.len() / 2;
        let mut literals = Literals { places: vec![Literal::VACANT; homes], homes, long: vec![] };
        for (slot, value, edge) in values {
            literals.insert(slot, value, edge);
        }
        literals
    }

    fn insert(&mut self, slot: SlotId, value: &str, edge: Edge) {
        let short = Text::short(value);
        let mut text = short.unwrap_or_else(|| Text::long(value));
        let home = text.home(slot, self.homes);
        if short.is_none() {
            text.last = self.long.len() as u64;
            self.long.push(value.into());
        }
        let literal = Literal { text, slot, edge };
        match self.places.iter_mut().skip(home).find(|place| place.slot == NOBODY) {
            Some(vacant) => *vacant = literal,
            None => self.places.push(literal),
        }
    }

    /// Where a value of a slot leads to.
    #[inline]
    pub(super) fn find(&self, slot: SlotId, value: &str) -> Option<&Edge> {
        let Some(text) = Text::short(value) else { return self.find_long(slot, value) };
        self.search(slot, text, |known| *known == text)
    }

    #[inline(never)]
    fn find_long(&self, slot: SlotId, value: &str) -> Option<&Edge> {
        let text = Text::long(value);
        self.search(slot, text, |known| {
            let number = usize::try_from(known.last).unwrap_or(usize::MAX);
            known.length == LONG
                && known.first == text.first
                && self.long.get(number).is_some_and(|long| **long == *value)
        })
    }

    #[inline(always)]
    fn search(&self, slot: SlotId, text: Text, same: impl Fn(&Text) -> bool) -> Option<&Edge> {
        for literal in self.places.get(text.home(slot, self.homes)..)? {
            if literal.slot == slot && same(&literal.text) {
                return Some(&literal.edge);
            }
            if literal.slot == NOBODY {
                return None;
            }
        }
        None
    }
}

impl Literal {
    const VACANT: Literal =
        Literal { text: Text { first: 0, last: 0, length: 0 }, slot: NOBODY, edge: Edge::NOWHERE };
}

impl Text {
    /// A text of up to sixteen bytes. The words overlap where it is shorter,
    /// and its length tells them from those of any other.
    #[inline(always)]
    fn short(text: &str) -> Option<Self> {
        let (bytes, length) = (text.as_bytes(), text.len());
        let (first, last) = match length {
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
        Some(Text { first, last, length })
    }

    /// A longer one, without its number.
    fn long(text: &str) -> Self {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(text.as_bytes());
        Text { first: hasher.finish(), last: 0, length: LONG }
    }

    /// Where among `homes` places the text belongs under a slot.
    ///
    /// The slot comes last: it is known only when the step before is done,
    /// while the processor can work on the text ahead of that.
    #[inline(always)]
    const fn home(self, slot: SlotId, homes: usize) -> usize {
        let text = fold(self.first ^ FIRST, self.last ^ LAST);
        let hash = fold(text ^ slot as u64, SPREAD);
        (((hash >> 32) * homes as u64) >> 32) as usize
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
        fn every_value_of_every_slot_is_found_and_no_other(
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
            prop_assert_eq!(Text::short(&one) == Text::short(&other), one == other);
        }
    }

    #[test]
    fn values_that_many_slots_share_do_not_crowd() {
        let values: Vec<String> = (0..10).map(|at| format!("/path{at}")).collect();
        let all: Vec<(u32, &str, Edge)> = (0..10_000)
            .flat_map(|slot| values.iter().map(move |value| (slot * 89, value.as_str(), edge(0))))
            .collect();
        let literals = Literals::new(all.into_iter());
        let runs = literals.places.split(|place| place.slot == NOBODY);
        let longest = runs.map(<[_]>::len).max().unwrap();
        assert!(longest < 100, "{longest}");
    }

    #[test]
    fn a_literal_stays_within_a_cache_line() {
        assert!(size_of::<Literal>() <= 64, "{}", size_of::<Literal>());
    }
}
