//! YAML as a tree in which every node knows its place.
//!
//! Built from parser events without recursion, so that hostile nesting ends in
//! a message and not in a stack overflow. An alias is a second way to the same
//! node, never a copy; what the copies would weigh is counted and bounded, so
//! that walking the tree is bounded too. Knows nothing of rules.

mod build;
mod scalar;

use std::borrow::Cow;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::diagnostics::Spot;

pub use build::parse;
pub use scalar::Plain;

/// The deepest nesting of a rule file. Each level of descriptors takes two.
pub(crate) const DEPTH_MAX: usize = 64;

/// The most nodes of one file, counting an aliased node each time it is used.
/// 100,000 rules take about 1.2 million.
pub(crate) const NODES_MAX: usize = 4_000_000;

/// A node's index in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

/// One file's YAML.
#[derive(Debug)]
pub struct Yaml<'s> {
    nodes: Vec<Node<'s>>,
    /// The children of every collection, those of one side by side.
    children: Vec<NodeId>,
    root: Option<NodeId>,
}

/// A node and where it is.
#[derive(Debug)]
pub struct Node<'s> {
    /// Where it is.
    pub spot: Spot,
    /// What it is.
    pub kind: Kind<'s>,
}

/// The three kinds of node.
#[derive(Debug)]
pub enum Kind<'s> {
    /// A single value.
    Scalar(Scalar<'s>),
    /// Values in order.
    Sequence(Children),
    /// Keys and values in turn.
    Mapping(Children),
}

/// Where a collection's children are.
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
    /// What merge keys name although it is no mapping.
    pub strays: Vec<NodeId>,
}

/// A scalar's text, and how it was written.
#[derive(Debug)]
pub struct Scalar<'s> {
    /// The text without its quotes.
    pub text: Cow<'s, str>,
    /// How its type is told.
    pub style: Style,
}

/// How the type of a scalar is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// By its text.
    Plain,
    /// It is text, because it is quoted or tagged so.
    Text,
}

impl<'s> Yaml<'s> {
    /// The document's node; none when the file is empty.
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

    /// Where a node is.
    pub fn spot(&self, id: NodeId) -> Spot {
        self.node(id).spot
    }

    /// The node as a single value, if it is one.
    pub fn scalar(&self, id: NodeId) -> Option<&Scalar<'s>> {
        match &self.node(id).kind {
            Kind::Scalar(scalar) => Some(scalar),
            Kind::Sequence(_) | Kind::Mapping(_) => None,
        }
    }

    /// Whether the node says "nothing here".
    pub fn is_null(&self, id: NodeId) -> bool {
        self.scalar(id).is_some_and(|scalar| scalar.plain() == Plain::Null)
    }

    /// Whether the key of a pair asks for the other mapping's pairs.
    pub fn is_merge(&self, key: NodeId) -> bool {
        self.scalar(key).is_some_and(|scalar| scalar.style == Style::Plain && scalar.text == "<<")
    }

    /// A mapping's pairs, those of its merge keys included, and what its merge
    /// keys name that is no mapping.
    ///
    /// Own pairs come first and win; of several merged mappings the first wins.
    pub fn merged_pairs(&self, id: NodeId) -> MergedPairs {
        let mut merged = MergedPairs::default();
        let Kind::Mapping(own) = self.node(id).kind else {
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
    // Recursion ends with the tree, which is never deeper than its maximum.
    fn merge<'y>(
        &'y self,
        own: Children,
        merged: &mut MergedPairs,
        seen: &mut HashSet<&'y str, FixedState>,
    ) {
        for (_, value) in self.pairs(own).filter(|(key, _)| self.is_merge(*key)) {
            let alone = [value];
            let sources: &[NodeId] = match self.node(value).kind {
                Kind::Sequence(items) => self.items(items),
                Kind::Scalar(_) | Kind::Mapping(_) => &alone,
            };
            for source in sources {
                let Kind::Mapping(other) = self.node(*source).kind else {
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
            Kind::Scalar(scalar) => match scalar.plain() {
                Plain::Null => "nothing",
                Plain::Bool(_) => "a boolean",
                Plain::Integer(_) => "a number",
                Plain::Float(_) => "a number with a fraction",
                Plain::Text => "text",
            },
            Kind::Sequence(_) => "a list",
            Kind::Mapping(_) => "a mapping",
        }
    }
}

impl Scalar<'_> {
    /// What the scalar is, read as envoyproxy/ratelimit reads it.
    pub fn plain(&self) -> Plain {
        match self.style {
            Style::Plain => Plain::of(&self.text),
            Style::Text => Plain::Text,
        }
    }
}
