//! How much of a key this node is about to use, and so how much to hold of it.
//!
//! Arrivals are random: where n are expected, n ± √n come. A slice that carried
//! twice that more would seldom run dry, and half of it would end unused. So the
//! margin lies mostly in *when* more is taken: while what is held still lasts
//! for the time that taking more needs, and √n longer. That costs more keys in a
//! renewal, which one call carries anyway, and wastes few units.
//!
//! Counts in small parts of a unit: what a slow key uses while a slice lasts is
//! less than one, and rounding must not add up.

use tidegate_algorithms::Nanos;

/// Parts of a unit.
const PARTS: u64 = 1_024;
/// The last so many slices say how much the next one should be. Fewer are not
/// enough of random arrivals to judge by.
const JUDGED_BY: u128 = 4;
/// Demand is not judged by less time than this.
const JUDGED_MIN: Nanos = Nanos::from_millis(1);
/// Nothing has this demand; keeps sums far from where they overflow.
const PARTS_MAX: u64 = u64::MAX / 64;

/// What is expected to be used while a slice lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    parts: u64,
    lasting: Nanos,
}

/// What was used of a key for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) units: u64,
    pub(super) passed: Nanos,
    /// Whether nothing is left: nobody knows how much more would have been used.
    pub(super) ran_dry: bool,
}

impl Demand {
    /// One unit for each slice, which is meant to last so long.
    pub(super) fn new(lasting: Nanos) -> Self {
        Demand { parts: PARTS, lasting: lasting.max(JUDGED_MIN) }
    }

    /// Follows what was used since the last time.
    pub(super) fn follow(&mut self, used: Used) {
        let (lasting, passed) = (wide(self.lasting), wide(used.passed.max(JUDGED_MIN)));
        let (known, new) = (u128::from(self.parts), u128::from(used.units) * u128::from(PARTS));
        let judged = JUDGED_BY * lasting;
        let sum = (known * judged).saturating_add(new.saturating_mul(lasting));
        let usual = sum / (judged + passed);
        let more = used.ran_dry || used.units > self.most_in(used.passed);
        let parts = if more && passed < lasting {
            // At this pace, but no more than double: it may have been a burst.
            let double = known.max(u128::from(PARTS)) * 2;
            usual.max((new.saturating_mul(lasting) / passed).min(double))
        } else {
            usual
        };
        self.parts = narrow(parts).min(PARTS_MAX);
    }

    /// How many units to hold after taking more.
    pub(super) fn size(self) -> u64 {
        self.parts.saturating_add(root(self.parts) / 2).div_ceil(PARTS).max(1)
    }

    /// What may well be used in a span: the expected, and its square root.
    #[inline]
    pub(super) fn likely_in(self, span: Nanos) -> u64 {
        let parts = self.parts_in(span);
        parts.saturating_add(root(parts)) / PARTS
    }

    /// What is expected to be used in a span.
    pub(super) fn expected_in(self, span: Nanos) -> u64 {
        self.parts_in(span) / PARTS
    }

    /// More than this is used in a span only if the demand has changed.
    fn most_in(self, span: Nanos) -> u64 {
        let parts = self.parts_in(span);
        parts.saturating_add(root(parts).saturating_mul(4)) / PARTS + 2
    }

    #[inline]
    fn parts_in(self, span: Nanos) -> u64 {
        let parts = u128::from(self.parts) * wide(span) / wide(self.lasting);
        narrow(parts).min(PARTS_MAX)
    }
}

/// The square root, of parts and in parts.
#[inline]
fn root(parts: u64) -> u64 {
    parts.saturating_mul(PARTS).isqrt()
}

fn wide(span: Nanos) -> u128 {
    u128::from(span.get())
}

fn narrow(parts: u128) -> u64 {
    u64::try_from(parts).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTING: Nanos = Nanos::from_millis(100);

    fn used(units: u64, millis: u64) -> Used {
        Used { units, passed: Nanos::from_millis(millis), ran_dry: false }
    }

    /// What is known after a while of so many units every so often.
    fn steady(units: u64, millis: u64) -> Demand {
        let mut demand = Demand::new(LASTING);
        for _ in 0..200 {
            demand.follow(used(units, millis));
        }
        demand
    }

    #[test]
    fn follows_what_is_used_however_often_it_is_told() {
        for (units, millis) in [(40, 400), (10, 100), (1, 10)] {
            let demand = steady(units, millis);
            assert!((9..=10).contains(&demand.expected_in(LASTING)), "{demand:?}");
        }
        assert_eq!(steady(0, 100).size(), 1, "one, in case that somebody comes");
    }

    #[test]
    fn what_may_be_chance_does_not_change_much() {
        let mut demand = steady(10, 100);
        demand.follow(used(6, 10));
        assert!(demand.expected_in(LASTING) <= 11, "{demand:?}");
        demand.follow(used(12, 10));
        assert!(demand.expected_in(LASTING) >= 20, "ten times as much is no chance: {demand:?}");
    }

    #[test]
    fn doubles_while_slices_run_dry_sooner_than_they_should() {
        let mut demand = Demand::new(LASTING);
        let mut sizes = Vec::new();
        for _ in 0..5 {
            demand.follow(Used { ran_dry: true, ..used(demand.size(), 1) });
            sizes.push(demand.expected_in(LASTING));
        }
        assert_eq!(sizes, [2, 4, 8, 16, 32]);
        demand.follow(Used { ran_dry: true, ..used(32, 90) });
        assert!(demand.expected_in(LASTING) < 37, "by what was used: {demand:?}");
    }

    #[test]
    fn carries_half_a_root_more_and_renews_a_root_early() {
        let demand = Demand { parts: 16 * PARTS, lasting: LASTING };
        assert_eq!(demand.size(), 18);
        assert_eq!(demand.likely_in(LASTING), 20);
        assert_eq!(demand.likely_in(Nanos::from_millis(25)), 6);
        assert_eq!(demand.likely_in(Nanos::ZERO), 0);
    }

    #[test]
    fn no_use_is_too_much() {
        let mut demand = Demand::new(Nanos::MAX);
        demand.follow(Used { units: u64::MAX, passed: Nanos::ZERO, ran_dry: true });
        demand.follow(Used { units: u64::MAX, passed: Nanos::MAX, ran_dry: false });
        let mut short = Demand::new(Nanos::ZERO);
        for _ in 0..100 {
            short.follow(Used { units: u64::MAX, passed: Nanos::ZERO, ran_dry: true });
        }
        assert_eq!(short.parts, PARTS_MAX);
        assert!(short.size() < u64::MAX);
        assert!(short.likely_in(Nanos::MAX) > 0);
    }
}
