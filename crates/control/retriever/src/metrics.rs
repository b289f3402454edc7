//! The metrics of a retriever.

use tidegate_metrics::{Collector, Exposition};

use crate::status::RetrieverHandle;

tidegate_metrics::metrics! {
    /// The metrics of [`RetrieverHandle`].
    pub RETRIEVER_METRICS:
    AGE = Gauge "tidegate_snapshot_age_seconds" []
        "Seconds since a snapshot with a higher sequence was accepted. Left out before the first.";
    BEATS = Counter "tidegate_snapshot_beats_total" ["outcome"]
        "Reads of snapshots by outcome.";
    STALE = Gauge "tidegate_snapshot_stale" []
        "1 while no higher sequence has come for three beats.";
    VERSION = Gauge "tidegate_snapshot_version" []
        "The version of the content that runs.";
    SEQUENCE = Gauge "tidegate_snapshot_sequence" []
        "The sequence of the snapshot that runs.";
    EPOCH = Gauge "tidegate_snapshot_epoch" []
        "The epoch of the snapshot that runs.";
    ROWS = Gauge "tidegate_snapshot_rows" []
        "Rows of the snapshot that runs.";
    CAPACITY = Gauge "tidegate_snapshot_rows_max" []
        "The most rows that the class of the cell holds.";
    KEEP_FAILED = Gauge "tidegate_snapshot_keep_failed" []
        "1 while the last good snapshot could not be kept on disk.";
}

impl Collector for RetrieverHandle {
    fn collect(&self, out: &mut Exposition) {
        let status = self.status();
        if let Some(age) = status.age {
            out.single(AGE, age.as_secs());
        }
        out.by_label(BEATS, status.beats.iter().map(|(outcome, beats)| (*outcome, *beats)));
        out.single(STALE, u8::from(status.is_stale()));
        if let Some(running) = &status.running {
            out.single(VERSION, running.version);
            out.single(SEQUENCE, running.sequence);
            out.single(EPOCH, running.epoch);
            out.single(ROWS, running.rows);
            out.single(CAPACITY, running.rows_max);
        }
        out.single(KEEP_FAILED, u8::from(status.keep_error.is_some()));
    }
}
