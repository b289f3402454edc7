//! The tree of descriptors, flattened.

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::num::NonZeroU32;

use compact_str::CompactString;
use foldhash::fast::FixedState;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use indexmap::IndexSet;
use ipnet::IpNet;

use super::pattern::{Pattern, PatternSet};
use super::range::RangeSet;
use crate::address::{Grouping, parse_address};

/// A node of the tree; the root is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

impl NodeId {
    pub(crate) const ROOT: NodeId = NodeId(0);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The way to a node, and what the value means for counting there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) child: NodeId,
    pub(crate) count_by: CountBy,
}

/// What of a request's value tells counters apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountBy {
    Nothing,
    Value,
    Network(Grouping),
}

/// How a node was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Exact,
    Pattern,
    Range(IpNet),
    BareKey,
}

/// One step down the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) edge: Edge,
    pub(crate) via: Via,
    /// The value as an address, where that had to be known.
    pub(crate) address: Option<IpAddr>,
}

/// Up to this many keys of one node, and values of one key, are compared one
/// after another: that is cheaper than hashing, and stays in one place of memory.
/// More have a table.
const COMPARED_MAX: usize = 4;

/// A slot's number in the order of declaration.
type SlotId = u32;

/// A key's number among the keys of the tree.
type KeyId = u32;

/// What a node knows of one key. Small, because a request that comes seldom
/// finds it in slow memory.
#[derive(Debug)]
struct Slot {
    key: KeyId,
    parent: NodeId,
    id: SlotId,
    bare: Option<Edge>,
    /// The patterns, and the ranges, if there are any; the first are number one.
    patterns: Option<NonZeroU32>,
    ranges: Option<NonZeroU32>,
    exact: Few,
}

/// A value that is known literally.
#[derive(Debug)]
struct Exact {
    slot: SlotId,
    edge: Edge,
    value: CompactString,
}

/// How many things there are and, when they are few, where the first is.
#[derive(Clone, Copy, Debug, Default)]
struct Few {
    start: u32,
    count: u32,
}

impl Few {
    /// Counts one more, at this place.
    fn add(&mut self, at: usize) {
        if self.count == 0 {
            self.start = u32::try_from(at).unwrap_or(u32::MAX);
        }
        self.count += 1;
    }

    #[inline]
    const fn are_many(self) -> bool {
        self.count as usize > COMPARED_MAX
    }

    #[inline]
    fn of<T>(self, all: &[T]) -> &[T] {
        let start = self.start as usize;
        let few = all.get(start..start + self.count as usize);
        few.unwrap_or_default()
    }
}

/// The tree, ready to walk.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The texts of the keys: few and always near, unlike the slots.
    keys: Vec<Box<str>>,
    /// Those of one node side by side.
    slots: Vec<Slot>,
    /// By node.
    nodes: Vec<Few>,
    /// The slots of nodes with many keys.
    wide: HashTable<u32>,
    /// The values of slots with few, those of one slot side by side.
    few_exact: Vec<Exact>,
    /// The values of slots with many.
    many_exact: HashTable<Exact>,
    patterns: Vec<PatternSet<Edge>>,
    ranges: Vec<RangeSet<Edge>>,
}

impl Tree {
    /// The child that an entry leads to.
    ///
    /// In this order, and the first found is taken: the exact value, the
    /// patterns, the ranges, the bare key.
    #[inline]
    pub(crate) fn step(&self, parent: NodeId, key: &str, value: &str) -> Option<Step> {
        let slot = self.slot(parent, key)?;
        if let Some(edge) = self.exact(slot, value) {
            return Some(Step {
                edge,
                via: Via::Exact,
                address: None,
            });
        }
        if slot.patterns.is_some() || slot.ranges.is_some() {
            return self.step_by_form(slot, value);
        }
        slot.bare.map(bare_step)
    }

