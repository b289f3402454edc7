//! How many hits each limit admitted and refused.
//!
//! One cache line per limit, touched once per ruling: cheap enough to be always on in a service. Counts are in hits, as
//! costs are, and survive a change of rules, by the limit's identity. There are no keys here: who was refused is a
//! matter for an [`Observer`](crate::Observer).
//!
//! A request that is admitted and turned away a moment later was refused. Its hits move from one count to the other,
//! but no count that was read ever falls: a falling counter looks like a restart.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_algorithms::Decision;
use tidegate_stores::{Role, Verb};

/// The decisions of one limit so far, in hits.
///
/// Every hit that was checked is in `within` or in `over`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Admitted by the limit.
    pub within: u64,
    /// Of those, the hits in the last part of the limit; see [`NearLimit`].
    pub near: u64,
    /// Of those admitted, the hits on a soft limit's allowance.
    pub soft: u64,
    /// Refused by the limit.
    pub over: u64,
    /// Of those refused, the hits that proceeded because the limit is in shadow.
    pub shadow: u64,
    /// Refunded.
    pub refunded: u64,
}

impl Tally {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Tally) -> Self {
        Tally {
            within: self.within.saturating_add(other.within),
            near: self.near.saturating_add(other.near),
            soft: self.soft.saturating_add(other.soft),
            over: self.over.saturating_add(other.over),
            shadow: self.shadow.saturating_add(other.shadow),
            refunded: self.refunded.saturating_add(other.refunded),
        }
    }
}

/// The share of a limit from which its use counts as near the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearLimit {
    millionths: u32,
}

impl NearLimit {
    /// From this share, in millionths; a million or more means never.
    pub const fn from_millionths(millionths: u32) -> Self {
        NearLimit { millionths }
    }

    /// How many of the last `cost` hits are near the limit, when `used` of it are now used.
    #[inline]
    pub fn part(self, limit: u64, used: u64, cost: u64) -> u64 {
        let scaled = u128::from(limit) * u128::from(self.millionths);
        if u128::from(used) * 1_000_000 <= scaled {
            return 0;
        }
        let threshold = u64::try_from(scaled / 1_000_000).unwrap_or(u64::MAX);
        cost.min(used.saturating_sub(threshold))
    }
}

impl Default for NearLimit {
    /// From four fifths, as in envoyproxy/ratelimit.
    fn default() -> Self {
        NearLimit { millionths: 800_000 }
    }
}

/// The counters of a limit, aligned to cache lines so that limits do not share one; decisions touch the first line only.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct TallyCell {
    admitted: AdmittedHits,
    over: AtomicU64,
    shadow: AtomicU64,
    refunded: AtomicU64,
    /// Of the hits admitted, those of requests that were turned away.
    turned_away: AdmittedHits,
    /// The highest count of admitted hits that was read; without those turned away it could fall.
    read: AdmittedHits,
}

/// Counts of admitted hits, as in [`Tally`].
#[derive(Debug, Default)]
#[repr(C)]
struct AdmittedHits {
    within: AtomicU64,
    near: AtomicU64,
    soft: AtomicU64,
}

impl AdmittedHits {
    /// Counts hits that a decision admitted.
    #[inline]
    fn add(&self, near: NearLimit, hits: u64, decision: &Decision) {
        let used = decision.limit.saturating_sub(decision.remaining);
        add(&self.within, hits);
        add(&self.near, near.part(decision.limit, used, hits));
        add(&self.soft, if decision.soft { hits } else { 0 });
    }
}

impl TallyCell {
    /// Counts one decision.
    #[inline]
    pub fn count(&self, verb: Verb, near: NearLimit, role: Role, cost: u64, decision: &Decision) {
        let admitted = match verb {
            Verb::Check | Verb::Charge if decision.is_admitted() => cost,
            Verb::Check | Verb::Charge => 0,
            Verb::Take => decision.taken.min(cost),
            Verb::Refund => return add(&self.refunded, cost),
            Verb::Peek | Verb::Reset => return,
        };
        if admitted > 0 {
            self.admitted.add(near, admitted, decision);
        }
        let refused = cost - admitted;
        add(&self.over, refused);
        add(&self.shadow, if role == Role::Observed { refused } else { 0 });
    }

    /// Moves admitted hits to the refused: their request is turned away.
    pub fn turn_away(&self, near: NearLimit, cost: u64, decision: &Decision) {
        self.turned_away.add(near, cost, decision);
        add(&self.over, cost);
    }

    /// The counts so far. None of them ever falls.
    pub fn read(&self) -> Tally {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let left = |of: fn(&AdmittedHits) -> &AtomicU64| {
            let left = read(of(&self.admitted)).saturating_sub(read(of(&self.turned_away)));
            of(&self.read).fetch_max(left, Ordering::Relaxed).max(left)
        };
        Tally {
            within: left(|hits| &hits.within),
            near: left(|hits| &hits.near),
            soft: left(|hits| &hits.soft),
            over: read(&self.over),
            shadow: read(&self.shadow),
            refunded: read(&self.refunded),
        }
    }
}

#[inline]
fn add(count: &AtomicU64, hits: u64) {
    if hits > 0 {
        count.fetch_add(hits, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::{Nanos, Outcome, Retry};

    use super::*;

    #[test]
    fn only_the_part_of_a_cost_beyond_the_share_is_near() {
        let near = NearLimit::default();
        assert_eq!(near.part(10, 8, 8), 0);
        assert_eq!(near.part(10, 9, 1), 1);
        assert_eq!(near.part(10, 10, 10), 2);
        assert_eq!(near.part(0, 0, 0), 0);
        assert_eq!(near.part(u64::MAX, u64::MAX, u64::MAX), u64::MAX / 5);
        assert_eq!(NearLimit::from_millionths(1_000_000).part(10, 10, 10), 0);
    }

    const LEAKY: Decision = Decision {
        outcome: Outcome::Admitted,
        limit: 10,
        remaining: 0,
        taken: 3,
        retry: Retry::Now,
        reset_after: Nanos::ZERO,
        delay: Nanos::from_secs(1),
        soft: false,
    };

    #[test]
    fn hits_that_are_turned_away_are_over_and_no_longer_within() {
        let (cell, near) = (TallyCell::default(), NearLimit::default());
        for _ in 0..2 {
            cell.count(Verb::Check, near, Role::Required, 3, &LEAKY);
        }
        cell.turn_away(near, 3, &LEAKY);
        assert_eq!(cell.read(), Tally { within: 3, near: 2, over: 3, ..Tally::default() });
    }

    #[test]
    fn of_hits_that_are_taken_as_far_as_they_go_the_rest_is_over() {
        let cell = TallyCell::default();
        cell.count(Verb::Take, NearLimit::default(), Role::Required, 5, &LEAKY);
        assert_eq!(cell.read(), Tally { within: 3, near: 2, over: 2, ..Tally::default() });
    }

    #[test]
    fn a_count_that_was_read_does_not_fall() {
        let (cell, near) = (TallyCell::default(), NearLimit::default());
        cell.count(Verb::Check, near, Role::Required, 3, &LEAKY);
        assert_eq!(cell.read(), Tally { within: 3, near: 2, ..Tally::default() });
        cell.turn_away(near, 3, &LEAKY);
        assert_eq!(cell.read(), Tally { within: 3, near: 2, over: 3, ..Tally::default() });
        cell.count(Verb::Check, near, Role::Required, 3, &LEAKY);
        assert_eq!(cell.read(), Tally { within: 3, near: 2, over: 3, ..Tally::default() });
    }
}
