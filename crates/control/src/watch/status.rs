//! What is known of the rules: which are in use, and what went wrong last.
//!
//! A status is a value that does not change; the watch replaces it as a whole.
//! Readers hold one as long as they like.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use tidegate_rules::{Problem, Report, Source};

use crate::source::LoadError;

/// What a watch knows of its rules.
#[derive(Clone, Debug, Default)]
pub struct RuleStatus {
    /// The rules in use; none until the first good load.
    pub active: Option<Arc<ActiveRules>>,
    /// What went wrong last, also when it was mended since.
    pub failure: Option<Arc<ReloadFailure>>,
    /// Whether the rules at the source are others than those in use, as of the last look.
    /// They are others only when they cannot be used: [`failure`](Self::failure) says why.
    pub differs: bool,
    /// How many snapshots were published.
    pub published: u64,
    /// How many changes could not be used. The same again is not counted.
    pub failed: u64,
    /// How many times the source was looked at.
    pub looks: u64,
    /// Why there are no events, if there are none: changes are found by polling.
    pub polling: Option<Arc<str>>,
    pub(super) answered: Ticket,
}

impl RuleStatus {
    /// Whether the load that was asked for has been done.
    pub fn answers(&self, ticket: Ticket) -> bool {
        self.answered >= ticket
    }

    /// What is wrong with the rules at the source as they are now.
    pub fn current_failure(&self) -> Option<&ReloadFailure> {
        self.failure.as_deref().filter(|_| self.differs)
    }
}

/// A load that somebody asked for. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// The rules in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveRules {
    /// The version of the snapshot.
    pub version: u64,
    /// When it was published.
    pub loaded_at: SystemTime,
    /// The texts that it was compiled from.
    pub sources: Vec<Source>,
    /// What is probably not as meant, though it works.
    pub warnings: Vec<Problem>,
}

/// Rules that could not be used.
#[derive(Debug)]
pub struct ReloadFailure {
    /// When it was found.
    pub at: SystemTime,
    /// What is wrong.
    pub error: ReloadError,
}

/// Why rules could not be used. Prints as the whole of its diagnostics.
#[derive(Debug)]
pub enum ReloadError {
    /// They could not be had.
    Load(LoadError),
    /// They are wrong.
    Rules(Report),
    /// Reading, compiling or publishing them broke: a defect, not the rules' fault.
    Defect(String),
}

impl std::error::Error for ReloadError {}

impl fmt::Display for ReloadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::Load(error) => write!(out, "{error}"),
            ReloadError::Rules(report) => write!(out, "{report}"),
            ReloadError::Defect(words) => write!(out, "a defect came to light: {words}"),
        }
    }
}

/// Something that operators want to know when it happens.
#[derive(Clone, Copy, Debug)]
pub enum WatchEvent<'a> {
    /// New rules are in use.
    Published(&'a ActiveRules),
    /// Changed rules cannot be used; those in use stay.
    Failed(&'a ReloadFailure),
    /// What could not be used is gone: the source has the rules in use again.
    Restored(&'a ActiveRules),
    /// There are no events any more, for this reason: changes are found by polling.
    Polling(&'a str),
    /// There are events again.
    Noticing,
}
