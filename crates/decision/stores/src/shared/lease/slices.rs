//! Units that were taken ahead, in the order in which they end.
//!
//! A few slices, the first to die spent first, so that the next one can be there
//! before this one is used up. Every unit has an end: it is spent before that,
//! given back, or lost. Where there are more slices than places two become one,
//! which dies with the earlier: no unit may live longer for it.

use smallvec::SmallVec;
use tidegate_algorithms::{Nanos, Timestamp};

use super::super::terms::{Returns, refilled};

/// How far a clock may step back unseen. Units end that much earlier.
pub(crate) const SLIP: Nanos = Nanos::from_millis(5);
/// Enough for all that is taken within a life at the usual pace of renewals.
const SLICES_HELD_MAX: usize = 4;

/// Units that were taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) units: u64,
    /// Not after they were taken.
    pub(super) born: Timestamp,
    /// From when on they may not be used.
    pub(super) dies: Timestamp,
    /// Not after the window that they belong to ends.
    pub(super) resets: Timestamp,
}

/// What is held of a key, the first to die first. Slices that are used up stay
/// until their place is needed: units may be put back.
#[derive(Debug, Default)]
pub(super) struct Slices([Slice; SLICES_HELD_MAX]);

impl Slices {
    /// All units.
    #[inline]
    pub(super) fn units(&self) -> u64 {
        sum(self.0.iter().map(|slice| slice.units))
    }

    /// What a request of this moment may spend. A slice that was born later says
    /// that the clock was put back, or that the request was held up since it
    /// read the clock. Nobody can tell, so the slice is left alone: in the first
    /// case all slices are void soon.
    #[inline]
    pub(super) fn usable(&self, now: Timestamp) -> u64 {
        sum(self.0.iter().map(|slice| slice.usable(now)))
    }

    /// What will be left at `then`, if nothing is spent before.
    pub(super) fn left_at(&self, then: Timestamp) -> u64 {
        sum(self.0.iter().filter(|slice| slice.dies > then).map(|slice| slice.units))
    }

    /// When the first units die, and the last.
    pub(super) fn first_end(&self) -> Option<Timestamp> {
        self.0.iter().find(|slice| slice.units > 0).map(|slice| slice.dies)
    }

    pub(super) fn last_end(&self) -> Option<Timestamp> {
        self.0.iter().rfind(|slice| slice.units > 0).map(|slice| slice.dies)
    }

    /// Drops what has died; says how much.
    #[inline]
    pub(super) fn bury(&mut self, now: Timestamp) -> u64 {
        let dead = self.0.iter_mut().filter(|slice| slice.dies <= now);
        sum(dead.map(|slice| std::mem::take(&mut slice.units)))
    }

    /// Spends units of which there are enough; says when the first of them dies.
    #[inline]
    pub(super) fn spend(&mut self, cost: u64, now: Timestamp) -> Timestamp {
        let mut missing = cost;
        let mut dies = None;
        for slice in &mut self.0 {
            let part = missing.min(slice.usable(now));
            if part > 0 {
                slice.units -= part;
                missing -= part;
                dies.get_or_insert(slice.dies);
            }
        }
        dies.or_else(|| self.last_end()).unwrap_or(now)
    }

    /// Puts units back where they cannot live longer than until they would have died.
    pub(super) fn put_back(&mut self, units: u64, dies: Timestamp) -> bool {
        let fits = |slice: &&mut Slice| slice.born < slice.dies && slice.dies <= dies;
        let Some(slice) = self.0.iter_mut().rfind(fits) else { return false };
        slice.units = slice.units.saturating_add(units);
        true
    }

    /// Takes in a slice.
    pub(super) fn add(&mut self, slice: Slice) {
        match self.0.iter_mut().find(|place| place.units == 0) {
            Some(place) => *place = slice,
            None => self.merge(slice),
        }
        self.0.sort_unstable_by_key(|slice| slice.dies);
    }

    /// Takes in a slice for which there is no place: the two that end closest to
    /// each other become one.
    fn merge(&mut self, slice: Slice) {
        let mut all: SmallVec<[Slice; SLICES_HELD_MAX + 1]> = self.0.iter().copied().collect();
        all.push(slice);
        all.sort_unstable_by_key(|slice| slice.dies);
        let gaps = all.windows(2).map(|pair| pair[1].dies.since(pair[0].dies));
        let closest = gaps.enumerate().min_by_key(|(_, gap)| *gap);
        let at = closest.map_or(0, |(at, _)| at);
        let later = all.remove(at + 1);
        all[at] = all[at].with(&later);
        for (place, slice) in self.0.iter_mut().zip(all) {
            *place = slice;
        }
    }

