//! Finding the rule for a request's entries.
//!
//! The tree of descriptors is stored in a few flat tables for a whole domain. A step down the tree is one lookup by key
//! and, where the key has literal values, one by value, whatever the number of rules and of values; it builds no strings.
//! Patterns and address ranges have their own indexes. This module does not know the limits of rules.

mod build;
mod literals;
mod pattern;
mod range;
mod tree;

pub(crate) use build::{EarlierNode, TreeBuilder};
pub use tree::Way;
pub(crate) use tree::{CountBy, Edge, End, Fork, NodeId, Tree, same};
