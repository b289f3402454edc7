//! Other regions that count the same eventual limits.
//!
//! Each node sends its own charges to every region; regions forward nothing, so no charge arrives twice. Charges for a
//! region that cannot be reached are kept, one sum for each key, and dropped once they no longer count. A batch that
//! may have arrived is not sent again.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidegate_algorithms::{Limit, Timestamp};
use tokio::time::Instant;

use super::metrics::{Counters, count};
use super::remote::Remote;
use super::route_breaker::RouteBreaker;
use super::tally::{Delta, Tallies};
use super::transfer::Transfer;
use crate::batch::{Batch, Charge, Check, Key, Verb};
use crate::fingerprint::Fingerprint;

/// Keys in one batch; a region that was unreachable catches up in several.
const BATCH_MAX: usize = 1_000;

/// Another region.
#[derive(Debug)]
pub(crate) struct Region<R> {
    remote: R,
    pub(crate) breaker: RouteBreaker,
    pending: Mutex<HashMap<Fingerprint, PendingCharge>>,
    pending_max: usize,
}

#[derive(Debug)]
struct PendingCharge {
    key: Key,
    limit: Limit,
    /// Not sent yet.
    units: u64,
    /// Sent and not answered yet.
    in_flight: u64,
}

impl<R: Remote> Region<R> {
    /// A region with this remote, and at most `pending_max` keys with unsent charges.
    pub(crate) fn new(remote: R, breaker: RouteBreaker, pending_max: usize) -> Self {
        Region { remote, breaker, pending: Mutex::new(HashMap::new()), pending_max }
    }

    /// Adds charges to send to the region.
    pub(crate) fn add(&self, deltas: &[Delta], counters: &Counters) {
        let mut pending = self.pending.lock();
        for delta in deltas.iter().filter(|delta| delta.region_units > 0) {
            let Transfer { key, limit, .. } = &delta.transfer;
            if pending.len() >= self.pending_max && !pending.contains_key(&key.fingerprint) {
                count(&counters.dropped);
                continue;
            }
            let new = || PendingCharge { key: *key, limit: limit.clone(), units: 0, in_flight: 0 };
            let kept = pending.entry(key.fingerprint).or_insert_with(new);
            kept.limit.clone_from(limit);
            kept.units = kept.units.saturating_add(delta.region_units);
        }
    }

    /// Sends the charges that still count at `remote_now`, in one batch. `remote_now` is the clock of the node's own
    /// region, which the tallies use.
    pub(crate) async fn flush(
        &self,
        tallies: &Tallies,
        remote_now: Timestamp,
        now: Timestamp,
        deadline: Instant,
        counters: &Counters,
    ) {
        if self.breaker.is_open() {
            self.drop_expired(tallies, remote_now);
            return self.probe(now, deadline).await;
        }
        let charges = self.take(tallies, remote_now);
        if charges.is_empty() {
            return;
        }
        let checks: Vec<Check<'_>> = charges.iter().map(Transfer::check).collect();
        let batch = Batch::new(Verb::Charge, Charge::Always, now, &checks);
        let results = self.breaker.apply_each(&self.remote, &batch, deadline).await;
        let mut pending = self.pending.lock();
        for (charge, result) in charges.iter().zip(results) {
            let Some(kept) = pending.get_mut(&charge.key.fingerprint) else { continue };
            kept.in_flight = 0;
            match result {
                Ok(_) => {}
                Err(error) if error.may_have_run() => count(&counters.unsure),
                Err(_) => kept.units = kept.units.saturating_add(charge.units),
            }
            if kept.units == 0 {
                pending.remove(&charge.key.fingerprint);
            }
        }
    }

    /// How many keys have charges that the region has not received.
    pub(crate) fn pending(&self) -> usize {
        self.pending.lock().len()
    }

    /// Probes with a charge of 0: a probe may be lost, and a larger charge with it.
    async fn probe(&self, now: Timestamp, deadline: Instant) {
        let some = self.pending.lock().values().next().map(|kept| (kept.key, kept.limit.clone()));
        let Some((key, limit)) = some else { return };
        if self.breaker.probe_due(now) {
            let checks = [Check::new(key, &limit, 0)];
            let batch = Batch::new(Verb::Charge, Charge::Always, now, &checks);
            self.breaker.probe_each(&self.remote, &batch, deadline).await;
        }
    }

    /// Takes the charges that still count, for one batch; they stay in flight until there is an answer.
    fn take(&self, tallies: &Tallies, now: Timestamp) -> Vec<Transfer> {
        let mut charges = Vec::new();
        self.pending.lock().retain(|key, kept| {
            if charges.len() < BATCH_MAX {
                let units = std::mem::take(&mut kept.units);
                kept.in_flight = tallies.still_counts(*key, units, now);
                if kept.in_flight > 0 {
                    let limit = kept.limit.clone();
                    charges.push(Transfer { key: kept.key, limit, units: kept.in_flight });
                }
            }
            kept.units > 0 || kept.in_flight > 0
        });
        charges
    }

    fn drop_expired(&self, tallies: &Tallies, now: Timestamp) {
        let mut pending = self.pending.lock();
        if pending.len() <= self.pending_max / 2 {
            return;
        }
        pending.retain(|key, kept| tallies.still_counts(*key, kept.units, now) > 0);
    }
}
