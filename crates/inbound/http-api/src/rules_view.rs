//! `/v1/rules`: the rules in place, their texts, and the last error.
//!
//! Another crate loads the rules and supplies a [`RulesView`].

use std::sync::Arc;

use serde::Serialize;
use tidegate_engine::{Domain, Report, Snapshot, Source, Timestamp};
use tidegate_rules::Problem;

use super::encode::Version;
use super::encode::response::to_json;

/// Returns the status now.
pub type RulesView = Arc<dyn Fn() -> RulesStatus + Send + Sync>;

/// Where the rules in place come from.
#[derive(Clone, Debug, Default)]
pub struct RulesStatus {
    /// When they were loaded; `None` before the first load.
    pub loaded_at: Option<Timestamp>,
    /// Their texts.
    pub sources: Arc<[Source]>,
    /// The last attempt to load, if it failed: the rules in place are older.
    pub failure: Option<Arc<RulesFailure>>,
}

/// Rules that could not be loaded.
#[derive(Clone, Debug)]
pub struct RulesFailure {
    /// When loading failed.
    pub at: Timestamp,
    /// The error, as one sentence.
    pub message: String,
    /// The problems of the texts, if they could be read.
    pub report: Option<Report>,
}

/// The rules in place, as JSON.
pub(super) fn write(snapshot: &Snapshot, status: &RulesStatus) -> Vec<u8> {
    let sources = status.sources.iter();
    let body = RulesBody {
        version: Version(snapshot.version()),
        loaded_at_ms: status.loaded_at.map(millis),
        domains: snapshot.domains().map(Domain::name).collect(),
        rules: snapshot.rules().len(),
        limits: snapshot.limits().len(),
        sources: sources.map(|Source { name, text }| SourceBody { name, text }).collect(),
        warnings: snapshot.warnings(),
        last_failure: status.failure.as_deref().map(|failure| FailureBody {
            at_ms: millis(failure.at),
            message: &failure.message,
            problems: failure.report.as_ref().map(Report::problems).unwrap_or_default(),
            omitted: failure.report.as_ref().map(Report::omitted).unwrap_or_default(),
        }),
    };
    to_json(&body)
}

#[derive(Serialize)]
struct RulesBody<'s> {
    version: Version,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at_ms: Option<u64>,
    domains: Vec<&'s str>,
    rules: usize,
    limits: usize,
    sources: Vec<SourceBody<'s>>,
    warnings: &'s [Problem],
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<FailureBody<'s>>,
}

#[derive(Serialize)]
struct SourceBody<'s> {
    name: &'s str,
    text: &'s str,
}

#[derive(Serialize)]
struct FailureBody<'s> {
    at_ms: u64,
    message: &'s str,
    problems: &'s [Problem],
    omitted: usize,
}

/// Milliseconds since the Unix epoch.
const fn millis(at: Timestamp) -> u64 {
    at.as_nanos() / 1_000_000
}
