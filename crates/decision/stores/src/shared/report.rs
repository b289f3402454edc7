//! Reports the counts of eventual limits to this region and to the others.
//!
//! A report is idempotent, so it is repeated until it is answered, and it may serve as the probe of an open breaker: one
//! that gets lost costs nothing.

use tidegate_algorithms::Timestamp;
use tokio::time::Instant;

use super::SharedStore;
use super::count_report::{CountReport, ReportAnswer};
use super::join_all::join_all;
use super::metrics::{add, count};
use super::pending_keys::PendingKeys;
use super::region::Region;
use super::remote::Remote;
use super::route_breaker::PROBE_REPORTS;
use super::tally::Destination;
use crate::counter_store::StoreError;
use crate::fingerprint::Fingerprint;

/// Keys in one batch: a few milliseconds of the remote's time.
const BATCH_MAX: usize = 1_000;
/// Batches in one beat; the rest waits for the next.
const BATCHES_MAX: usize = 10;
/// How many beats it takes to sweep all eventual keys.
const SWEEP_TURNS: usize = 32;

impl<R: Remote> SharedStore<R> {
    /// Reports the counts that this region's remote lacks, and takes in the totals.
    pub async fn flush(&self, now: Timestamp, turn: usize) {
        self.tallies.sweep(self.remote.remote_time(now), turn, SWEEP_TURNS);
        self.distribute();
        self.repeat_after_loss(&self.pending, &self.remote, now);
        let most = if self.breakers.all_open() { PROBE_REPORTS } else { BATCH_MAX * BATCHES_MAX };
        let keys = self.pending.take(most);
        let mut unfinished = Vec::new();
        for some in keys.chunks(BATCH_MAX) {
            let remote_now = self.remote.remote_time(now);
            let reports = self.reports(some, Destination::OWN, remote_now);
            count(&self.counters.flushes);
            add(&self.counters.flushed_keys, reports.len() as u64);
            let refs: Vec<&CountReport> = reports.iter().collect();
            let deadline = Instant::now() + self.settings.background_within;
            let id = self.nodes.id();
            let reported = self.breakers.report_counts(&self.remote, id, &refs, now, deadline);
            let (results, has_closed) = reported.await;
            if has_closed {
                self.settle_later(now);
            }
            for (report, result) in reports.iter().zip(&results) {
                let Ok(answer) = result else { continue };
                self.counters.overshot(answer.over, report.limit.algorithm().capacity());
                self.tallies.learn_reported(report, answer, self.remote.remote_time(now));
            }
            let own = (&self.pending, Destination::OWN);
            unfinished.extend(self.confirm(own, &reports, &results, remote_now));
        }
        self.pending.finish(keys.len(), unfinished);
    }

    /// Reports the counts that the other regions lack, to all regions at once.
    pub async fn flush_regions(&self, now: Timestamp) {
        join_all(self.regions.iter().map(|region| self.flush_region(region, now))).await;
    }

    pub(super) async fn flush_region(&self, region: &Region<R>, now: Timestamp) {
        self.distribute();
        self.repeat_after_loss(&region.pending, &region.remote, now);
        let most = if region.breaker.is_open() { PROBE_REPORTS } else { BATCH_MAX * BATCHES_MAX };
        let keys = region.pending.take(most);
        let mut unfinished = Vec::new();
        for some in keys.chunks(BATCH_MAX) {
            // The clock of this node's own region, which its counts use.
            let remote_now = self.remote.remote_time(now);
            let reports = self.reports(some, region.destination, remote_now);
            let refs: Vec<&CountReport> = reports.iter().collect();
            let deadline = Instant::now() + self.settings.background_within;
            let results = region.report(self.nodes.id(), &refs, now, deadline).await;
            let to = (&region.pending, region.destination);
            unfinished.extend(self.confirm(to, &reports, &results, remote_now));
        }
        region.pending.finish(keys.len(), unfinished);
    }

    /// Adds the keys that changed to the pending keys of every destination.
    fn distribute(&self) {
        let mut changed: Vec<Vec<Fingerprint>> = vec![Vec::new(); self.regions.len() + 1];
        self.tallies.take_changed(|key, to| {
            if let Some(keys) = changed.get_mut(to.0) {
                keys.push(key);
            }
        });
        let regions = self.regions.iter().map(|region| &region.pending);
        for (pending, keys) in std::iter::once(&self.pending).chain(regions).zip(changed) {
            pending.extend(keys);
        }
    }

    /// Makes all keys pending whose counts still matter, if the remote has lost counts or may have.
    fn repeat_after_loss(&self, pending: &PendingKeys, remote: &R, now: Timestamp) {
        if pending.take_repeat(remote.connections_opened()) {
            pending.extend(self.tallies.current_keys(self.remote.remote_time(now)));
        }
    }

    fn reports(&self, keys: &[Fingerprint], to: Destination, now: Timestamp) -> Vec<CountReport> {
        keys.iter().filter_map(|key| self.tallies.report(*key, to, now)).collect()
    }

    /// Notes the reports that were answered; returns the keys that have to be reported again.
    fn confirm(
        &self,
        (pending, to): (&PendingKeys, Destination),
        reports: &[CountReport],
        results: &[Result<ReportAnswer, StoreError>],
        now: Timestamp,
    ) -> Vec<Fingerprint> {
        let mut unfinished = Vec::new();
        for (report, result) in reports.iter().zip(results) {
            let Ok(answer) = result else {
                unfinished.push(report.key.fingerprint);
                continue;
            };
            if report.reveals_loss(answer) {
                pending.note_loss();
            }
            // A key that has changed since is marked, so it becomes pending by itself.
            self.tallies.confirm(report, to, now);
        }
        unfinished
    }
}