    /// Patterns, ranges, bare key. Apart, so that the common way stays short.
    #[inline(never)]
    fn step_by_form(&self, slot: &Slot, value: &str) -> Option<Step> {
        let patterns = numbered(&self.patterns, slot.patterns);
        if let Some(edge) = patterns.and_then(|patterns| patterns.find(value)) {
            return Some(Step {
                edge,
                via: Via::Pattern,
                address: None,
            });
        }
        let ranges = numbered(&self.ranges, slot.ranges);
        let found = ranges.and_then(|ranges| {
            let address = parse_address(value)?;
            let (range, edge) = ranges.find(address)?;
            Some(Step {
                edge,
                via: Via::Range(range),
                address: Some(address),
            })
        });
        found.or_else(|| slot.bare.map(bare_step))
    }

    /// Which ways of matching a node has for a key: exact, patterns, ranges, bare.
    pub(crate) fn ways(&self, parent: NodeId, key: &str) -> Option<Ways> {
        let slot = self.slot(parent, key)?;
        Some(Ways {
            exact: slot.exact.count > 0,
            patterns: slot.patterns.is_some(),
            ranges: slot.ranges.is_some(),
            bare: slot.bare.is_some(),
        })
    }

    /// The keys that a node knows, in order of their names.
    pub(crate) fn keys_at(&self, parent: NodeId) -> Vec<&str> {
        let mut keys: Vec<&str> = self
            .slots_of(parent)
            .of(&self.slots)
            .iter()
            .map(|slot| self.key(slot))
            .collect();
        keys.sort_unstable();
        keys
    }

    #[inline]
    fn key(&self, slot: &Slot) -> &str {
        self.keys.get(slot.key as usize).map_or("", |key| key)
    }

    #[inline]
    fn slots_of(&self, parent: NodeId) -> Few {
        self.nodes.get(parent.index()).copied().unwrap_or_default()
    }

    #[inline]
    fn slot(&self, parent: NodeId, key: &str) -> Option<&Slot> {
        let slots = self.slots_of(parent);
        if !slots.are_many() {
            let mut few = slots.of(&self.slots).iter();
            return few.find(|slot| same(self.key(slot), key));
        }
        let wanted = |at: &u32| {
            let slot = &self.slots[*at as usize];
            slot.parent == parent && same(self.key(slot), key)
        };
        let at = self.wide.find(hash(parent.0, key), wanted)?;
        self.slots.get(*at as usize)
    }

    #[inline]
    fn exact(&self, slot: &Slot, value: &str) -> Option<Edge> {
        let found = if slot.exact.are_many() {
            let wanted = |exact: &Exact| exact.slot == slot.id && same(&exact.value, value);
            self.many_exact.find(hash(slot.id, value), wanted)
        } else {
            let mut few = slot.exact.of(&self.few_exact).iter();
            few.find(|exact| same(&exact.value, value))
        };
        found.map(|exact| exact.edge)
    }
}

/// The ways of matching that a node has for a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    pub(crate) exact: bool,
    pub(crate) patterns: bool,
    pub(crate) ranges: bool,
    pub(crate) bare: bool,
}

#[inline]
fn bare_step(edge: Edge) -> Step {
    Step {
        edge,
        via: Via::BareKey,
        address: None,
    }
}

/// Whether two texts are the same. Keys and values are mostly short: comparing
/// their two ends, which overlap, spares a call for each.
#[inline]
fn same(one: &str, other: &str) -> bool {
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
        _ => one == other,
    }
}

/// The thing with this number, counted from one.
fn numbered<T>(all: &[T], number: Option<NonZeroU32>) -> Option<&T> {
    all.get(number?.get() as usize - 1)
}

/// The rules' own texts fill these tables and requests only ask them, so a fixed
/// seed is safe: nobody outside can make entries collide.
#[inline]
fn hash(number: u32, text: &str) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u32(number);
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// A node that was declared before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken(pub(crate) NodeId);

/// A tree being put together.
#[derive(Debug, Default)]
pub(crate) struct TreeBuilder {
    /// In the order of declaration.
    slots: Vec<Slot>,
    /// Slots by parent and key.
    known: HashTable<SlotId>,
    keys: IndexSet<Box<str>, FixedState>,
    exact: HashTable<Exact>,
    nodes: u32,
    /// Patterns and ranges by slot, until their indexes can be made.
    patterns: Vec<Vec<(Pattern, Edge)>>,
    ranges: Vec<HashMap<IpNet, Edge, FixedState>>,
}

