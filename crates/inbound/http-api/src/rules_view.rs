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
    pub failure: Option<Arc<LoadFailure>>,
}

/// An attempt to load rules, or another document, that failed.
#[derive(Clone, Debug, Serialize)]
pub struct LoadFailure {
    at_ms: u64,
    message: String,
    problems: Vec<Problem>,
    omitted: usize,
}

impl LoadFailure {
    /// When loading failed, why, and the problems of the texts if they could be read.
    pub fn new(at: Timestamp, message: impl Into<String>, report: Option<&Report>) -> Self {
        LoadFailure {
            at_ms: at.as_millis(),
            message: message.into(),
            problems: report.map(Report::problems).unwrap_or_default().to_vec(),
            omitted: report.map(Report::omitted).unwrap_or_default(),
        }
    }
}

/// The rules in place, as JSON.
pub(super) fn write(snapshot: &Snapshot, status: &RulesStatus) -> Vec<u8> {
    let sources = status.sources.iter();
    let body = RulesBody {
        version: Version(snapshot.version()),
        loaded_at_ms: status.loaded_at.map(Timestamp::as_millis),
        domains: snapshot.domains().map(Domain::name).collect(),
        rules: snapshot.rules().len(),
        limits: snapshot.limits().len(),
        sources: sources.map(|Source { name, text }| SourceBody { name, text }).collect(),
        warnings: snapshot.warnings(),
        last_failure: status.failure.as_deref(),
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
    last_failure: Option<&'s LoadFailure>,
}

#[derive(Serialize)]
struct SourceBody<'s> {
    name: &'s str,
    text: &'s str,
}
