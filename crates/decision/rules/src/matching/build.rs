//! Builds the tree.

use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU32;

use compact_str::CompactString;
use foldhash::fast::FixedState;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use indexmap::IndexSet;
use ipnet::IpNet;

use super::literals::Literals;
use super::pattern::{Pattern, PatternSet};
use super::range::RangeSet;
use super::tree::{CountBy, Edge, End, Fork, KeyId, NodeId, Slot, SlotId, Tree, hash};

/// The node that was declared before for the same key and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlierNode(pub(crate) NodeId);

/// A literal value.
#[derive(Debug)]
struct Exact {
    slot: SlotId,
    edge: Edge,
    value: CompactString,
}

/// A tree under construction.
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
    /// Adds a node below `parent` for every value of a key.
    pub(crate) fn bare(
        &mut self,
        parent: NodeId,
        key: &str,
        count_by: CountBy,
    ) -> Result<NodeId, EarlierNode> {
        let child = self.next();
        let slot = self.slot(parent, key);
        if let Some(earlier) = self.slots[slot].bare {
            return Err(EarlierNode(earlier.child));
        }
        self.slots[slot].bare = Some(Edge::to(child, count_by));
        Ok(self.accept())
    }

    /// Adds a node below `parent` for one value of a key.
    pub(crate) fn exact(
        &mut self,
        parent: NodeId,
        key: &str,
        value: &str,
        count_by: CountBy,
    ) -> Result<NodeId, EarlierNode> {
        let child = self.next();
        let index = self.slot(parent, key);
        let slot = self.slots[index].id;
        let is_same = |exact: &Exact| exact.slot == slot && exact.value == value;
        let rehash = |exact: &Exact| hash(exact.slot, &exact.value);
        match self.exact.entry(hash(slot, value), is_same, rehash) {
            Entry::Occupied(earlier) => Err(EarlierNode(earlier.get().edge.child)),
            Entry::Vacant(free) => {
                free.insert(Exact { slot, edge: Edge::to(child, count_by), value: value.into() });
                self.slots[index].literals += 1;
                Ok(self.accept())
            }
        }
    }

    /// Adds a node below `parent` for the values of a key that match a pattern.
    ///
    /// A value that equals the pattern's text leads here whatever other patterns come before, because literal texts are
    /// looked up first.
    pub(crate) fn like(
        &mut self,
        parent: NodeId,
        key: &str,
        pattern: &str,
        count_by: CountBy,
    ) -> Result<NodeId, EarlierNode> {
        let child = self.exact(parent, key, pattern, count_by)?;
        let slot = self.slot(parent, key);
        let patterns = group(&mut self.patterns, &mut self.slots[slot].patterns);
        patterns.push((Pattern::new(pattern), Edge::to(child, count_by)));
        Ok(child)
    }

    /// Adds a node below `parent` for the values of a key that are addresses in these ranges.
    pub(crate) fn within(
        &mut self,
        parent: NodeId,
        key: &str,
        within: &[IpNet],
        count_by: CountBy,
    ) -> Result<NodeId, EarlierNode> {
        let child = self.next();
        let slot = self.slot(parent, key);
        let ranges = group(&mut self.ranges, &mut self.slots[slot].ranges);
        if let Some(earlier) = within.iter().find_map(|range| ranges.get(range)) {
            return Err(EarlierNode(earlier.child));
        }
        ranges.extend(within.iter().map(|range| (*range, Edge::to(child, count_by))));
        Ok(self.accept())
    }

    /// The finished tree; `ends` says what applies at each node.
    pub(crate) fn finish(mut self, ends: &[End]) -> Tree {
        let keys: Vec<Box<str>> = self.keys.into_iter().collect();
        let mut slots = self.slots;
        // Stable: within a node the order of declaration stays.
        slots.sort_by_key(|slot| slot.parent.0);
        let mut forks = vec![Fork::default(); self.nodes as usize + 1];
        for (at, slot) in slots.iter().enumerate() {
            forks[slot.parent.index()].add(at);
        }
        let complete = |edge: &mut Edge| {
            let node = edge.child.index();
            edge.end = ends.get(node).copied().unwrap_or(End::Nothing);
            edge.below = forks.get(node).copied().unwrap_or_default();
        };
        self.exact.iter_mut().for_each(|exact| complete(&mut exact.edge));
        let bare = slots.iter_mut().filter_map(|slot| slot.bare.as_mut());
        bare.for_each(complete);
        let patterns = self.patterns.iter_mut().flatten();
        patterns.for_each(|(_, edge)| complete(edge));
        let ranges = self.ranges.iter_mut().flat_map(HashMap::values_mut);
        ranges.for_each(complete);
        Tree {
            wide: wide(&slots, &forks, &keys),
            literals: literals(&self.exact, &slots),
            keys,
            top: Edge { below: forks.first().copied().unwrap_or_default(), ..Edge::NOWHERE },
            slots,
            patterns: self.patterns.into_iter().map(PatternSet::new).collect(),
            ranges: self.ranges.into_iter().map(RangeSet::new).collect(),
        }
    }

    /// The id of the next node. Does not overflow: the YAML reader bounds the number of nodes.
    const fn next(&self) -> NodeId {
        NodeId(self.nodes + 1)
    }

    const fn accept(&mut self) -> NodeId {
        self.nodes += 1;
        NodeId(self.nodes)
    }

    /// The index of the slot of a key below `parent`; a new one for a new key.
    fn slot(&mut self, parent: NodeId, key: &str) -> usize {
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
                literals: 0,
            });
        }
        id as usize
    }
}

/// The slots of wide forks, by the start of the fork and by key.
fn wide(slots: &[Slot], forks: &[Fork], keys: &[Box<str>]) -> HashTable<u32> {
    let hash_of = |at: &u32| {
        let slot = &slots[*at as usize];
        hash(forks[slot.parent.index()].start, &keys[slot.key as usize])
    };
    let mut wide = HashTable::new();
    for (at, slot) in (0u32..).zip(slots) {
        if forks[slot.parent.index()].is_wide() {
            wide.insert_unique(hash_of(&at), at, hash_of);
        }
    }
    wide
}

/// The literal values by the indexes of their slots, which are in their final order.
fn literals(exact: &HashTable<Exact>, slots: &[Slot]) -> Literals {
    let mut indexes = vec![0; slots.len()];
    for (at, slot) in (0u32..).zip(slots) {
        indexes[slot.id as usize] = at;
    }
    let index_of = |exact: &Exact| indexes[exact.slot as usize];
    let all = exact.iter().map(|exact| (index_of(exact), exact.value.as_str(), exact.edge));
    Literals::new(all)
}

/// The group with this number, counted from one; a new one, which gets the next number, where there is none.
fn group<'g, T: Default>(groups: &'g mut Vec<T>, number: &mut Option<NonZeroU32>) -> &'g mut T {
    let number = number.get_or_insert_with(|| {
        groups.push(T::default());
        NonZeroU32::new(u32::try_from(groups.len()).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN)
    });
    &mut groups[number.get() as usize - 1]
}
