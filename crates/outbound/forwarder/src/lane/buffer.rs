//! Claimed records that wait for their turn, in the order in which to send them.

use std::collections::VecDeque;

use tidegate_algorithms::Timestamp;
use tidegate_capacity::Cost;
use tidegate_queue::{Delivery, RecordId};

use super::cost_of;

/// The records of the next moments.
#[derive(Debug, Default)]
pub(super) struct ClaimBuffer {
    waiting: VecDeque<Delivery>,
    cost: CostSum,
}

/// A sum of costs.
#[derive(Clone, Copy, Debug, Default)]
struct CostSum {
    operations: u64,
    bytes: u64,
    units: u64,
}

impl ClaimBuffer {
    pub(super) fn push(&mut self, delivery: Delivery) {
        let cost = cost_of(&delivery.record);
        self.cost.operations = self.cost.operations.saturating_add(cost.operations);
        self.cost.bytes = self.cost.bytes.saturating_add(cost.bytes);
        self.cost.units = self.cost.units.saturating_add(cost.units);
        self.waiting.push_back(delivery);
    }

    /// Takes the next records, up to `count`.
    pub(super) fn take(&mut self, count: usize) -> Vec<Delivery> {
        let taken: Vec<Delivery> = self.waiting.drain(..count.min(self.waiting.len())).collect();
        taken.iter().for_each(|delivery| self.subtract(delivery));
        taken
    }

    /// Removes a record whose claim is lost.
    pub(super) fn remove(&mut self, id: RecordId) -> Option<Delivery> {
        let index = self.waiting.iter().position(|delivery| delivery.record.id == id)?;
        let removed = self.waiting.remove(index)?;
        self.subtract(&removed);
        Some(removed)
    }

    /// Notes that the leases of all records that still wait end later.
    pub(super) fn extend(&mut self, id: RecordId, ends: Timestamp) {
        if let Some(delivery) = self.waiting.iter_mut().find(|delivery| delivery.record.id == id) {
            delivery.lease_ends = ends;
        }
    }

    fn subtract(&mut self, delivery: &Delivery) {
        let cost = cost_of(&delivery.record);
        self.cost.operations = self.cost.operations.saturating_sub(cost.operations);
        self.cost.bytes = self.cost.bytes.saturating_sub(cost.bytes);
        self.cost.units = self.cost.units.saturating_sub(cost.units);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn cost(&self) -> Cost {
        let CostSum { operations, bytes, units } = self.cost;
        Cost { operations, bytes, units }
    }
}
