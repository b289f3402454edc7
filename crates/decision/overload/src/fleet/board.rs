//! The board: answers a node's report with a grant.
//!
//! Pure, so that a script in a shared store can do the same. No beat raises the sum of the grants
//! above the pool. The sum exceeds the pool only after a node with its capacity has left, and then
//! falls with every beat.
//!
//! A grant shrinks in two beats: the first answer lowers `admit_below`, and only after the node
//! has reported the lower value do others get the difference. The answer may be lost.
//!
//! Capacity that no node demands is granted too, by capacity. Otherwise a burst between two beats
//! would be refused while the fleet is idle.

use std::collections::BTreeMap;

use tidegate_algorithms::Timestamp;

use super::{BoardError, FleetSettings, Grant, Report, fair_shares, portion};

/// The most nodes of a board. Every beat reads all of them.
pub const NODES_MAX: usize = 4_096;

const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct NodeRow {
    capacity: u64,
    in_flight: u64,
    demand: u64,
    grant: u64,
    expires: Timestamp,
    /// Since when the grant has not grown although it may.
    growing: Timestamp,
}

/// The nodes of a fleet and their grants.
#[derive(Clone, Debug)]
pub struct Board {
    settings: FleetSettings,
    rows: BTreeMap<u64, NodeRow>,
    /// Until then some nodes may not have reported, so no grant grows.
    learning_until: Timestamp,
}

impl Board {
    /// An empty board. For one lease it only records what nodes hold: it may replace a board that
    /// was lost.
    pub fn new(settings: FleetSettings, now: Timestamp) -> Self {
        let learning_until = now.after(settings.lease);
        Board { settings, rows: BTreeMap::new(), learning_until }
    }

    /// Takes a node's report and renews its grant.
    ///
    /// # Errors
    /// When there are [`NODES_MAX`] other live nodes.
    pub fn beat(&mut self, now: Timestamp, report: &Report) -> Result<Grant, BoardError> {
        self.settle(now);
        let before = self.rows.get(&report.node).copied();
        if before.is_none() && self.rows.len() >= NODES_MAX {
            return Err(BoardError::Full);
        }
        let expires = now.after(self.settings.lease);
        let (grant, growing) = before.map_or((0, now), |row| (row.grant, row.growing));
        let (capacity, in_flight, demand) = (report.capacity, report.in_flight, report.demand);
        let row = NodeRow { capacity, in_flight, demand, grant, expires, growing };
        self.rows.insert(report.node, row);
        let fits = self.wanted(now, report, before.is_some()).min(self.available(report.node));
        // Others cannot have the slots of requests in flight, nor those that the node may still
        // fill by an older answer.
        let grant = fits.max(in_flight.max(report.held).min(grant));
        if let Some(row) = self.rows.get_mut(&report.node) {
            row.grant = grant;
        }
        let used = self.rows.values().fold(0u64, |sum, row| sum.saturating_add(row.in_flight));
        Ok(Grant {
            grant,
            admit_below: fits,
            pool: self.pool(),
            fleet_capacity: self.capacity(),
            fleet_used: used,
        })
    }

    /// The pool that the live nodes share.
    pub fn pool(&self) -> u64 {
        self.settings.pool(self.capacity())
    }

    /// The sum of all grants.
    pub fn granted(&self) -> u64 {
        self.rows.values().fold(0u64, |sum, row| sum.saturating_add(row.grant))
    }

    /// The number of live nodes at the last beat.
    pub fn nodes(&self) -> usize {
        self.rows.len()
    }

    /// Removes nodes whose lease has ended. If the clock was set back, no time lies further ahead
    /// than one lease.
    fn settle(&mut self, now: Timestamp) {
        let latest = now.after(self.settings.lease);
        self.learning_until = self.learning_until.min(latest);
        self.rows.retain(|_, row| {
            row.expires = row.expires.min(latest);
            row.growing = row.growing.min(now);
            row.expires > now
        });
    }

    fn capacity(&self) -> u64 {
        self.rows.values().fold(0u64, |sum, row| sum.saturating_add(row.capacity))
    }

    /// The part of the pool that other nodes do not hold.
    fn available(&self, node: u64) -> u64 {
        let others = self.rows.iter().filter(|(id, _)| **id != node);
        let granted = others.fold(0u64, |sum, (_, row)| sum.saturating_add(row.grant));
        self.pool().saturating_sub(granted)
    }

    /// What the node should get, available or not.
    fn wanted(&mut self, now: Timestamp, report: &Report, known: bool) -> u64 {
        let share = portion(self.pool(), report.capacity, self.capacity());
        let learning = now < self.learning_until;
        if !known {
            // It adds its capacity to the pool, so it may start with its share.
            return if learning { report.held } else { report.held.min(share) };
        }
        let target = self.target(report.node);
        let growth = self.settings.growth_percent;
        let Some(row) = self.rows.get_mut(&report.node) else { return 0 };
        if learning {
            row.growing = now;
            return row.grant;
        }
        if target <= row.grant {
            row.growing = now;
            return target;
        }
        let elapsed = now.since(row.growing).get();
        // At least one, or the smallest nodes would not grow.
        let hundredths = portion(share.max(1), growth.saturating_mul(elapsed), SECOND);
        let grown = (hundredths / 100).min(target - row.grant);
        if grown > 0 {
            row.growing = now;
        }
        row.grant.saturating_add(grown)
    }

    /// The node's fair share of the demand, and its part of the pool that no node demands.
    fn target(&self, node: u64) -> u64 {
        let pool = self.pool();
        let headroom = self.settings.headroom_percent;
        let wanted: Vec<u64> = self
            .rows
            .values()
            .map(|row| {
                let extra = portion(row.demand, headroom, 100).saturating_add(1);
                row.demand.saturating_add(extra).min(row.capacity)
            })
            .collect();
        let shares = fair_shares(pool, &wanted);
        let spare = pool.saturating_sub(shares.iter().sum());
        let Some(index) = self.rows.keys().position(|id| *id == node) else { return 0 };
        let Some(row) = self.rows.get(&node) else { return 0 };
        let part = portion(spare, row.capacity, self.capacity());
        shares[index].saturating_add(part).min(row.capacity)
    }
}

#[cfg(test)]
mod tests;
