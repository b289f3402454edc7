//! The rule language: text → document → compiled tree → matched limits.
//!
//! A superset of the YAML of envoyproxy/ratelimit. [`compile`] turns rule files into a [`Snapshot`], or reports every
//! problem of every file at once. A snapshot is immutable; [`Domain::find`] finds the rule for a request at a cost that
//! does not depend on the number of rules.
//!
//! ```
//! use tidegate_rules::{Entry, Options, Source, Timestamp, compile};
//!
//! let rules = "
//! domain: api
//! descriptors:
//! - key: user
//!   rate_limit: {unit: minute, requests_per_unit: 100}
//! ";
//! let snapshot = compile(&[Source::new("api.yaml", rules)], &Options::default())?;
//! let domain = snapshot.domain("api").expect("the file declares it");
//! let found = domain.find(&[Entry { key: "user", value: "alice" }], Timestamp::EPOCH).expect("a rule matches");
//! assert_eq!(found.rule.path(), "user");
//! # Ok::<(), tidegate_rules::Report>(())
//! ```
//!
//! `table` declares every key; `document` turns what was read into typed rules; `compile` builds the tree. Pure: no
//! files, no network, no clock. The engine counts and decides.

mod options;

mod choices;
mod dialect;
mod kinds;
mod table;
mod terms;

mod address;
mod document;

mod identity;
mod matching;
mod rule;
mod snapshot;

mod compile;
mod explain;
mod row_file;
mod schema;
mod upstream;

pub use choices::{AlgorithmName, RefusalStatus, Unit, WhenOver};
pub use compile::{compile, compile_with_rows};
pub use explain::{Attempt, Explanation, LevelExplanation, MatchOutcome};
pub use matching::Way;
pub use options::{Options, SOURCE_BYTES_MAX};
pub use row_file::{ROWS_BYTES_MAX, is_row_file, named_row_files};
pub use rule::{
    AddressMatch, Exemption, Level, LimitId, NameId, Rule, RuleId, RuleLimit, ShownValue,
};
pub use schema::schema;
pub use snapshot::{Domain, Entry, KeyValue, MatchedRule, Snapshot, Values};
pub use terms::{TermsError, canonical_terms};
pub use tidegate_algorithms::{
    Charge, Consistency, Mode, OnStoreError, Percent, RoundingMode, Timestamp,
};
pub use tidegate_document::{
    PROBLEMS_MAX, Problem, RelatedLocation, Report, Severity, Snippet, Source, closest,
};
pub use tidegate_row_table::{Minute, RowTable, Rows, TERMS_MAX, TableName, TermsText};
pub use upstream::upstream_error;
