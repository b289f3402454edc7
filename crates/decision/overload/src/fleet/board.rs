//! One beat: what the board does when a node reports.
//!
//! Pure over the board's rows, so that a script in a shared store can do the same.
//! What always holds: no beat raises the sum of the grants above the pool. It can
//! lie above it only after capacity has left, and then falls with every beat.
//!
//! A grant shrinks in two beats: the first tells the node, and only when the node
//! says that it goes by it do others get the difference. An answer may be lost.
//!
//! What nobody wants is handed out too, by capacity. Otherwise a burst between two
//! beats would be refused while the fleet is idle.

use std::collections::BTreeMap;

use tidegate_algorithms::Timestamp;

use super::{BoardError, FleetSettings, Grant, Report, fair_shares, portion};

/// The most nodes of a board. Each beat looks at all of them, five times a second for each
/// node.
pub const NODES_MAX: usize = 4_096;

const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Row {
    capacity: u64,
    in_flight: u64,
    demand: u64,
    grant: u64,
    expires: Timestamp,
    /// Since when it may have grown and has not.
    growing: Timestamp,
}

/// The nodes of a fleet and what they were granted.
#[derive(Clone, Debug)]
pub struct Board {
    settings: FleetSettings,
    rows: BTreeMap<u64, Row>,
    /// Until then not all nodes have reported, and no grant grows.
    learning_until: Timestamp,
}

impl Board {
    /// An empty board. For the length of one lease it only learns what nodes hold:
    /// it may be the successor of one that is lost.
    pub fn new(settings: FleetSettings, now: Timestamp) -> Self {
        let learning_until = now.after(settings.lease);
        Board { settings, rows: BTreeMap::new(), learning_until }
    }

    /// A node reports and gets its grant renewed.
    ///
    /// # Errors
    /// When there are [`NODES_MAX`] live nodes, and this is another one.
    pub fn beat(&mut self, now: Timestamp, report: &Report) -> Result<Grant, BoardError> {
        self.settle(now);
        let before = self.rows.get(&report.node).copied();
        if before.is_none() && self.rows.len() >= NODES_MAX {
            return Err(BoardError::Full);
        }
        let expires = now.after(self.settings.lease);
        let (grant, growing) = before.map_or((0, now), |row| (row.grant, row.growing));
        let (capacity, in_flight, demand) = (report.capacity, report.in_flight, report.demand);
        let row = Row { capacity, in_flight, demand, grant, expires, growing };
        self.rows.insert(report.node, row);
        let fits = self.wanted(now, report, before.is_some()).min(self.available(report.node));
        // What runs cannot be taken away, and what the node still goes by is not
        // for others. Nothing is added to it.
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

    /// What the live nodes share.
    pub fn pool(&self) -> u64 {
        self.settings.pool(self.capacity())
    }

    /// The sum of all grants.
    pub fn granted(&self) -> u64 {
        self.rows.values().fold(0u64, |sum, row| sum.saturating_add(row.grant))
    }

    /// How many nodes are alive, as of the last beat.
    pub fn nodes(&self) -> usize {
        self.rows.len()
    }

    /// Drops nodes that were not heard of. If the clock was put back, nothing lasts longer
    /// than what begins now.
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

    /// What the others leave of the pool.
    fn available(&self, node: u64) -> u64 {
        let others = self.rows.iter().filter(|(id, _)| **id != node);
        let granted = others.fold(0u64, |sum, (_, row)| sum.saturating_add(row.grant));
        self.pool().saturating_sub(granted)
    }

    /// What the node should have, whether or not it is there.
    fn wanted(&mut self, now: Timestamp, report: &Report, known: bool) -> u64 {
        let share = portion(self.pool(), report.capacity, self.capacity());
        let learning = now < self.learning_until;
        if !known {
            // It comes with capacity of its own, so it may begin with its share.
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
        // At least one, or the smallest nodes would never grow.
        let hundredths = portion(share.max(1), growth.saturating_mul(elapsed), SECOND);
        let grown = (hundredths / 100).min(target - row.grant);
        if grown > 0 {
            row.growing = now;
        }
        row.grant.saturating_add(grown)
    }

    /// The node's fair share of what all want, and its part of what nobody wants.
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
        let Some(place) = self.rows.keys().position(|id| *id == node) else { return 0 };
        let Some(row) = self.rows.get(&node) else { return 0 };
        let part = portion(spare, row.capacity, self.capacity());
        shares[place].saturating_add(part).min(row.capacity)
    }
}

#[cfg(test)]
mod tests;
