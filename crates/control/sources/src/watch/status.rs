//! What is known of the texts: which are in use, and what went wrong last.
//!
//! A status is a value that does not change; the watch replaces it as a whole.
//! Readers hold one as long as they like.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use tidegate_rules::{Problem, Report, Source};

use crate::source::LoadError;

/// What a watch knows of its texts.
#[derive(Clone, Debug, Default)]
pub struct WatchStatus {
    /// The texts in use; none until the first good load.
    pub active: Option<Arc<ActiveTexts>>,
    /// What went wrong last, also when it was mended since.
    pub failure: Option<Arc<ReloadFailure>>,
    /// Whether the texts at the source are others than those in use, as of the last look.
    /// They are others only when they cannot be used: [`failure`](Self::failure) says why.
    pub differs: bool,
    /// How many times texts were put in place.
    pub published: u64,
    /// How many changes could not be used. The same again is not counted.
    pub failed: u64,
    /// How many times the source was looked at.
    pub looks: u64,
    /// Why there are no events, if there are none: changes are found by polling.
    pub polling: Option<Arc<str>>,
    pub(super) answered: Ticket,
}

impl WatchStatus {
    /// Whether the load that was asked for has been done.
    pub fn answers(&self, ticket: Ticket) -> bool {
        self.answered >= ticket
    }

    /// What is wrong with the texts at the source as they are now.
    pub fn current_failure(&self) -> Option<&ReloadFailure> {
        self.failure.as_deref().filter(|_| self.differs)
    }
}

/// A load that somebody asked for. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// The texts in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveTexts {
    /// Their version; of rules, that of the snapshot.
    pub version: u64,
    /// When they were put in place.
    pub loaded_at: SystemTime,
    /// The texts themselves.
    pub sources: Vec<Source>,
    /// What is probably not as meant, though it works.
    pub warnings: Vec<Problem>,
}

/// Texts that could not be used.
#[derive(Debug)]
pub struct ReloadFailure {
    /// When it was found.
    pub at: SystemTime,
    /// What is wrong.
    pub error: ReloadError,
}

/// Why texts could not be used. Prints as the whole of its diagnostics.
#[derive(Debug)]
pub enum ReloadError {
    /// They could not be had.
    Load(LoadError),
    /// They are wrong.
    Wrong(Report),
    /// Reading them or putting them in place broke: a defect, not their fault.
    Defect(String),
}

impl std::error::Error for ReloadError {}

impl fmt::Display for ReloadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::Load(error) => write!(out, "{error}"),
            ReloadError::Wrong(report) => write!(out, "{report}"),
            ReloadError::Defect(words) => write!(out, "a defect came to light: {words}"),
        }
    }
}

/// Something that operators want to know when it happens.
#[derive(Clone, Copy, Debug)]
pub enum WatchEvent<'a> {
    /// New texts are in use.
    Published(&'a ActiveTexts),
    /// Changed texts cannot be used; those in use stay.
    Failed(&'a ReloadFailure),
    /// What could not be used is gone: the source has the texts in use again.
    Restored(&'a ActiveTexts),
    /// There are no events any more, for this reason: changes are found by polling.
    Polling(&'a str),
    /// There are events again.
    Noticing,
}
