//! The tree of descriptors, flattened.

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

use compact_str::CompactString;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
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

/// A key's number in its tree.
type KeyId = u32;

/// What a node knows of one key.
#[derive(Debug)]
struct Slot {
    parent: NodeId,
    key: KeyId,
    has_exact: bool,
    bare: Option<Edge>,
    /// Index of the patterns, and of the ranges, if there are any.
    patterns: Option<u32>,
    ranges: Option<u32>,
}

/// A value that is known literally.
#[derive(Debug)]
struct Exact {
    parent: NodeId,
    key: KeyId,
    edge: Edge,
    value: CompactString,
}

/// The tree, ready to walk.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    keys: HashTable<(Box<str>, KeyId)>,
    slots: HashTable<Slot>,
    exact: HashTable<Exact>,
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
        let key = self.key(key)?;
        let slot = self.slot(parent, key)?;
        if slot.has_exact
            && let Some(edge) = self.exact(parent, key, value)
        {
            return Some(Step { edge, via: Via::Exact, address: None });
        }
        if slot.patterns.is_some() || slot.ranges.is_some() {
            return self.step_by_form(slot, value);
        }
        slot.bare.map(bare_step)
    }

    /// Patterns, ranges, bare key.
    fn step_by_form(&self, slot: &Slot, value: &str) -> Option<Step> {
        let patterns = slot.patterns.and_then(|at| self.patterns.get(at as usize));
        if let Some(edge) = patterns.and_then(|patterns| patterns.find(value)) {
            return Some(Step { edge, via: Via::Pattern, address: None });
        }
        let ranges = slot.ranges.and_then(|at| self.ranges.get(at as usize));
        let found = ranges.and_then(|ranges| {
            let address = parse_address(value)?;
            let (range, edge) = ranges.find(address)?;
            Some(Step { edge, via: Via::Range(range), address: Some(address) })
        });
        found.or_else(|| slot.bare.map(bare_step))
    }

    /// Which ways of matching a node has for a key: exact, patterns, ranges, bare.
    pub(crate) fn ways(&self, parent: NodeId, key: &str) -> Option<Ways> {
        let slot = self.slot(parent, self.key(key)?)?;
        Some(Ways {
            exact: slot.has_exact,
            patterns: slot.patterns.is_some(),
            ranges: slot.ranges.is_some(),
            bare: slot.bare.is_some(),
        })
    }

    /// The keys that a node knows, in order of their names. Walks the whole
    /// table: for explanations, not for requests.
    pub(crate) fn keys_at(&self, parent: NodeId) -> Vec<&str> {
        let known = |key: KeyId| self.slot(parent, key).is_some();
        let mut keys: Vec<&str> =
            self.keys.iter().filter(|(_, key)| known(*key)).map(|(text, _)| &**text).collect();
        keys.sort_unstable();
        keys
    }

    #[inline]
    fn key(&self, text: &str) -> Option<KeyId> {
        let hash = hash_key(text);
        self.keys.find(hash, |(known, _)| &**known == text).map(|(_, key)| *key)
    }

    #[inline]
    fn slot(&self, parent: NodeId, key: KeyId) -> Option<&Slot> {
        let hash = hash_slot(parent, key);
        self.slots.find(hash, |slot| slot.parent == parent && slot.key == key)
    }

    #[inline]
    fn exact(&self, parent: NodeId, key: KeyId, value: &str) -> Option<Edge> {
        let hash = hash_exact(parent, key, value);
        let same =
            |exact: &Exact| exact.parent == parent && exact.key == key && exact.value == value;
        self.exact.find(hash, same).map(|exact| exact.edge)
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
    Step { edge, via: Via::BareKey, address: None }
}

#[inline]
fn hash_key(text: &str) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[inline]
fn hash_slot(parent: NodeId, key: KeyId) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u64(u64::from(parent.0) << 32 | u64::from(key));
    hasher.finish()
}

#[inline]
fn hash_exact(parent: NodeId, key: KeyId, value: &str) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u64(u64::from(parent.0) << 32 | u64::from(key));
    hasher.write(value.as_bytes());
    hasher.finish()
}

/// A node that was declared before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken(pub(crate) NodeId);

/// A tree being put together.
#[derive(Debug, Default)]
pub(crate) struct TreeBuilder {
    tree: Tree,
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
        let next = u32::try_from(self.patterns.len()).unwrap_or(u32::MAX);
        let slot = self.slot(parent, key);
        let at = *slot.patterns.get_or_insert(next);
        if at == next {
            self.patterns.push(Vec::new());
        }
        let edge = Edge { child, count_by };
        self.patterns[at as usize].push((Pattern::new(pattern), edge));
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
        let next = u32::try_from(self.ranges.len()).unwrap_or(u32::MAX);
        let slot = self.slot(parent, key);
        let at = *slot.ranges.get_or_insert(next);
        if at == next {
            self.ranges.push(HashMap::default());
        }
        let ranges = &mut self.ranges[at as usize];
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
        let patterns = self.patterns.into_iter().map(PatternSet::new).collect();
        let ranges = self.ranges.into_iter().map(RangeSet::new).collect();
        Tree { patterns, ranges, ..self.tree }
    }

    fn literal(&mut self, parent: NodeId, key: &str, value: &str, count_by: CountBy) -> Declared {
        let child = self.next();
        let slot = self.slot(parent, key);
        slot.has_exact = true;
        let key = slot.key;
        if let Some(taken) = self.tree.exact(parent, key, value) {
            return Err(Taken(taken.child));
        }
        let exact = Exact { parent, key, edge: Edge { child, count_by }, value: value.into() };
        let hash = hash_exact(parent, key, value);
        self.tree
            .exact
            .insert_unique(hash, exact, |exact| hash_exact(exact.parent, exact.key, &exact.value));
        Ok(self.accept())
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
        let key = self.key(key);
        let hash = hash_slot(parent, key);
        let same = |slot: &Slot| slot.parent == parent && slot.key == key;
        let rehash = |slot: &Slot| hash_slot(slot.parent, slot.key);
        self.tree
            .slots
            .entry(hash, same, rehash)
            .or_insert_with(|| Slot {
                parent,
                key,
                has_exact: false,
                bare: None,
                patterns: None,
                ranges: None,
            })
            .into_mut()
    }

    fn key(&mut self, text: &str) -> KeyId {
        let next = KeyId::try_from(self.tree.keys.len()).unwrap_or(KeyId::MAX);
        let hash = hash_key(text);
        let same = |(known, _): &(Box<str>, KeyId)| &**known == text;
        let rehash = |(known, _): &(Box<str>, KeyId)| hash_key(known);
        let known = self.tree.keys.entry(hash, same, rehash);
        known.or_insert_with(|| (text.into(), next)).get().1
    }
}

/// The new node, or the one that has its place.
pub(crate) type Declared = Result<NodeId, Taken>;
