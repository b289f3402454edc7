//! The slices of a key, in the order of their expiry.
//!
//! Slices are spent in that order, so that the next one can be taken before this one is used up. Every unit is spent
//! before it expires, returned, or lost. If there are more slices than fit, two are merged with the earlier expiry: no
//! unit may live longer because of it.

use smallvec::SmallVec;
use tidegate_algorithms::{Nanos, Timestamp};

use super::super::lease_terms::{ReturnRule, refilled};

/// How far a clock may step back undetected. Units expire this much earlier.
pub(crate) const CLOCK_SLACK: Nanos = Nanos::from_millis(5);
/// Enough for the slices that are taken within a life at the usual rate of renewals.
const SLICES_HELD_MAX: usize = 4;

/// Units that were taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) units: u64,
    /// Lower bound of the time at which the remote charged them.
    pub(super) taken_at: Timestamp,
    /// From then on they must not be used.
    pub(super) expires: Timestamp,
    /// Lower bound of the end of their window.
    pub(super) resets: Timestamp,
}

/// The slices of a key, in the order of their expiry. Used up slices stay until their position is needed, because units
/// may be put back.
#[derive(Debug, Default)]
pub(super) struct Slices([Slice; SLICES_HELD_MAX]);

impl Slices {
    /// All units.
    #[inline]
    pub(super) fn units(&self) -> u64 {
        sum(self.0.iter().map(|slice| slice.units))
    }

    /// The units that a request at `now` may spend. A slice that was taken later means that the clock was set back, or
    /// that the request was delayed after it read the clock. The slice is not used: in the first case all slices are
    /// voided soon.
    #[inline]
    pub(super) fn usable(&self, now: Timestamp) -> u64 {
        sum(self.0.iter().map(|slice| slice.usable(now)))
    }

    /// The units that will not have expired at `then`.
    pub(super) fn left_at(&self, then: Timestamp) -> u64 {
        sum(self.0.iter().filter(|slice| slice.expires > then).map(|slice| slice.units))
    }

    /// When the first units expire.
    pub(super) fn first_expiry(&self) -> Option<Timestamp> {
        self.0.iter().find(|slice| slice.units > 0).map(|slice| slice.expires)
    }

    /// When the last units expire.
    pub(super) fn last_expiry(&self) -> Option<Timestamp> {
        self.0.iter().rfind(|slice| slice.units > 0).map(|slice| slice.expires)
    }

    /// Drops expired units; returns how many.
    #[inline]
    pub(super) fn drop_expired(&mut self, now: Timestamp) -> u64 {
        let dead = self.0.iter_mut().filter(|slice| slice.expires <= now);
        sum(dead.map(|slice| std::mem::take(&mut slice.units)))
    }

    /// Spends units, of which there must be enough; returns when the first of them expires.
    #[inline]
    pub(super) fn spend(&mut self, cost: u64, now: Timestamp) -> Timestamp {
        let mut missing = cost;
        let mut expires = None;
        for slice in &mut self.0 {
            let part = missing.min(slice.usable(now));
            if part > 0 {
                slice.units -= part;
                missing -= part;
                expires.get_or_insert(slice.expires);
            }
        }
        expires.or_else(|| self.last_expiry()).unwrap_or(now)
    }

    /// Puts units back into a slice that expires no later than `expires`.
    pub(super) fn put_back(&mut self, units: u64, expires: Timestamp) -> bool {
        let fits = |slice: &&mut Slice| slice.taken_at < slice.expires && slice.expires <= expires;
        let Some(slice) = self.0.iter_mut().rfind(fits) else { return false };
        slice.units = slice.units.saturating_add(units);
        true
    }

    /// Adds a slice.
    pub(super) fn add(&mut self, slice: Slice) {
        match self.0.iter_mut().find(|used| used.units == 0) {
            Some(used) => *used = slice,
            None => self.merge(slice),
        }
        self.0.sort_unstable_by_key(|slice| slice.expires);
    }

    /// Adds a slice beyond the maximum: the two whose expiries are closest are merged.
    fn merge(&mut self, slice: Slice) {
        let mut all: SmallVec<[Slice; SLICES_HELD_MAX + 1]> = self.0.iter().copied().collect();
        all.push(slice);
        all.sort_unstable_by_key(|slice| slice.expires);
        let gaps = all.windows(2).map(|pair| pair[1].expires.since(pair[0].expires));
        let closest = gaps.enumerate().min_by_key(|(_, gap)| *gap);
        let earlier = closest.map_or(0, |(index, _)| index);
        let later = all.remove(earlier + 1);
        all[earlier] = all[earlier].with(&later);
        for (old, slice) in self.0.iter_mut().zip(all) {
            *old = slice;
        }
    }

