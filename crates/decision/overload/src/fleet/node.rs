//! The node's side: counts requests in flight and decides by its grant.
//!
//! The lease runs by the node's monotonic clock from the moment the report was *sent*, and the
//! node uses four fifths of it. So it stops using a grant before the board gives it to another
//! node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_algorithms::{Nanos, Timestamp};

use super::{FleetSettings, Grant, Report, portion};
use crate::category::Category;

/// Above this share of the pool in use the fleet is saturated, in percent.
const SATURATED_PERCENT: u64 = 95;

/// Decides by the grant whether a request that is not critical is admitted.
#[derive(Debug)]
pub struct FleetShedder {
    settings: FleetSettings,
    capacity: AtomicU64,
    in_flight: AtomicU64,
    /// The most in flight since the last report.
    peak: AtomicU64,
    /// Refused since the last report.
    refused: AtomicU64,
    admit_below: AtomicU64,
    /// When the node stops using the grant. The maximum before the first grant: the node is alone.
    usable_until: AtomicU64,
    renewed: AtomicU64,
    pool: AtomicU64,
    fleet_capacity: AtomicU64,
    fleet_used: AtomicU64,
    beats_missed: AtomicU64,
}

/// The node's view of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetView {
    /// The pool that the fleet shares; the node's own while it is alone.
    pub pool: u64,
    /// Below how many in flight the node admits.
    pub grant: u64,
    /// The node's requests in flight, without critical ones.
    pub in_flight: u64,
    /// What the fleet uses of the pool, by the last answer.
    pub used: u64,
    /// The age of the grant; none while the node is alone.
    pub lease_age: Option<Nanos>,
    /// Whether the grant has expired and the node uses its safe share.
    pub fallback: bool,
    /// Beats without an answer.
    pub beats_missed: u64,
}

impl FleetShedder {
    /// A node that is alone with its capacity until the first grant.
    pub fn new(settings: FleetSettings, capacity: u64) -> Self {
        let shedder = FleetShedder {
            settings,
            capacity: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            admit_below: AtomicU64::new(0),
            usable_until: AtomicU64::new(u64::MAX),
            renewed: AtomicU64::new(0),
            pool: AtomicU64::new(0),
            fleet_capacity: AtomicU64::new(0),
            fleet_used: AtomicU64::new(0),
            beats_missed: AtomicU64::new(0),
        };
        shedder.set_capacity(capacity);
        shedder
    }

    /// How the fleet is shared.
    pub const fn settings(&self) -> &FleetSettings {
        &self.settings
    }

    /// Admits and counts the request; `None` refuses it. Critical requests are neither refused nor
    /// counted.
    #[inline]
    pub fn try_enter(self: &Arc<Self>, now: Timestamp, category: Category) -> Option<Credit> {
        let counted = self.try_count(now, category)?;
        Some(Credit { shedder: counted.then(|| Arc::clone(self)) })
    }

    /// Like [`FleetShedder::try_enter`], but returns whether the request was counted. The caller
    /// must [uncount](FleetShedder::uncount) it.
    #[inline]
    pub(crate) fn try_count(&self, now: Timestamp, category: Category) -> Option<bool> {
        if category == Category::Critical {
            return Some(false);
        }
        let limit = ladder(category, self.admit_below(now));
        let entered = self.in_flight.fetch_update(Relaxed, Relaxed, |count| {
            if count < limit { Some(count + 1) } else { None }
        });
        match entered {
            Ok(before) => {
                // Read first: a new peak is rare.
                if before >= self.peak.load(Relaxed) {
                    self.peak.fetch_max(before + 1, Relaxed);
                }
                Some(true)
            }
            Err(_) => {
                self.refused.fetch_add(1, Relaxed);
                None
            }
        }
    }

