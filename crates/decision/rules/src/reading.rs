//! Reading YAML so that every fault can be told with its place.
//!
//! What rule files are read with, for other files that people write: a tree in
//! which every node knows where it is, and faults that are collected and shown
//! with their line and what would be right. What the keys mean is the reader's
//! own business; nothing here knows of rules.
//!
//! ```
//! use tidegate_rules::Source;
//! use tidegate_rules::reading::{Fault, Problems, parse};
//!
//! let sources = [Source::new("a.yaml", "colour: red\n")];
//! let mut problems = Problems::new(&sources);
//! let yaml = parse(0, &sources[0].text, &mut problems).expect("it is YAML");
//! for (key, _) in yaml.merged_pairs(yaml.root().expect("it is not empty")).pairs {
//!     problems.error(yaml.spot(key), Fault::new("unknown_key", "nobody knows this key"));
//! }
//! assert!(problems.into_report().to_string().contains("--> a.yaml:1:1"));
//! ```

pub use crate::diagnostics::{Fault, Problems, Spot, closest, one_of};
pub use crate::document::parse_duration;
pub use crate::yaml::{
    Children, Kind, MergedPairs, Node, NodeId, Plain, Scalar, Style, Yaml, parse,
};
