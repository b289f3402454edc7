//! What the door shows of the rules in place.
//!
//! Loading rules is somebody else's work; whoever does it says here what was
//! loaded, from which text, and what went wrong last.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tidegate_engine::{Domain, Report, Snapshot, Source, Timestamp};
use tidegate_rules::Problem;

use super::encode::Version;

/// Knows how the rules in place came to be.
pub trait RulesView: Send + Sync {
    /// As of now.
    fn status(&self) -> RulesStatus;
}

impl<F: Fn() -> RulesStatus + Send + Sync> RulesView for F {
    fn status(&self) -> RulesStatus {
        self()
    }
}

/// How the rules in place came to be.
#[derive(Clone, Debug, Default)]
pub struct RulesStatus {
    /// When they were loaded; `None` before the first time.
    pub loaded_at: Option<Timestamp>,
    /// Their texts.
    pub sources: Arc<[Source]>,
    /// The last attempt to load, if it failed: the rules in place are older.
    pub failure: Option<Arc<RulesFailure>>,
}

/// Rules that could not be loaded.
#[derive(Clone, Debug)]
pub struct RulesFailure {
    /// When it was tried.
    pub at: Timestamp,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What is wrong with the texts, if they could be had.
    pub report: Option<Report>,
}

/// The rules in place, as JSON.
pub(super) fn write(snapshot: &Snapshot, status: &RulesStatus) -> Vec<u8> {
    let sources = status.sources.iter();
    let told = RulesTold {
        version: Version(snapshot.version()),
        loaded_at_ms: status.loaded_at.map(millis),
        domains: snapshot.domains().map(Domain::name).collect(),
        rules: snapshot.rules().len(),
        limits: snapshot.limits().len(),
        sources: sources.map(|Source { name, text }| SourceTold { name, text }).collect(),
        warnings: snapshot.warnings(),
        last_failure: status.failure.as_deref().map(|failure| FailureTold {
            at_ms: millis(failure.at),
            message: &failure.message,
            problems: failure.report.as_ref().map(Report::problems).unwrap_or_default(),
            omitted: failure.report.as_ref().map(Report::omitted).unwrap_or_default(),
        }),
    };
    // Strings and numbers always serialize.
    serde_json::to_vec(&told).unwrap_or_default()
}

#[derive(Serialize)]
struct RulesTold<'s> {
    version: Version,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at_ms: Option<u64>,
    domains: Vec<&'s str>,
    rules: usize,
    limits: usize,
    sources: Vec<SourceTold<'s>>,
    warnings: &'s [Problem],
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<FailureTold<'s>>,
}

#[derive(Serialize)]
struct SourceTold<'s> {
    name: &'s str,
    text: &'s str,
}

#[derive(Serialize)]
struct FailureTold<'s> {
    at_ms: u64,
    message: &'s str,
    problems: &'s [Problem],
    omitted: usize,
}

/// Milliseconds since the Unix epoch.
const fn millis(at: Timestamp) -> u64 {
    at.as_nanos() / 1_000_000
}

impl fmt::Debug for dyn RulesView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RulesView")
    }
}
