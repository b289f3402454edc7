//! The rule language: text → document → compiled tree → matched limits.
//!
//! A superset of the YAML of envoyproxy/ratelimit. [`compile`] turns rule files
//! into a [`Snapshot`], or says everything that is wrong with them at once. A
//! snapshot is immutable; [`Domain::find`] finds the rule for a request at a cost
//! that does not depend on the number of rules.
//!
//! Pure: no files, no network, no clock. Counting, and what a refusal does, is
//! the engine's work.

mod source;

mod choices;
mod diagnostics;
mod vocabulary;

mod yaml;

mod address;
mod document;

pub mod reading;

mod identity;
mod matching;
mod rule;
mod snapshot;

mod compile;
mod explain;
mod schema;

pub use choices::{
    AlgorithmName, Charge, Consistency, Mode, OnStoreError, RefusalStatus, Unit, WhenOver,
};
pub use compile::compile;
pub use diagnostics::{PROBLEMS_MAX, Problem, Related, Report, Severity, Snippet, closest};
pub use explain::{Attempt, Ending, Explanation, LevelExplanation, Way};
pub use rule::{Exemption, Level, LimitId, NameId, Rule, RuleId, RuleLimit, Shown};
pub use schema::schema;
pub use snapshot::{Domain, Entry, Found, KeyValue, Snapshot, Values};
pub use source::{Options, SOURCE_BYTES_MAX, Source};
