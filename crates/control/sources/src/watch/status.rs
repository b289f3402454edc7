//! The status of a watch: the active texts and the last failure.
//!
//! A status is immutable; the watch replaces it as a whole.

use std::sync::Arc;
use std::time::SystemTime;

use tidegate_rules::{Problem, Report, Source};

use crate::source::LoadError;

/// The status of a watch.
#[derive(Clone, Debug, Default)]
pub struct WatchStatus {
    /// The texts in use; none until the first good load.
    pub active: Option<Arc<ActiveTexts>>,
    /// The last failure, even if it was fixed since.
    pub failure: Option<Arc<ReloadFailure>>,
    /// Whether the texts at the source are others than those in use, as of the last look.
    /// They are others only when they cannot be used: [`failure`](Self::failure) says why.
    pub differs: bool,
    /// How many times texts were activated.
    pub published: u64,
    /// How many changes could not be used. Unchanged texts count once.
    pub failed: u64,
    /// How many times the source was loaded.
    pub looks: u64,
    /// Why only polling finds changes, if events do not work.
    pub polling: Option<Arc<str>>,
    pub(super) answered: Ticket,
}

impl WatchStatus {
    /// Whether the requested reload is done.
    pub fn answers(&self, ticket: Ticket) -> bool {
        self.answered >= ticket
    }

    /// The failure of the current texts at the source.
    pub fn current_failure(&self) -> Option<&ReloadFailure> {
        self.failure.as_deref().filter(|_| self.differs)
    }
}

/// A requested reload. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// The texts in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveTexts {
    /// Their version; of rules, that of the snapshot.
    pub version: u64,
    /// When they became active.
    pub loaded_at: SystemTime,
    /// The texts themselves.
    pub sources: Vec<Source>,
    /// Warnings about valid texts.
    pub warnings: Vec<Problem>,
}

/// Texts that could not be used.
#[derive(Debug)]
pub struct ReloadFailure {
    /// When it was found.
    pub at: SystemTime,
    /// The error.
    pub error: ReloadError,
}

/// Why texts could not be used. Displays all diagnostics.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// They could not be read.
    #[error(transparent)]
    Load(LoadError),
    /// They are invalid.
    #[error(transparent)]
    Wrong(Report),
    /// A panic in our code while they were read or activated.
    #[error("internal error: {0}")]
    Defect(String),
}

/// An event for the log.
#[derive(Clone, Copy, Debug)]
pub enum WatchEvent<'a> {
    /// New texts are in use.
    Published(&'a ActiveTexts),
    /// Changed texts cannot be used; those in use stay.
    Failed(&'a ReloadFailure),
    /// The source has the active texts again.
    Restored(&'a ActiveTexts),
    /// Events stopped for this reason: only polling finds changes.
    Polling(&'a str),
    /// File system events work again.
    EventsResumed,
}