    /// Counts the end of a request.
    #[inline]
    pub(crate) fn uncount(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Below how many in flight the node admits.
    #[inline]
    pub fn admit_below(&self, now: Timestamp) -> u64 {
        if now.as_nanos() < self.usable_until.load(Relaxed) {
            self.admit_below.load(Relaxed)
        } else {
            self.safe_share()
        }
    }

    /// The report to the board. Starts a new interval.
    pub fn report(&self, node: u64, now: Timestamp) -> Report {
        let in_flight = self.in_flight.load(Relaxed);
        let peak = self.peak.swap(in_flight, Relaxed).max(in_flight);
        let refused = self.refused.swap(0, Relaxed);
        let held = self.admit_below(now);
        let capacity = self.capacity.load(Relaxed);
        Report { node, capacity, in_flight, demand: peak.saturating_add(refused), held }
    }

    /// Accepts the answer to the report that was sent at `sent`.
    pub fn accept(&self, sent: Timestamp, grant: &Grant) {
        self.pool.store(grant.pool, Relaxed);
        self.fleet_capacity.store(grant.fleet_capacity, Relaxed);
        self.fleet_used.store(grant.fleet_used, Relaxed);
        self.admit_below.store(grant.admit_below, Relaxed);
        self.renewed.store(sent.as_nanos(), Relaxed);
        let usable = Nanos::new(self.settings.lease.get() / 5 * 4);
        self.usable_until.store(sent.after(usable).as_nanos(), Relaxed);
    }

    /// Counts a beat without an answer.
    pub fn miss_beat(&self) {
        self.beats_missed.fetch_add(1, Relaxed);
    }

    /// Sets the node's capacity: the gate's limit. While the node is alone, its pool is a part of
    /// it.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Relaxed);
        if self.is_alone() {
            let own = self.settings.pool(capacity).max(1);
            self.pool.store(own, Relaxed);
            self.fleet_capacity.store(capacity, Relaxed);
            self.admit_below.store(own, Relaxed);
        }
    }

    /// Whether nearly all of the pool is in use, so that a retry at another node fails too.
    pub fn is_saturated(&self) -> bool {
        let used = if self.is_alone() { &self.in_flight } else { &self.fleet_used };
        let part = portion(self.pool.load(Relaxed), SATURATED_PERCENT, 100);
        used.load(Relaxed) > part
    }

    /// The node's view.
    pub fn view(&self, now: Timestamp) -> FleetView {
        let alone = self.is_alone();
        let in_flight = self.in_flight.load(Relaxed);
        let renewed = Timestamp::from_nanos(self.renewed.load(Relaxed));
        FleetView {
            pool: self.pool.load(Relaxed),
            grant: self.admit_below(now),
            in_flight,
            used: if alone { in_flight } else { self.fleet_used.load(Relaxed) },
            lease_age: (!alone).then(|| now.since(renewed)),
            fallback: now.as_nanos() >= self.usable_until.load(Relaxed),
            beats_missed: self.beats_missed.load(Relaxed),
        }
    }

    fn is_alone(&self) -> bool {
        self.usable_until.load(Relaxed) == u64::MAX
    }

    /// The node's part of the last known pool, by its capacity. If every node keeps to its part,
    /// the pool is not exceeded.
    fn safe_share(&self) -> u64 {
        let (pool, fleet) = (self.pool.load(Relaxed), self.fleet_capacity.load(Relaxed));
        portion(pool, self.capacity.load(Relaxed), fleet).max(1)
    }
}

/// The part of the grant that a category may use: test requests leave a fifth to others, GET
/// requests a tenth. So categories are refused one after another.
#[inline]
const fn ladder(category: Category, grant: u64) -> u64 {
    match category {
        Category::Test => grant - grant / 5,
        Category::Get => grant - grant / 10,
        Category::Post | Category::Critical => grant,
    }
}

/// A request that the fleet shedder admitted. Counts as in flight until it is dropped.
#[derive(Debug)]
#[must_use = "the request counts as in flight until this is dropped"]
pub struct Credit {
    shedder: Option<Arc<FleetShedder>>,
}

impl Drop for Credit {
    fn drop(&mut self) {
        if let Some(shedder) = &self.shedder {
            shedder.uncount();
        }
    }
}

#[cfg(test)]
mod tests;
