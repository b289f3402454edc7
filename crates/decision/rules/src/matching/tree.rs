//! The tree of descriptors, flattened.

use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU32;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use ipnet::IpNet;
use serde::Serialize;

use super::literals::Literals;
use super::pattern::PatternSet;
use super::range::RangeSet;
use crate::address::{PrefixLengths, parse_address};
use crate::rule::RuleId;

/// A node of the tree; the root is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

impl NodeId {
    pub(crate) const ROOT: NodeId = NodeId(0);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An edge to a node, with everything that a request needs of the node, so that a step reads no other memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) child: NodeId,
    pub(crate) count_by: CountBy,
    /// What applies when the request's last entry leads there.
    pub(crate) end: End,
    /// The keys that can follow.
    pub(crate) below: Fork,
}

impl Default for Edge {
    fn default() -> Self {
        Edge::NOWHERE
    }
}

impl Edge {
    /// The placeholder for a missing edge.
    pub(super) const NOWHERE: Edge = Edge::to(NodeId::ROOT, CountBy::Nothing);

    /// An edge to a node; its end and the keys below are filled in later.
    pub(super) const fn to(child: NodeId, count_by: CountBy) -> Self {
        Edge { child, count_by, end: End::Nothing, below: Fork { start: 0, count: 0 } }
    }
}

/// What applies to a request whose last entry led to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Nothing,
    Rule(RuleId),
    /// The value names the plan; the index of the choice.
    Choice(u32),
    /// A row may change the limits; the index of the choice.
    Row(u32),
}

/// The part of a request's value that selects the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountBy {
    Nothing,
    Value,
    Network(PrefixLengths),
}

/// The ways to match a value, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Key and value, literally.
    Exact,
    /// A value with `*`.
    Pattern,
    /// An address range.
    Cidr,
    /// The key alone.
    BareKey,
}

/// One step down the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'t> {
    pub(crate) edge: &'t Edge,
    pub(crate) way: Way,
    /// The address range that matched.
    pub(crate) range: Option<IpNet>,
}

impl<'t> Step<'t> {
    #[inline]
    const fn new(edge: &'t Edge, way: Way) -> Self {
        Step { edge, way, range: None }
    }
}

/// Up to this many keys of one node are compared one after another, which is cheaper than hashing; more are in a table.
/// Most nodes have one or two.
const COMPARED_MAX: usize = 4;

/// An odd number with well-mixed bits.
pub(super) const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The index of a slot in the order of declaration.
pub(super) type SlotId = u32;

/// The index of a key among the keys of the tree.
pub(super) type KeyId = u32;

/// The edges of a node for one key. Small, because it is not cached when requests for it are rare.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: KeyId,
    pub(super) parent: NodeId,
    pub(super) id: SlotId,
    pub(super) bare: Option<Edge>,
    /// The numbers of its pattern set and of its range set, from one.
    pub(super) patterns: Option<NonZeroU32>,
    pub(super) ranges: Option<NonZeroU32>,
    /// The number of literal values.
    pub(super) literals: u32,
}

/// The keys that can follow a node, as a range of the tree's slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fork {
    pub(super) start: u32,
    count: u32,
}

impl Fork {
    /// Adds the slot at this index, which follows those of the fork.
    pub(super) fn add(&mut self, index: usize) {
        if self.count == 0 {
            self.start = u32::try_from(index).unwrap_or(u32::MAX);
        }
        self.count += 1;
    }

    #[inline]
    pub(super) const fn is_wide(self) -> bool {
        self.count as usize > COMPARED_MAX
    }

    #[inline]
    fn slots(self, all: &[Slot]) -> &[Slot] {
        let start = self.start as usize;
        all.get(start..start + self.count as usize).unwrap_or_default()
    }
}

/// The tree, ready to walk.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The texts of the keys: few, so they stay cached, unlike the slots.
    pub(super) keys: Vec<Box<str>>,
    /// The slots of one node are adjacent.
    pub(super) slots: Vec<Slot>,
    /// The edge to the root.
    pub(super) top: Edge,
    /// The slots of wide forks.
    pub(super) wide: HashTable<u32>,
    pub(super) literals: Literals,
    pub(super) patterns: Vec<PatternSet<Edge>>,
    pub(super) ranges: Vec<RangeSet<Edge>>,
}

