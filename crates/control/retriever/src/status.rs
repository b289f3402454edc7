//! What a retriever runs, and how its last beats ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

/// Where the snapshot that runs was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// From the source.
    Source,
    /// From the kept copy, at the start.
    KeptCopy,
}

/// How a beat ended, in one word: `new` or `same`, or why nothing was accepted (`unreachable`, `size`, `format`,
/// `signature`, `cell`, `older`, `hash`, `content`, `rules`).
pub type BeatOutcome = &'static str;

/// The snapshot that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningSnapshot {
    /// Its epoch.
    pub epoch: u64,
    /// Its sequence.
    pub sequence: u64,
    /// The version of its content.
    pub version: u64,
    /// The BLAKE3 of its content, in hexadecimal.
    pub content: String,
    /// When it was published, in milliseconds since the epoch.
    pub published_at: u64,
    /// When its content was read from the database, in milliseconds since the epoch.
    pub content_at: u64,
    /// The number of rows.
    pub rows: u64,
    /// The most rows of its class.
    pub rows_max: u64,
    /// Where it was read.
    pub origin: Origin,
}

/// The state of a retriever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RetrieverStatus {
    /// The snapshot that runs, if there is one.
    pub running: Option<RunningSnapshot>,
    /// The time since a higher sequence was accepted, by the steady clock of this process.
    pub age: Option<Duration>,
    /// The time between two reads.
    pub beat: Duration,
    /// How the last beat ended; none before the first.
    pub last_outcome: Option<BeatOutcome>,
    /// Why the last beat accepted nothing, if so.
    pub last_error: Option<String>,
    /// Why the last good snapshot could not be kept on disk, if so.
    pub keep_error: Option<String>,
    /// How many beats ended in which way.
    pub beats: BTreeMap<BeatOutcome, u64>,
    /// The time that the work of the last beat took.
    pub last_work: Duration,
}

impl RetrieverStatus {
    /// Whether no higher sequence came for three beats: the source, the publisher or the network stands still.
    pub fn is_stale(&self) -> bool {
        self.age.is_none_or(|age| age > self.beat.saturating_mul(3))
    }
}

/// Reads the state of a retriever. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RetrieverHandle {
    pub(crate) shared: Arc<SharedStatus>,
}

#[derive(Debug, Default)]
pub(crate) struct SharedStatus {
    pub(crate) status: Mutex<RetrieverStatus>,
    /// When a higher sequence was accepted last, since the start.
    pub(crate) accepted_at: Mutex<Option<Duration>>,
    pub(crate) started: crate::worker::StartInstant,
}

impl RetrieverHandle {
    /// The state now.
    pub fn status(&self) -> RetrieverStatus {
        let accepted_at = *self.shared.accepted_at.lock();
        let age = accepted_at.map(|at| self.shared.started.elapsed().saturating_sub(at));
        RetrieverStatus { age, ..self.shared.status.lock().clone() }
    }
}
