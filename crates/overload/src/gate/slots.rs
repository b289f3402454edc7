//! Who is inside: slots with generations.
//!
//! A slot that was held for too long is taken back by the watchdog. Its holder may
//! still be there and give it back later, when somebody else has it. The
//! generation tells the two apart, so a late release frees nobody else's slot.

use tidegate_algorithms::{Nanos, Timestamp};

/// The most that can be inside at once, those beyond the limit included. What comes
/// on top is let through uncounted; 48 MB of records are enough.
pub const SLOTS_MAX: usize = 1 << 20;

/// A held slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    index: u32,
    generation: u32,
}

/// Whether a slot is one of the limit's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Within the limit.
    Within,
    /// Beyond it: let through because the gate does not enforce.
    Beyond,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) since: Timestamp,
    pub(super) place: Place,
    pub(super) critical: bool,
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
    within: u64,
    beyond: u64,
    /// Of those within, critical ones.
    critical: u64,
}

impl Slots {
    pub(super) const fn within(&self) -> u64 {
        self.within
    }

    pub(super) const fn beyond(&self) -> u64 {
        self.beyond
    }

    /// How many of those within are not critical.
    pub(super) const fn others(&self) -> u64 {
        self.within.saturating_sub(self.critical)
    }

    /// Holds a slot; `None` when there are [`SLOTS_MAX`].
    pub(super) fn hold(&mut self, held: Held) -> Option<SlotId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.cells.len() < SLOTS_MAX => {
                self.cells.push(Cell::default());
                u32::try_from(self.cells.len() - 1).ok()?
            }
            None => return None,
        };
        let cell = self.cells.get_mut(index as usize)?;
        cell.held = Some(held);
        let generation = cell.generation;
        *self.count(held.place) += 1;
        self.critical += u64::from(held.critical && held.place == Place::Within);
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
        let critical = held.critical && held.place == Place::Within;
        self.critical = self.critical.saturating_sub(u64::from(critical));
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
            Place::Within => &mut self.within,
            Place::Beyond => &mut self.beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(100);

    fn within(since: Timestamp) -> Held {
        Held { since, place: Place::Within, critical: false }
    }

    #[test]
    fn a_late_release_frees_nobody_elses_slot() {
        let mut slots = Slots::default();
        let late = slots.hold(within(START)).unwrap();
        assert_eq!(slots.take_back(START.after(Nanos::from_secs(11)), Nanos::from_secs(10)), 1);
        let other = slots.hold(within(START)).unwrap();
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
        slots.hold(within(START)).unwrap();
        let beyond = Held { place: Place::Beyond, ..within(START.after(Nanos::from_secs(5))) };
        slots.hold(beyond).unwrap();
        assert_eq!(slots.take_back(START.after(Nanos::from_secs(11)), Nanos::from_secs(10)), 1);
        assert_eq!((slots.within(), slots.beyond()), (0, 1));
    }
}