impl TreeBuilder {
    /// A node below `parent` for every value of a key.
    pub(crate) fn bare(&mut self, parent: NodeId, key: &str, count_by: CountBy) -> Declared {
        let child = self.next();
        let slot = self.slot(parent, key);
        if let Some(taken) = slot.bare {
            return Err(Taken(taken.child));
        }
        slot.bare = Some(Edge { child, count_by });
        Ok(self.accept())
    }

    /// A node below `parent` for one value of a key.
    pub(crate) fn exact(&mut self, parent: NodeId, key: &str, value: &str) -> Declared {
        self.literal(parent, key, value, CountBy::Nothing)
    }

    /// A node below `parent` for the values of a key that are like a pattern.
    ///
    /// A value that is the pattern's own text is this node's whatever other
    /// patterns come before, because the text is looked up first.
    pub(crate) fn like(
        &mut self,
        parent: NodeId,
        key: &str,
        pattern: &str,
        count_by: CountBy,
    ) -> Declared {
        let child = self.literal(parent, key, pattern, count_by)?;
        let next = next_number(&self.patterns);
        let number = *self.slot(parent, key).patterns.get_or_insert(next);
        if number == next {
            self.patterns.push(Vec::new());
        }
        let edge = Edge { child, count_by };
        let patterns = &mut self.patterns[number.get() as usize - 1];
        patterns.push((Pattern::new(pattern), edge));
        Ok(child)
    }

    /// A node below `parent` for the values of a key that are addresses in these ranges.
    pub(crate) fn within(
        &mut self,
        parent: NodeId,
        key: &str,
        within: &[IpNet],
        count_by: CountBy,
    ) -> Declared {
        let child = self.next();
        let next = next_number(&self.ranges);
        let number = *self.slot(parent, key).ranges.get_or_insert(next);
        if number == next {
            self.ranges.push(HashMap::default());
        }
        let ranges = &mut self.ranges[number.get() as usize - 1];
        if let Some(taken) = within.iter().find_map(|range| ranges.get(range)) {
            return Err(Taken(taken.child));
        }
        for range in within {
            ranges.insert(*range, Edge { child, count_by });
        }
        Ok(self.accept())
    }

    /// The finished tree.
    pub(crate) fn finish(self) -> Tree {
        let keys: Vec<Box<str>> = self.keys.into_iter().collect();
        let mut slots = self.slots;
        let (few_exact, many_exact) = split(self.exact, &mut slots);
        // Stable: within a node the order of declaration stays.
        slots.sort_by_key(|slot| slot.parent.0);
        let mut nodes = vec![Few::default(); self.nodes as usize + 1];
        for (at, slot) in slots.iter().enumerate() {
            if let Some(of_node) = nodes.get_mut(slot.parent.index()) {
                of_node.add(at);
            }
        }
        let mut wide = HashTable::new();
        for (at, slot) in (0u32..).zip(&slots) {
            let of_node = nodes.get(slot.parent.index());
            if of_node.is_some_and(|of_node| of_node.are_many()) {
                let hash_of = |slot: &Slot| hash(slot.parent.0, &keys[slot.key as usize]);
                wide.insert_unique(hash_of(slot), at, |at| hash_of(&slots[*at as usize]));
            }
        }
        Tree {
            keys,
            slots,
            nodes,
            wide,
            few_exact,
            many_exact,
            patterns: self.patterns.into_iter().map(PatternSet::new).collect(),
            ranges: self.ranges.into_iter().map(RangeSet::new).collect(),
        }
    }

