//! Finding the rule for a request's entries.
//!
//! The tree of descriptors lives in a few flat tables for a whole domain: one
//! that knows the keys, one keyed by (node, key), one keyed by (node, key,
//! value). A step down the tree is one look-up in each, whatever the number of
//! rules, and builds no strings. Patterns and address ranges have indexes of
//! their own. Which limits apply is not known here.

mod pattern;
mod range;
mod tree;

pub(crate) use tree::{CountBy, NodeId, Step, Taken, Tree, TreeBuilder, Via};
