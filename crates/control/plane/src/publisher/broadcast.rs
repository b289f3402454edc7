//! What the service shows of the publisher: the newest file of each ring, its status, its metrics.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidegate_metrics::{Collector, Exposition};

use super::BeatOutcome;

tidegate_metrics::metrics! {
    /// The metrics of a control node.
    pub PUBLISHER_METRICS:
    BEATS = Counter "tidegate_control_beats_total" ["outcome"]
        "Beats of the publisher: published, waiting (another process publishes), failed.";
    VERSION = Gauge "tidegate_control_published_version" []
        "The version that was published last.";
    SEQUENCE = Gauge "tidegate_control_published_sequence" []
        "The sequence that was published last.";
    ROWS = Gauge "tidegate_control_published_rows" []
        "The rows that were published last.";
    REFUSED = Gauge "tidegate_control_refused" []
        "1 while a guard keeps the newest version from being published.";
    TARGETS_FAILED = Gauge "tidegate_control_targets_failed" []
        "Targets that could not be written in the last beat.";
}

/// A place that files are written to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Its name.
    pub target: String,
    /// Why the last file could not be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The publisher of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherStatus {
    /// Whether this process holds the lease.
    pub publishes: bool,
    /// The ring.
    pub ring: String,
    /// The epoch of the last file.
    pub epoch: u64,
    /// Its sequence.
    pub sequence: u64,
    /// Its fence.
    pub fence: u64,
    /// Its version.
    pub version: u64,
    /// Its rows.
    pub rows: u64,
    /// The hash of its content, in hexadecimal.
    pub content: String,
    /// When it was made: RFC 3339 in UTC.
    pub published_at: String,
    /// When its content was read from the database.
    pub content_at: String,
    /// Why the newest version is not published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Why the last beat failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Where files are written.
    pub targets: Vec<TargetStatus>,
}

#[derive(Debug, Default)]
struct Latest {
    snapshots: HashMap<String, Bytes>,
    status: PublisherStatus,
    published: u64,
    waiting: u64,
    failed: u64,
}

/// The newest file of each ring in memory, and the publisher's status.
#[derive(Debug, Default)]
pub struct Broadcast(Mutex<Latest>);

impl Broadcast {
    /// The newest file of a ring.
    pub fn snapshot(&self, ring: &str) -> Option<Bytes> {
        self.0.lock().snapshots.get(ring).cloned()
    }

    /// The publisher of this process.
    pub fn status(&self) -> PublisherStatus {
        self.0.lock().status.clone()
    }

    pub(super) fn publish(&self, ring: &str, snapshot: Bytes, status: PublisherStatus) {
        let mut latest = self.0.lock();
        latest.snapshots.insert(ring.to_owned(), snapshot);
        let refused = latest.status.refused.take();
        latest.status = PublisherStatus { refused, ..status };
    }

    pub(super) fn refused(&self, reason: Option<String>) {
        self.0.lock().status.refused = reason;
    }

    pub(super) fn ended(&self, outcome: &BeatOutcome) {
        let mut latest = self.0.lock();
        latest.status.error = None;
        match outcome {
            BeatOutcome::Published { .. } => latest.published += 1,
            BeatOutcome::Waiting => {
                latest.waiting += 1;
                latest.status.publishes = false;
                // Nodes that read here must not take an old file for the present.
                latest.snapshots.clear();
            }
            BeatOutcome::Failed(error) => {
                latest.failed += 1;
                latest.status.error = Some(error.clone());
            }
        }
    }
}

impl Collector for Broadcast {
    fn collect(&self, out: &mut Exposition) {
        let latest = self.0.lock();
        let mut beats = out.family(BEATS);
        beats.sample(&["published"], latest.published);
        beats.sample(&["waiting"], latest.waiting);
        beats.sample(&["failed"], latest.failed);
        let status = &latest.status;
        out.single(VERSION, status.version);
        out.single(SEQUENCE, status.sequence);
        out.single(ROWS, status.rows);
        out.single(REFUSED, u64::from(status.refused.is_some()));
        let failed = status.targets.iter().filter(|target| target.error.is_some()).count();
        out.single(TARGETS_FAILED, failed);
    }
}
