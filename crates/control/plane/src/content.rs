//! Rule documents and plans as rule files, and their check.

use serde_json::json;
use tidegate_row_table::Rows;
use tidegate_rules::{Options, Severity, Snapshot, Source, compile_with_rows};

use crate::entry::{Entry, EntryKind};
use crate::error::InputProblem;

/// The most bytes of all rule files together.
pub const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The rule files of a version: the documents as they are, and one file for each plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleTexts(Vec<(String, String)>);

impl RuleTexts {
    /// The documents and plans among these entries.
    pub fn of_entries(entries: &[Entry]) -> Self {
        let text = |entry: &Entry| match entry.key.kind {
            EntryKind::Document => Some((entry.key.name.clone(), entry.text("text"))),
            EntryKind::Plan => {
                let (domain, name) = (&entry.key.collection, &entry.key.name);
                let file = json!({ "domain": domain, "plans": { name: entry.value() } });
                Some((format!("plans/{domain}/{name}.yaml"), file.to_string()))
            }
            _ => None,
        };
        RuleTexts(entries.iter().filter_map(text).collect())
    }

    /// Name and text of each file, in the order of the entries.
    pub fn files(&self) -> &[(String, String)] {
        &self.0
    }

    /// The bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(_, text)| text.len()).sum()
    }
}

/// The domain and the table of a collection of rows: the table is what follows the last `/`.
pub fn split_collection(collection: &str) -> Option<(&str, &str)> {
    let (domain, table) = collection.rsplit_once('/')?;
    (!domain.is_empty() && !table.is_empty()).then_some((domain, table))
}

/// Compiles rule files with rows as the servers do.
///
/// # Errors
/// Every problem, with its file, line and column.
pub fn check_rules(texts: &RuleTexts, rows: &Rows) -> Result<Snapshot, Vec<InputProblem>> {
    if texts.bytes() > TEXT_BYTES_MAX {
        let what = format!("all documents together have up to {TEXT_BYTES_MAX} bytes");
        return Err(vec![InputProblem::new("documents", what)]);
    }
    let sources: Vec<Source> = texts.0.iter().map(|(name, text)| Source::new(name, text)).collect();
    compile_with_rows(&sources, rows, &Options::default()).map_err(|report| {
        let errors = report.problems().iter().any(|one| one.severity == Severity::Error);
        let mut problems = InputProblem::of_report(&report);
        if !errors || problems.is_empty() {
            problems.push(InputProblem::new("documents", "the rules cannot be compiled"));
        }
        problems
    })
}