    /// Moves the units of older slices of the same window into `slice`.
    pub(super) fn renew(&mut self, slice: &mut Slice, same_within: Nanos) {
        let is_same = |old: &&mut Slice| {
            let (first, second) = (old.resets.min(slice.resets), old.resets.max(slice.resets));
            second.since(first) < same_within
        };
        let units =
            sum(self.0.iter_mut().filter(is_same).map(|old| std::mem::take(&mut old.units)));
        slice.units = slice.units.saturating_add(units);
    }

    /// Every slice, to return units of it.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slice> {
        self.0.iter_mut()
    }
}

impl Slice {
    /// The units that a request at `now` may spend.
    #[inline]
    fn usable(&self, now: Timestamp) -> u64 {
        if now.after(CLOCK_SLACK) < self.taken_at { 0 } else { self.units }
    }

    /// Both merged, with the age of the older.
    fn with(&self, other: &Slice) -> Slice {
        Slice {
            units: self.units.saturating_add(other.units),
            taken_at: self.taken_at.min(other.taken_at),
            expires: self.expires.min(other.expires),
            resets: self.resets.min(other.resets),
        }
    }

    /// How many of the units can be returned to the remote.
    pub(super) fn returnable(&self, returns: ReturnRule, now: Timestamp, within: Nanos) -> u64 {
        match returns {
            ReturnRule::Never => 0,
            ReturnRule::LessRefill { amount, period } => {
                let age = now.since(self.taken_at).get().saturating_add(within.get());
                self.units.saturating_sub(refilled(amount, period, Nanos::new(age)))
            }
            ReturnRule::InWindow => {
                let lasts = now.after(within).after(CLOCK_SLACK) < self.resets;
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

    fn slice(units: u64, taken_at: u64) -> Slice {
        Slice { units, taken_at: at(taken_at), expires: at(taken_at + 100), resets: at(1_000) }
    }

    fn of(slices: &[(u64, u64)]) -> Slices {
        let mut all = Slices::default();
        slices.iter().for_each(|(units, taken_at)| all.add(slice(*units, *taken_at)));
        all
    }

    #[test]
    fn the_slice_that_expires_first_is_spent_first() {
        let mut slices = of(&[(10, 50), (10, 0), (10, 20)]);
        assert_eq!(slices.spend(12, at(60)), at(100));
        assert_eq!(slices.drop_expired(at(100)), 0, "the first one is used up");
        assert_eq!(slices.drop_expired(at(120)), 8);
        assert_eq!(slices.units(), 10);
    }

    #[test]
    fn the_two_slices_that_expire_closest_are_merged_with_the_earlier_expiry() {
        let mut slices = of(&[(1, 0), (2, 30), (4, 35), (8, 60), (16, 90)]);
        assert_eq!(slices.units(), 31);
        assert_eq!(slices.drop_expired(at(130)), 1 + 2 + 4, "no unit lives longer");
        assert_eq!(slices.drop_expired(at(160)), 8);
    }

    #[test]
    fn units_are_put_back_into_a_slice_that_expires_no_later() {
        let mut slices = of(&[(2, 0), (5, 60)]);
        let expires = slices.spend(2, at(70));
        assert!(slices.put_back(2, expires));
        assert_eq!(slices.drop_expired(at(100)), 2);
        assert!(!slices.put_back(2, at(99)), "every slice expires later");
    }

    #[test]
    fn unused_units_of_a_window_live_as_long_as_its_newest_slice() {
        let mut slices = of(&[(2, 0), (5, 60)]);
        let mut next = Slice { resets: at(1_001), ..slice(1, 90) };
        slices.renew(&mut next, Nanos::from_millis(125));
        slices.add(next);
        assert_eq!((slices.drop_expired(at(189)), slices.units()), (0, 8));
        let mut other = Slice { resets: at(2_000), ..slice(1, 189) };
        slices.renew(&mut other, Nanos::from_millis(125));
        slices.add(other);
        assert_eq!((slices.drop_expired(at(190)), slices.units()), (8, 1), "another window");
    }

    #[test]
    fn a_new_slice_replaces_a_used_one() {
        let mut slices = of(&[(1, 0), (1, 10), (1, 20), (1, 30)]);
        slices.spend(2, at(40));
        slices.add(slice(1, 40));
        slices.add(slice(1, 50));
        assert_eq!(slices.drop_expired(at(130)), 2);
        assert_eq!(slices.last_expiry(), Some(at(150)));
    }
}
