//! YAML as a tree in which every node has its location.
//!
//! Built from parser events without recursion, so that hostile nesting ends in a message and not in a stack overflow.
//! An alias is a second reference to the same node, never a copy; the nodes that copies would have are counted and
//! bounded, so that walking the tree is bounded too.

mod base64;
mod build;
mod libyaml;
mod scalar;

use std::borrow::Cow;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::problems::Location;

pub use build::parse;
pub use scalar::PlainValue;

/// The deepest nesting. Each level of descriptors in a rule file takes two: room for 120 levels.
pub(crate) const DEPTH_MAX: usize = 256;

/// The maximum of nodes in one document; an aliased node counts each time it is used. 100,000 rules take about 1.2
/// million.
pub(crate) const NODES_MAX: usize = 4_000_000;

/// A node's index in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

/// The YAML of one document.
#[derive(Debug)]
pub struct Yaml<'s> {
    nodes: Vec<Node<'s>>,
    /// The children of every collection; those of one collection are adjacent.
    children: Vec<NodeId>,
    root: Option<NodeId>,
}

/// A node and its location.
#[derive(Debug)]
pub struct Node<'s> {
    /// Its location.
    pub location: Location,
    /// What it is.
    pub kind: NodeKind<'s>,
}

/// The three kinds of node.
#[derive(Debug)]
pub enum NodeKind<'s> {
    /// A single value.
    Scalar(Scalar<'s>),
    /// Values in order.
    Sequence(Children),
    /// Keys and values in turn.
    Mapping(Children),
}

/// The range of the children of a collection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Children {
    start: u32,
    count: u32,
}

/// A mapping's pairs after its merge keys are followed.
#[derive(Debug, Default)]
pub struct MergedPairs {
    /// Keys and values.
    pub pairs: Vec<(NodeId, NodeId)>,
    /// Values of merge keys that are not mappings.
    pub strays: Vec<NodeId>,
}

/// The text of a scalar, and how it was written.
#[derive(Debug)]
pub struct Scalar<'s> {
    /// The text without its quotes.
    pub text: Cow<'s, str>,
    /// Whether its text has a type.
    pub style: ScalarStyle,
}

/// How the type of a scalar follows from its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarStyle {
    /// Unquoted: a number, a boolean or text, by its form.
    Plain,
    /// Text, because it is quoted or tagged as text.
    Text,
}

impl<'s> Yaml<'s> {
    /// The root; none when the document is empty.
    pub const fn root(&self) -> Option<NodeId> {
        self.root
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node<'s> {
        &self.nodes[id.0 as usize]
    }

    /// A list's items.
    pub fn items(&self, children: Children) -> &[NodeId] {
        let start = children.start as usize;
        let items = self.children.get(start..start + children.count as usize);
        items.unwrap_or_default()
    }

    /// A mapping's keys and values.
    pub fn pairs(&self, children: Children) -> impl Iterator<Item = (NodeId, NodeId)> + Clone + '_ {
        let pairs = self.items(children).chunks_exact(2);
        pairs.map(|pair| (pair[0], pair[1]))
    }

    /// The location of a node.
    pub fn location(&self, id: NodeId) -> Location {
        self.node(id).location
    }

    /// The node as a single value, if it is one.
    pub fn scalar(&self, id: NodeId) -> Option<&Scalar<'s>> {
        match &self.node(id).kind {
            NodeKind::Scalar(scalar) => Some(scalar),
            NodeKind::Sequence(_) | NodeKind::Mapping(_) => None,
        }
    }

    /// Whether the node is null.
    pub fn is_null(&self, id: NodeId) -> bool {
        self.scalar(id).is_some_and(|scalar| scalar.plain() == PlainValue::Null)
    }

    /// Whether the key of a pair is the merge key `<<`.
    pub fn is_merge(&self, key: NodeId) -> bool {
        self.scalar(key)
            .is_some_and(|scalar| scalar.style == ScalarStyle::Plain && scalar.text == "<<")
    }

    /// The pairs of a mapping, including those of its merge keys.
    ///
    /// Own pairs come first and win; of several merged mappings the first wins.
    pub fn merged_pairs(&self, id: NodeId) -> MergedPairs {
        let mut merged = MergedPairs::default();
        let NodeKind::Mapping(own) = self.node(id).kind else {
            return merged;
        };
        merged.pairs.extend(self.pairs(own).filter(|(key, _)| !self.is_merge(*key)));
        if merged.pairs.len() * 2 < self.items(own).len() {
            let text = |(key, _): &(NodeId, NodeId)| self.scalar(*key).map(|key| &*key.text);
            let mut seen = merged.pairs.iter().filter_map(text).collect();
            self.merge(own, &mut merged, &mut seen);
        }
        merged
    }

    /// Adds the pairs that the merge keys of a mapping bring.
    // The depth of the recursion is bounded by that of the tree.
    fn merge<'y>(
        &'y self,
        own: Children,
        merged: &mut MergedPairs,
        seen: &mut HashSet<&'y str, FixedState>,
    ) {
        for (_, value) in self.pairs(own).filter(|(key, _)| self.is_merge(*key)) {
            let single = [value];
            let sources: &[NodeId] = match self.node(value).kind {
                NodeKind::Sequence(items) => self.items(items),
                NodeKind::Scalar(_) | NodeKind::Mapping(_) => &single,
            };
            for source in sources {
                let NodeKind::Mapping(other) = self.node(*source).kind else {
                    merged.strays.push(*source);
                    continue;
                };
                for (key, value) in self.pairs(other) {
                    let text = self.scalar(key).map_or("", |key| &*key.text);
                    if !self.is_merge(key) && seen.insert(text) {
                        merged.pairs.push((key, value));
                    }
                }
                self.merge(other, merged, seen);
            }
        }
    }

    /// What a node is, for messages.
    pub fn describe(&self, id: NodeId) -> &'static str {
        match &self.node(id).kind {
            NodeKind::Scalar(scalar) => scalar.plain().describe(),
            NodeKind::Sequence(_) => "a list",
            NodeKind::Mapping(_) => "a mapping",
        }
    }
}

impl Scalar<'_> {
    /// The value of the scalar, read as envoyproxy/ratelimit reads it.
    pub fn plain(&self) -> PlainValue {
        match self.style {
            ScalarStyle::Plain => PlainValue::of(&self.text),
            ScalarStyle::Text => PlainValue::Text,
        }
    }
}
