//! Estimates how many units of a key this node will use, and so how many to hold.
//!
//! Arrivals are random: of n expected, n ± √n come. A slice with a margin of 2√n would seldom run dry, but many of its
//! units would expire unused. So the margin is mostly in *when* more is taken: while the units still last for the time
//! that a renewal needs, plus √n. That means more keys in a renewal, which is one batch anyway, and wastes few units.
//!
//! Counts in fractions of a unit: a slow key uses less than one unit per slice, and rounding errors must not add up.

use tidegate_algorithms::Nanos;

/// Fractions in a unit.
const PARTS: u64 = 1_024;
/// The estimate averages over about this many slices: random arrivals in fewer vary too much.
const AVERAGED_SLICES: u128 = 4;
/// The shortest time that the estimate uses.
const PERIOD_MIN: Nanos = Nanos::from_millis(1);
/// Keeps sums far from overflow.
const PARTS_MAX: u64 = u64::MAX / 64;

/// The units that are expected to be used per slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    parts: u64,
    lasting: Nanos,
}

/// The usage of a key over some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) units: u64,
    pub(super) passed: Nanos,
    /// Whether all units were used: more might have been.
    pub(super) ran_dry: bool,
}

impl Demand {
    /// One unit per slice of this duration.
    pub(super) fn new(lasting: Nanos) -> Self {
        Demand { parts: PARTS, lasting: lasting.max(PERIOD_MIN) }
    }

    /// Updates the estimate with the usage since the last update.
    pub(super) fn update(&mut self, used: Usage) {
        let (lasting, passed) = (wide(self.lasting), wide(used.passed.max(PERIOD_MIN)));
        let (known, new) = (u128::from(self.parts), u128::from(used.units) * u128::from(PARTS));
        let averaged = AVERAGED_SLICES * lasting;
        let sum = (known * averaged).saturating_add(new.saturating_mul(lasting));
        let usual = sum / (averaged + passed);
        let more = used.ran_dry || used.units > self.most_in(used.passed);
        let parts = if more && passed < lasting {
            // Extrapolate, but at most double: it may have been a burst.
            let double = known.max(u128::from(PARTS)) * 2;
            usual.max((new.saturating_mul(lasting) / passed).min(double))
        } else {
            usual
        };
        self.parts = narrow(parts).min(PARTS_MAX);
    }

    /// How many units to hold after a renewal.
    pub(super) fn size(self) -> u64 {
        self.parts.saturating_add(root(self.parts) / 2).div_ceil(PARTS).max(1)
    }

    /// What may be used in a span: the expectation plus its square root.
    #[inline]
    pub(super) fn likely_in(self, span: Nanos) -> u64 {
        let parts = self.parts_in(span);
        parts.saturating_add(root(parts)) / PARTS
    }

    /// The expected usage in a span.
    pub(super) fn expected_in(self, span: Nanos) -> u64 {
        self.parts_in(span) / PARTS
    }

    /// A usage above this in a span means that the demand has changed.
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

/// The square root of a number of units, in fractions.
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

    fn used(units: u64, millis: u64) -> Usage {
        Usage { units, passed: Nanos::from_millis(millis), ran_dry: false }
    }

    /// The estimate after a steady usage.
    fn steady(units: u64, millis: u64) -> Demand {
        let mut demand = Demand::new(LASTING);
        for _ in 0..200 {
            demand.update(used(units, millis));
        }
        demand
    }

    #[test]
    fn follows_the_usage_however_often_it_is_updated() {
        for (units, millis) in [(40, 400), (10, 100), (1, 10)] {
            let demand = steady(units, millis);
            assert!((9..=10).contains(&demand.expected_in(LASTING)), "{demand:?}");
        }
        assert_eq!(steady(0, 100).size(), 1, "at least one unit");
    }

    #[test]
    fn random_variation_changes_little() {
        let mut demand = steady(10, 100);
        demand.update(used(6, 10));
        assert!(demand.expected_in(LASTING) <= 11, "{demand:?}");
        demand.update(used(12, 10));
        assert!(demand.expected_in(LASTING) >= 20, "ten times as much is no chance: {demand:?}");
    }

    #[test]
    fn doubles_while_slices_run_dry_sooner_than_they_should() {
        let mut demand = Demand::new(LASTING);
        let mut sizes = Vec::new();
        for _ in 0..5 {
            demand.update(Usage { ran_dry: true, ..used(demand.size(), 1) });
            sizes.push(demand.expected_in(LASTING));
        }
        assert_eq!(sizes, [2, 4, 8, 16, 32]);
        demand.update(Usage { ran_dry: true, ..used(32, 90) });
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
    fn no_usage_overflows() {
        let mut demand = Demand::new(Nanos::MAX);
        demand.update(Usage { units: u64::MAX, passed: Nanos::ZERO, ran_dry: true });
        demand.update(Usage { units: u64::MAX, passed: Nanos::MAX, ran_dry: false });
        let mut short = Demand::new(Nanos::ZERO);
        for _ in 0..100 {
            short.update(Usage { units: u64::MAX, passed: Nanos::ZERO, ran_dry: true });
        }
        assert_eq!(short.parts, PARTS_MAX);
        assert!(short.size() < u64::MAX);
        assert!(short.likely_in(Nanos::MAX) > 0);
    }
}
