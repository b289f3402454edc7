//! Why the control plane cannot do something.

use serde::Serialize;
use tidegate_data_dir::DataDirError;
use tidegate_rules::Report;

use crate::entry::{Entry, EntryKey};

/// A fault in what somebody sent, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputProblem {
    /// Where: `changes[3].until`, or the name of a document.
    pub place: String,
    /// The line in the document, from 1; absent outside documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The column in that line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl InputProblem {
    /// A fault outside documents.
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        InputProblem {
            place: place.into(),
            line: None,
            column: None,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The errors of rule documents.
    pub fn of_report(report: &Report) -> Vec<Self> {
        let problem = |problem: &tidegate_rules::Problem| InputProblem {
            place: problem.file.clone(),
            line: Some(problem.line),
            column: Some(problem.column),
            message: problem.message.clone(),
            hint: problem.hint.clone(),
        };
        report.problems().iter().map(problem).collect()
    }
}

/// Why the control plane cannot do something.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// What was sent is wrong. Nothing of it was applied.
    #[error("{} in what was sent; nothing was applied", count_problems(.0.len()))]
    Invalid(Vec<InputProblem>),
    /// There is no such thing.
    #[error("there is no {0}")]
    NotFound(String),
    /// The entry is not as the caller expected it. Nothing was applied.
    #[error("{key} was changed meanwhile: it {}; read it again and repeat the change", state_of(.found.as_deref()))]
    Stale {
        /// The entry.
        key: EntryKey,
        /// As it is now; `None` if it does not exist.
        found: Option<Box<Entry>>,
    },
    /// The database has moved on since the version that the caller based a change on.
    #[error(
        "the rules are at version {found}, not {expected}: compare again and repeat the change"
    )]
    OldBase {
        /// The caller's version.
        expected: u64,
        /// The newest version.
        found: u64,
    },
    /// The request does not say which state it changes.
    #[error(
        "say which state is changed: `If-Match` with the entry's ETag, or `If-None-Match: *` to create it"
    )]
    NoPrecondition,
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// It conflicts with what is there.
    #[error("{0}")]
    Conflict(String),
    /// A maximum is reached.
    #[error("{0}")]
    Full(String),
    /// The database has no room.
    #[error("{0}")]
    StorageFull(String),
    /// The database cannot be reached now. Whether the change was stored is not known.
    #[error("the rules database is unavailable: {0}")]
    Unavailable(String),
    /// The database holds something that this program did not write.
    #[error("the rules database is damaged: {0}")]
    Damaged(String),
}

impl PlaneError {
    /// One fault at one place.
    pub fn invalid(place: impl Into<String>, message: impl Into<String>) -> Self {
        PlaneError::Invalid(vec![InputProblem::new(place, message)])
    }

    /// Whether the transaction around it may go on: the operation ended before its first change, or its savepoint
    /// takes it back.
    pub(crate) const fn is_answer(&self) -> bool {
        !matches!(
            self,
            PlaneError::Unavailable(_) | PlaneError::Damaged(_) | PlaneError::StorageFull(_)
        )
    }
}

impl From<DataDirError> for PlaneError {
    fn from(error: DataDirError) -> Self {
        match error {
            DataDirError::Damaged { .. } => PlaneError::Damaged(error.to_string()),
            DataDirError::StorageFull { .. } => PlaneError::StorageFull(error.to_string()),
            error => PlaneError::Unavailable(error.to_string()),
        }
    }
}

fn count_problems(count: usize) -> String {
    match count {
        1 => "there is 1 problem".to_owned(),
        count => format!("there are {count} problems"),
    }
}

fn state_of(found: Option<&Entry>) -> String {
    match found {
        Some(entry) => format!("is at version {}, set by {}", entry.version, entry.set_by),
        None => "does not exist".to_owned(),
    }
}