    fn literal(&mut self, parent: NodeId, key: &str, value: &str, count_by: CountBy) -> Declared {
        let child = self.next();
        let slot = self.slot(parent, key).id;
        let taken = |exact: &Exact| exact.slot == slot && exact.value == value;
        let rehash = |exact: &Exact| hash(exact.slot, &exact.value);
        match self.exact.entry(hash(slot, value), taken, rehash) {
            Entry::Occupied(taken) => Err(Taken(taken.get().edge.child)),
            Entry::Vacant(free) => {
                free.insert(Exact {
                    slot,
                    edge: Edge { child, count_by },
                    value: value.into(),
                });
                self.slots[slot as usize].exact.count += 1;
                Ok(self.accept())
            }
        }
    }

    /// The number that the next node will have. The YAML reader's maximum on
    /// nodes keeps this far from its end.
    const fn next(&self) -> NodeId {
        NodeId(self.nodes + 1)
    }

    const fn accept(&mut self) -> NodeId {
        self.nodes += 1;
        NodeId(self.nodes)
    }

    fn slot(&mut self, parent: NodeId, key: &str) -> &mut Slot {
        let key = match self.keys.get_index_of(key) {
            Some(known) => known,
            None => self.keys.insert_full(key.into()).0,
        };
        let key = KeyId::try_from(key).unwrap_or(KeyId::MAX);
        let slots = &self.slots;
        let hash_of = |parent: NodeId, key: KeyId| {
            let mut hasher = FixedState::default().build_hasher();
            hasher.write_u64(u64::from(parent.0) << 32 | u64::from(key));
            hasher.finish()
        };
        let same = |id: &SlotId| {
            let slot = &slots[*id as usize];
            slot.parent == parent && slot.key == key
        };
        let rehash = |id: &SlotId| {
            let slot = &slots[*id as usize];
            hash_of(slot.parent, slot.key)
        };
        let next = SlotId::try_from(slots.len()).unwrap_or(SlotId::MAX);
        let known = self.known.entry(hash_of(parent, key), same, rehash);
        let id = *known.or_insert(next).get();
        if id == next {
            self.slots.push(Slot {
                key,
                parent,
                id,
                bare: None,
                patterns: None,
                ranges: None,
                exact: Few::default(),
            });
        }
        &mut self.slots[id as usize]
    }
}

/// The number of the next thing, counted from one.
fn next_number<T>(all: &[T]) -> NonZeroU32 {
    let number = u32::try_from(all.len()).unwrap_or(u32::MAX);
    NonZeroU32::MIN.saturating_add(number)
}

/// Parts the values of slots with few from those of slots with many, and tells
/// the slots, which are in the order of their ids.
fn split(exact: HashTable<Exact>, slots: &mut [Slot]) -> (Vec<Exact>, HashTable<Exact>) {
    let mut few = Vec::new();
    let mut many = HashTable::new();
    for exact in exact {
        let count = slots[exact.slot as usize].exact.count;
        if count as usize > COMPARED_MAX {
            many.insert_unique(hash(exact.slot, &exact.value), exact, |exact: &Exact| {
                hash(exact.slot, &exact.value)
            });
        } else {
            few.push(exact);
        }
    }
    few.sort_by_key(|exact| exact.slot);
    let mut start = 0;
    for of_slot in few.chunk_by(|one, other| one.slot == other.slot) {
        if let Some(first) = of_slot.first() {
            slots[first.slot as usize].exact.start = start;
        }
        start += u32::try_from(of_slot.len()).unwrap_or(u32::MAX);
    }
    (few, many)
}

/// The new node, or the one that has its place.
pub(crate) type Declared = Result<NodeId, Taken>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        assert!(size_of::<Slot>() <= 40, "{}", size_of::<Slot>());
        assert!(size_of::<Exact>() <= 40, "{}", size_of::<Exact>());
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
        let tree = builder.finish();
        for (key, node) in keys.iter().zip(1..) {
            let step = tree.step(NodeId::ROOT, key, "v").unwrap();
            assert_eq!(step.edge.child, NodeId(node));
        }
        assert!(tree.step(NodeId::ROOT, "key20", "v").is_none());
        assert_eq!(tree.keys_at(NodeId::ROOT).len(), 20);
    }
}
