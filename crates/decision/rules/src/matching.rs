//! Finding the rule for a request's entries.
//!
//! The tree of descriptors lives in a few flat tables for a whole domain. A step
//! down the tree is one look-up by key and, where the key has values of its own,
//! one by value, whatever the number of rules and of values; it builds no strings. Patterns
//! and address ranges have indexes of their own. Which limits a rule has is not
//! known here.

mod build;
mod literals;
mod pattern;
mod range;
mod tree;

pub(crate) use build::{EarlierNode, TreeBuilder};
pub use tree::Way;
pub(crate) use tree::{CountBy, Edge, End, Fork, NodeId, Tree, same};
