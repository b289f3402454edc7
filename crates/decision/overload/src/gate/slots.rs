//! Who is inside: slots with generations.
//!
//! A slot that was held for too long is taken back by the watchdog. Its holder may
//! still be there and give it back later, when somebody else has it. The
//! generation tells the two apart, so a late release frees nobody else's slot.

use tidegate_algorithms::{Nanos, Timestamp};

use crate::category::Category;

/// The most that can be inside at once, those beyond the limit included. What comes
/// on top is let through uncounted; 48 MB of records are enough.
pub const SLOTS_MAX: usize = 1 << 20;

/// A held slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    index: u32,
    generation: u32,
}

/// What a slot counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Within the limit, held by a critical request.
    Critical,
    /// Within the limit, held by another.
    Other,
    /// Beyond it: let through because the gate does not enforce.
    Beyond,
}

impl Place {
    pub(super) const fn within(category: Category) -> Self {
        match category {
            Category::Critical => Place::Critical,
            Category::Test | Category::Get | Category::Post => Place::Other,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) since: Timestamp,
    pub(super) place: Place,
}

#[derive(Debug, Default)]
struct Cell {
    generation: u32,
    held: Option<Held>,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    cells: Vec<Cell>,
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

    /// Holds a slot; `None` when there are [`SLOTS_MAX`].
    pub(super) fn hold(&mut self, since: Timestamp, place: Place) -> Option<SlotId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.cells.len() < SLOTS_MAX => {
                self.cells.push(Cell::default());
                u32::try_from(self.cells.len() - 1).ok()?
            }
            None => return None,
        };
        let cell = self.cells.get_mut(index as usize)?;
        cell.held = Some(Held { since, place });
        let generation = cell.generation;
        *self.count(place) += 1;
        Some(SlotId { index, generation })
    }

    /// Gives a slot back; `None` when it was taken back before.
    pub(super) fn give_back(&mut self, id: SlotId) -> Option<Held> {
        let cell = self.cells.get_mut(id.index as usize)?;
        if cell.generation != id.generation {
            return None;
        }
        let held = cell.held.take()?;
        cell.generation = cell.generation.wrapping_add(1);
        self.free.push(id.index);
        let count = self.count(held.place);
        *count = count.saturating_sub(1);
        Some(held)
    }

    /// Takes back what was held for longer than `hold_max`, and says how many that were.
    pub(super) fn take_back(&mut self, now: Timestamp, hold_max: Nanos) -> u64 {
        let overdue: Vec<SlotId> = (0u32..)
            .zip(&self.cells)
            .filter(|(_, cell)| cell.held.is_some_and(|held| now.since(held.since) > hold_max))
            .map(|(index, cell)| SlotId { index, generation: cell.generation })
            .collect();
        overdue.iter().filter(|id| self.give_back(**id).is_some()).count() as u64
    }

    const fn count(&mut self, place: Place) -> &mut u64 {
        match place {
            Place::Critical => &mut self.critical,
            Place::Other => &mut self.other,
            Place::Beyond => &mut self.beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(100);

    #[test]
    fn a_late_release_frees_nobody_elses_slot() {
        let mut slots = Slots::default();
        let late = slots.hold(START, Place::Other).unwrap();
        assert_eq!(slots.take_back(START.after(Nanos::from_secs(11)), Nanos::from_secs(10)), 1);
        let other = slots.hold(START, Place::Other).unwrap();
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
        slots.hold(START, Place::Other).unwrap();
        slots.hold(START.after(Nanos::from_secs(5)), Place::Beyond).unwrap();
        assert_eq!(slots.take_back(START.after(Nanos::from_secs(11)), Nanos::from_secs(10)), 1);
        assert_eq!((slots.within(), slots.beyond()), (0, 1));
    }
}