impl Tree {
    /// The child that an entry leads to, and how.
    ///
    /// Tries the exact value, the patterns, the ranges and the bare key, in this order; the first match wins.
    #[inline]
    pub(crate) fn step(&self, fork: Fork, key: &str, value: &str) -> Option<Step<'_>> {
        let (at, slot) = self.slot(fork, key)?;
        if let Some(edge) = self.exact(at, slot, value) {
            return Some(Step::new(edge, Way::Exact));
        }
        if slot.patterns.is_some() || slot.ranges.is_some() {
            return self.step_by_form(slot, value);
        }
        slot.bare.as_ref().map(|edge| Step::new(edge, Way::BareKey))
    }

    /// Patterns, ranges, bare key. Not inlined, so that the common path stays short.
    #[inline(never)]
    fn step_by_form<'t>(&'t self, slot: &'t Slot, value: &str) -> Option<Step<'t>> {
        let patterns = numbered(&self.patterns, slot.patterns);
        if let Some(edge) = patterns.and_then(|patterns| patterns.find(value)) {
            return Some(Step::new(edge, Way::Pattern));
        }
        let found = numbered(&self.ranges, slot.ranges).and_then(|ranges| {
            let (range, edge) = ranges.find(parse_address(value)?)?;
            Some(Step { edge, way: Way::Cidr, range: Some(range) })
        });
        found.or_else(|| slot.bare.as_ref().map(|edge| Step::new(edge, Way::BareKey)))
    }

    /// The edge to the root, where every request starts.
    #[inline]
    pub(crate) const fn top(&self) -> &Edge {
        &self.top
    }

    /// The ways to match that a fork has for a key, in the order in which they are tried; `None` for an unknown key.
    pub(crate) fn ways(&self, fork: Fork, key: &str) -> Option<Vec<Way>> {
        let (_, slot) = self.slot(fork, key)?;
        let ways = [
            (Way::Exact, slot.literals > 0),
            (Way::Pattern, slot.patterns.is_some()),
            (Way::Cidr, slot.ranges.is_some()),
            (Way::BareKey, slot.bare.is_some()),
        ];
        Some(ways.into_iter().filter(|(_, exists)| *exists).map(|(way, _)| way).collect())
    }

    /// The keys of a fork, sorted.
    pub(crate) fn keys_at(&self, fork: Fork) -> Vec<&str> {
        let slots = fork.slots(&self.slots).iter();
        let mut keys: Vec<&str> = slots.map(|slot| self.key(slot)).collect();
        keys.sort_unstable();
        keys
    }

    #[inline]
    fn key(&self, slot: &Slot) -> &str {
        self.keys.get(slot.key as usize).map_or("", |key| key)
    }

    /// The slot of a key, and its index.
    #[inline]
    fn slot(&self, fork: Fork, key: &str) -> Option<(u32, &Slot)> {
        let Fork { start, count } = fork;
        if count == 0 {
            return None;
        }
        // Most nodes have one key.
        let first = self.slots.get(start as usize)?;
        if same(self.key(first), key) { Some((start, first)) } else { self.other_slot(fork, key) }
    }

    /// The slots after the first. Not inlined, so that the common path stays short.
    #[inline(never)]
    fn other_slot(&self, fork: Fork, key: &str) -> Option<(u32, &Slot)> {
        let start = fork.start;
        let slots = fork.slots(&self.slots);
        let wanted = |slot: &Slot| same(self.key(slot), key);
        if !fork.is_wide() {
            return (start..).zip(slots).skip(1).find(|(_, slot)| wanted(slot));
        }
        // The start of a fork identifies it.
        let slot_at = |at: &u32| slots.get(at.checked_sub(start)? as usize);
        let at = self.wide.find(hash(start, key), |at| slot_at(at).is_some_and(wanted))?;
        Some((*at, slot_at(at)?))
    }

    /// Looks up by the slot's index and not by its contents, so that the lookup can start before the slot is loaded from
    /// memory.
    #[inline]
    fn exact(&self, at: u32, slot: &Slot, value: &str) -> Option<&Edge> {
        if slot.literals == 0 {
            return None;
        }
        self.literals.find(at, value)
    }
}

/// Whether two texts are equal. Most keys and values are short: comparing two overlapping words saves a call of `memcmp`.
#[inline]
pub(crate) fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    match one.len() {
        0..4 => one.iter().eq(other),
        4..=8 => {
            one.first_chunk::<4>() == other.first_chunk()
                && one.last_chunk::<4>() == other.last_chunk()
        }
        9..=16 => {
            one.first_chunk::<8>() == other.first_chunk()
                && one.last_chunk::<8>() == other.last_chunk()
        }
        _ => same_long(one, other),
    }
}

#[inline(never)]
fn same_long(one: &[u8], other: &[u8]) -> bool {
    one == other
}

/// The item with this number, counted from one.
fn numbered<T>(all: &[T], number: Option<NonZeroU32>) -> Option<&T> {
    all.get(number?.get() as usize - 1)
}

/// A fixed seed is safe: rules fill the tables and requests only read them, so callers cannot cause collisions.
#[inline]
pub(super) fn hash(number: u32, text: &str) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(text.as_bytes());
    fold(hasher.finish() ^ u64::from(number), SPREAD)
}

/// The folded product: every bit depends on all bits of both factors.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
pub(super) const fn fold(one: u64, other: u64) -> u64 {
    let product = one as u128 * other as u128;
    (product ^ (product >> 64)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::matching::TreeBuilder;

    proptest! {
        #[test]
        fn texts_are_the_same_when_all_their_bytes_are(one in "[ab]{0,20}", at in 0usize..20) {
            prop_assert!(same(&one, &one.clone()));
            let mut other = one.clone().into_bytes();
            if let Some(byte) = other.get_mut(at) {
                *byte ^= 3;
                let other = String::from_utf8(other).unwrap();
                prop_assert!(!same(&one, &other));
            }
            let longer = one.clone() + "a";
            prop_assert!(!same(&one, &longer));
        }
    }

    #[test]
    fn slots_stay_within_a_cache_line() {
        assert!(size_of::<Slot>() <= 64, "{}", size_of::<Slot>());
    }

    #[test]
    fn a_node_with_many_keys_finds_each_of_them() {
        let mut builder = TreeBuilder::default();
        let keys: Vec<String> = (0..20).map(|at| format!("key{at}")).collect();
        for key in &keys {
            assert!(builder.bare(NodeId::ROOT, key, CountBy::Value).is_ok());
        }
        let taken = builder.bare(NodeId::ROOT, "key3", CountBy::Value);
        assert_eq!(taken.unwrap_err().0, NodeId(4));
        let tree = builder.finish(&[]);
        for (key, node) in keys.iter().zip(1..) {
            let step = tree.step(tree.top().below, key, "v").unwrap();
            assert_eq!(step.edge.child, NodeId(node));
        }
        assert!(tree.step(tree.top().below, "key20", "v").is_none());
        assert_eq!(tree.keys_at(tree.top().below).len(), 20);
    }
}
