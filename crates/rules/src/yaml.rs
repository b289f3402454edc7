//! YAML as a tree in which every node knows its place.
//!
//! Built from parser events without recursion, so that hostile nesting ends in
//! a message and not in a stack overflow. An alias is a second way to the same
//! node, never a copy; what the copies would weigh is counted and bounded, so
//! that walking the tree is bounded too. Knows nothing of rules.

mod build;
mod scalar;

use std::borrow::Cow;

use crate::diagnostics::Spot;

pub(crate) use build::parse;
pub(crate) use scalar::Plain;

/// The deepest nesting of a rule file. Each level of descriptors takes two.
pub(crate) const DEPTH_MAX: usize = 64;

/// The most nodes of one file, counting an aliased node each time it is used.
/// 100,000 rules take about 1.2 million.
pub(crate) const NODES_MAX: usize = 4_000_000;

/// A node's index in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(u32);

/// One file's YAML.
#[derive(Debug)]
pub(crate) struct Yaml<'s> {
    nodes: Vec<Node<'s>>,
    /// The children of every collection, those of one side by side.
    children: Vec<NodeId>,
    root: Option<NodeId>,
}

/// A node and where it is.
#[derive(Debug)]
pub(crate) struct Node<'s> {
    pub(crate) spot: Spot,
    pub(crate) kind: Kind<'s>,
}

/// The three kinds of node.
#[derive(Debug)]
pub(crate) enum Kind<'s> {
    Scalar(Scalar<'s>),
    Sequence(Children),
    /// Keys and values in turn.
    Mapping(Children),
}

/// Where a collection's children are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Children {
    start: u32,
    count: u32,
}

/// A scalar's text, and how it was written.
#[derive(Debug)]
pub(crate) struct Scalar<'s> {
    pub(crate) text: Cow<'s, str>,
    pub(crate) style: Style,
}

/// How the type of a scalar is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// By its text.
    Plain,
    /// It is text, because it is quoted or tagged so.
    Text,
}

impl<'s> Yaml<'s> {
    /// The document's node; none when the file is empty.
    pub(crate) const fn root(&self) -> Option<NodeId> {
        self.root
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node<'s> {
        &self.nodes[id.0 as usize]
    }

    /// A list's items.
    pub(crate) fn items(&self, children: Children) -> &[NodeId] {
        let start = children.start as usize;
        let items = self.children.get(start..start + children.count as usize);
        items.unwrap_or_default()
    }

    /// A mapping's keys and values.
    pub(crate) fn pairs(
        &self,
        children: Children,
    ) -> impl Iterator<Item = (NodeId, NodeId)> + Clone + '_ {
        let pairs = self.items(children).chunks_exact(2);
        pairs.map(|pair| (pair[0], pair[1]))
    }

    pub(crate) fn spot(&self, id: NodeId) -> Spot {
        self.node(id).spot
    }

    pub(crate) fn scalar(&self, id: NodeId) -> Option<&Scalar<'s>> {
        match &self.node(id).kind {
            Kind::Scalar(scalar) => Some(scalar),
            Kind::Sequence(_) | Kind::Mapping(_) => None,
        }
    }

    /// Whether the node says "nothing here".
    pub(crate) fn is_null(&self, id: NodeId) -> bool {
        self.scalar(id).is_some_and(|scalar| scalar.plain() == Plain::Null)
    }

    /// Whether the key of a pair asks for the other mapping's pairs.
    pub(crate) fn is_merge(&self, key: NodeId) -> bool {
        self.scalar(key).is_some_and(|scalar| scalar.style == Style::Plain && scalar.text == "<<")
    }

    /// What a node is, for messages.
    pub(crate) fn describe(&self, id: NodeId) -> &'static str {
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
    pub(crate) fn plain(&self) -> Plain {
        match self.style {
            Style::Plain => Plain::of(&self.text),
            Style::Text => Plain::Text,
        }
    }
}