    /// Lets everything of the window that `slice` belongs to live as long as
    /// `slice` does, in its place.
    pub(super) fn renew(&mut self, slice: &mut Slice, same_within: Nanos) {
        let is_same = |old: &&mut Slice| {
            let (first, second) = (old.resets.min(slice.resets), old.resets.max(slice.resets));
            second.since(first) < same_within
        };
        let units =
            sum(self.0.iter_mut().filter(is_same).map(|old| std::mem::take(&mut old.units)));
        slice.units = slice.units.saturating_add(units);
    }

    /// Every slice, to give back of it.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slice> {
        self.0.iter_mut()
    }
}

impl Slice {
    /// How many of the units a request of this moment may spend.
    #[inline]
    fn usable(&self, now: Timestamp) -> u64 {
        if now.after(SLIP) < self.born { 0 } else { self.units }
    }

    /// Both as one, as old as the older of the two.
    fn with(&self, other: &Slice) -> Slice {
        Slice {
            units: self.units.saturating_add(other.units),
            born: self.born.min(other.born),
            dies: self.dies.min(other.dies),
            resets: self.resets.min(other.resets),
        }
    }

    /// How many of the units the remote may count as never taken.
    pub(super) fn returnable(&self, returns: Returns, now: Timestamp, within: Nanos) -> u64 {
        match returns {
            Returns::Never => 0,
            Returns::LessRefill { amount, period } => {
                let age = now.since(self.born).get().saturating_add(within.get());
                self.units.saturating_sub(refilled(amount, period, Nanos::new(age)))
            }
            Returns::InWindow => {
                let lasts = now.after(within).after(SLIP) < self.resets;
                if lasts { self.units } else { 0 }
            }
        }
    }
}

#[inline]
fn sum(units: impl Iterator<Item = u64>) -> u64 {
    units.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_secs(1_700_000_000).after(Nanos::from_millis(millis))
    }

    fn slice(units: u64, born: u64) -> Slice {
        Slice { units, born: at(born), dies: at(born + 100), resets: at(1_000) }
    }

    fn of(slices: &[(u64, u64)]) -> Slices {
        let mut all = Slices::default();
        slices.iter().for_each(|(units, born)| all.add(slice(*units, *born)));
        all
    }

    #[test]
    fn the_first_to_die_is_spent_first_whatever_came_first() {
        let mut slices = of(&[(10, 50), (10, 0), (10, 20)]);
        assert_eq!(slices.spend(12, at(60)), at(100));
        assert_eq!(slices.bury(at(100)), 0, "the first one is used up");
        assert_eq!(slices.bury(at(120)), 8);
        assert_eq!(slices.units(), 10);
    }

    #[test]
    fn the_two_that_end_closest_become_one_that_ends_first() {
        let mut slices = of(&[(1, 0), (2, 30), (4, 35), (8, 60), (16, 90)]);
        assert_eq!(slices.units(), 31);
        assert_eq!(slices.bury(at(130)), 1 + 2 + 4, "none lives longer for it");
        assert_eq!(slices.bury(at(160)), 8);
    }

    #[test]
    fn units_are_put_back_where_they_live_no_longer() {
        let mut slices = of(&[(2, 0), (5, 60)]);
        let dies = slices.spend(2, at(70));
        assert!(slices.put_back(2, dies));
        assert_eq!(slices.bury(at(100)), 2);
        assert!(!slices.put_back(2, at(99)), "every slice dies later");
    }

    #[test]
    fn what_is_left_of_a_window_lives_on_with_what_was_taken_later_in_it() {
        let mut slices = of(&[(2, 0), (5, 60)]);
        let mut next = Slice { resets: at(1_001), ..slice(1, 90) };
        slices.renew(&mut next, Nanos::from_millis(125));
        slices.add(next);
        assert_eq!((slices.bury(at(189)), slices.units()), (0, 8));
        let mut other = Slice { resets: at(2_000), ..slice(1, 189) };
        slices.renew(&mut other, Nanos::from_millis(125));
        slices.add(other);
        assert_eq!((slices.bury(at(190)), slices.units()), (8, 1), "another window");
    }

    #[test]
    fn places_of_used_slices_are_taken_again() {
        let mut slices = of(&[(1, 0), (1, 10), (1, 20), (1, 30)]);
        slices.spend(2, at(40));
        slices.add(slice(1, 40));
        slices.add(slice(1, 50));
        assert_eq!(slices.bury(at(130)), 2);
        assert_eq!(slices.last_end(), Some(at(150)));
    }
}
