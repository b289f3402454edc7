//! Other regions that count the same eventual limits.
//!
//! Each node tells every region what it charged, its own as well as the others;
//! nothing is passed on, so nothing comes around twice. A region that cannot be
//! reached is told later: what is meant for it is kept merged, one number for
//! each key, and dropped once it no longer counts. A batch that may have
//! arrived is not sent again.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidegate_algorithms::{Limit, Timestamp};
use tokio::time::Instant;

use super::gate::Gate;
use super::metrics::{Counters, add, count};
use super::remote::Remote;
use super::tally::{Delta, Tallies};
use crate::batch::{Batch, Charge, Check, Key, Verb};
use crate::fingerprint::Fingerprint;

/// Keys in one batch; a region that was away catches up in several.
const BATCH_MAX: usize = 1_000;

/// Another region.
#[derive(Debug)]
pub(crate) struct Region<R> {
    remote: R,
    pub(crate) gate: Gate,
    pending: Mutex<HashMap<Fingerprint, Pending>>,
    pending_max: usize,
}

#[derive(Debug)]
struct Pending {
    key: Key,
    limit: Limit,
    /// To be told.
    units: u64,
    /// On its way there.
    telling: u64,
}

/// What the region is told of a key.
#[derive(Debug)]
struct Told {
    key: Key,
    limit: Limit,
    units: u64,
}

impl<R: Remote> Region<R> {
    /// A region behind this remote, with places for so many keys.
    pub(crate) fn new(remote: R, gate: Gate, pending_max: usize) -> Self {
        Region { remote, gate, pending: Mutex::new(HashMap::new()), pending_max }
    }

    /// Keeps what the region should be told.
    pub(crate) fn add(&self, deltas: &[Delta], counters: &Counters) {
        let mut pending = self.pending.lock();
        for delta in deltas.iter().filter(|delta| delta.outward > 0) {
            let key = delta.key.fingerprint;
            if pending.len() >= self.pending_max && !pending.contains_key(&key) {
                count(&counters.dropped);
                continue;
            }
            let new =
                || Pending { key: delta.key, limit: delta.limit.clone(), units: 0, telling: 0 };
            let kept = pending.entry(key).or_insert_with(new);
            kept.limit.clone_from(&delta.limit);
            kept.units = kept.units.saturating_add(delta.outward);
        }
    }

    /// Tells the region what still counts `there`, by the clock of this
    /// region's remote, which is the one that tallies go by; in one batch.
    pub(crate) async fn tell(
        &self,
        tallies: &Tallies,
        there: Timestamp,
        now: Timestamp,
        deadline: Instant,
        counters: &Counters,
    ) {
        if self.gate.is_shut() {
            self.drop_what_is_over(tallies, there);
            return self.probe(now, deadline, counters).await;
        }
        let told = self.take(tallies, there);
        if told.is_empty() {
            return;
        }
        let checks: Vec<Check<'_>> =
            told.iter().map(|told| Check::new(told.key, &told.limit, told.units)).collect();
        let batch = Batch::new(Verb::Charge, Charge::Always, now, &checks);
        let results = self.gate.each(&self.remote, &batch, deadline, counters).await;
        let mut pending = self.pending.lock();
        for (told, result) in told.iter().zip(results) {
            let Some(kept) = pending.get_mut(&told.key.fingerprint) else { continue };
            kept.telling = 0;
            match result {
                Ok(_) => {}
                Err(error) if error.may_have_run() => count(&counters.unsure),
                Err(_) => kept.units = kept.units.saturating_add(told.units),
            }
            if kept.units == 0 {
                pending.remove(&told.key.fingerprint);
            }
        }
    }

    /// How many keys the region has not been told of.
    pub(crate) fn pending(&self) -> usize {
        self.pending.lock().len()
    }

    /// Finds out whether the region is back, with a charge of nothing: a probe
    /// may be lost, and what it carries with it.
    async fn probe(&self, now: Timestamp, deadline: Instant, counters: &Counters) {
        let some = self.pending.lock().values().next().map(|kept| (kept.key, kept.limit.clone()));
        let Some((key, limit)) = some else { return };
        if self.gate.probe_due(now) {
            let checks = [Check::new(key, &limit, 0)];
            let batch = Batch::new(Verb::Charge, Charge::Always, now, &checks);
            self.gate.probe_each(&self.remote, &batch, deadline, counters).await;
        }
    }

    /// What still counts, for one batch; it stays pending until there is an answer.
    fn take(&self, tallies: &Tallies, now: Timestamp) -> Vec<Told> {
        let mut told = Vec::new();
        self.pending.lock().retain(|key, kept| {
            if told.len() < BATCH_MAX {
                let units = std::mem::take(&mut kept.units);
                kept.telling = tallies.still_counts(*key, units, now);
                if kept.telling > 0 {
                    let limit = kept.limit.clone();
                    told.push(Told { key: kept.key, limit, units: kept.telling });
                }
            }
            kept.units > 0 || kept.telling > 0
        });
        told
    }

    fn drop_what_is_over(&self, tallies: &Tallies, now: Timestamp) {
        let mut pending = self.pending.lock();
        if pending.len() <= self.pending_max / 2 {
            return;
        }
        pending.retain(|key, kept| tallies.still_counts(*key, kept.units, now) > 0);
    }
}

/// What all regions together have not been told.
pub(crate) fn pending<R: Remote>(regions: &[Region<R>]) -> usize {
    regions.iter().map(Region::pending).sum()
}

/// Notes a batch of counts.
pub(crate) fn flushed(counters: &Counters, keys: usize) {
    count(&counters.flushes);
    add(&counters.flushed_keys, u64::try_from(keys).unwrap_or(u64::MAX));
}
