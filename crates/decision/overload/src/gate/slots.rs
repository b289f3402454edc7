//! The slots of requests in flight, with generations.
//!
//! The watchdog reclaims a slot that was held too long. Its old holder may release it later,
//! when it belongs to another request. The generation in [`SlotId`] differs then, so the
//! late release is ignored.

use tidegate_algorithms::{Nanos, Timestamp};

use crate::category::Category;

/// The most requests in flight that are counted, including those above the limit. More are
/// admitted uncounted, so that the records take at most 48 MB.
pub const SLOTS_MAX: usize = 1 << 20;

/// A held slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    index: u32,
    generation: u32,
}

/// What a slot counts towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    /// Within the limit, held by a critical request.
    Critical,
    /// Within the limit, held by another category.
    Other,
    /// Above the limit: admitted because the gate does not enforce.
    Beyond,
}

impl SlotKind {
    pub(super) const fn within(category: Category) -> Self {
        match category {
            Category::Critical => SlotKind::Critical,
            Category::Test | Category::Get | Category::Post => SlotKind::Other,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Occupancy {
    pub(super) since: Timestamp,
    pub(super) kind: SlotKind,
}

#[derive(Debug, Default)]
struct SlotCell {
    generation: u32,
    held: Option<Occupancy>,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    cells: Vec<SlotCell>,
    free: Vec<u32>,
    critical: u64,
    other: u64,
    beyond: u64,
}

impl Slots {
    pub(super) const fn within(&self) -> u64 {
        self.critical + self.other
    }

    pub(super) const fn other(&self) -> u64 {
        self.other
    }

    pub(super) const fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Takes a slot; `None` when [`SLOTS_MAX`] are taken.
    pub(super) fn hold(&mut self, since: Timestamp, kind: SlotKind) -> Option<SlotId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.cells.len() < SLOTS_MAX => {
                self.cells.push(SlotCell::default());
                u32::try_from(self.cells.len() - 1).ok()?
            }
            None => return None,
        };
        let cell = self.cells.get_mut(index as usize)?;
        cell.held = Some(Occupancy { since, kind });
        let generation = cell.generation;
        *self.count(kind) += 1;
        Some(SlotId { index, generation })
    }

    /// Frees a slot; `None` when the watchdog had reclaimed it.
    pub(super) fn give_back(&mut self, id: SlotId) -> Option<Occupancy> {
        let cell = self.cells.get_mut(id.index as usize)?;
        if cell.generation != id.generation {
            return None;
        }
        let held = cell.held.take()?;
        cell.generation = cell.generation.wrapping_add(1);
        self.free.push(id.index);
        let count = self.count(held.kind);
        *count = count.saturating_sub(1);
        Some(held)
    }

    /// Reclaims slots held for longer than `hold_max`, and returns how many.
    pub(super) fn take_back(&mut self, now: Timestamp, hold_max: Nanos) -> u64 {
        let overdue: Vec<SlotId> = (0u32..)
            .zip(&self.cells)
            .filter(|(_, cell)| cell.held.is_some_and(|held| now.since(held.since) > hold_max))
            .map(|(index, cell)| SlotId { index, generation: cell.generation })
            .collect();
        overdue.iter().filter(|id| self.give_back(**id).is_some()).count() as u64
    }

    const fn count(&mut self, kind: SlotKind) -> &mut u64 {
        match kind {
            SlotKind::Critical => &mut self.critical,
            SlotKind::Other => &mut self.other,
            SlotKind::Beyond => &mut self.beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(100);

    #[test]
    fn a_late_release_frees_no_other_slot() {
        let mut slots = Slots::default();
        let late = slots.hold(START, SlotKind::Other).unwrap();
        assert_eq!(slots.take_back(START.after(Nanos::from_secs(11)), Nanos::from_secs(10)), 1);
        let other = slots.hold(START, SlotKind::Other).unwrap();
        assert_eq!(other.index, late.index);
        assert!(slots.give_back(late).is_none());
        assert_eq!(slots.within(), 1);
        assert!(slots.give_back(other).is_some());
        assert!(slots.give_back(other).is_none());
        assert_eq!(slots.within(), 0);
    }

    #[test]
    fn what_is_not_overdue_is_left_alone() {
        let mut slots = Slots::default();
        slots.hold(START, SlotKind::Other).unwrap();
        slots.hold(START.after(Nanos::from_secs(5)), SlotKind::Beyond).unwrap();
        assert_eq!(slots.take_back(START.after(Nanos::from_secs(11)), Nanos::from_secs(10)), 1);
        assert_eq!((slots.within(), slots.beyond()), (0, 1));
    }
}
