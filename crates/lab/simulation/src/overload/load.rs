//! The offered load: arrivals and service times.
//!
//! Arrivals are open loop: they do not wait for earlier answers. A load generator that does slows
//! down with the server and hides the overload.

use tidegate_algorithms::Timestamp;
use tidegate_overload::{Caller, Category, Level};

use super::draw::{Gaps, exponential, unit, whole};
use crate::chance::Chance;
use crate::time::SECOND;

/// Callers of a run. A power of two, so that one is drawn by a mask.
pub(crate) const TENANTS: usize = 1_024;

/// One number for each category, by rank.
pub(crate) type PerCategory<T> = [T; 4];

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The index of its record while it is queued or served.
    pub(crate) slot: u32,
    /// The number of the request.
    pub(crate) sequence: u64,
    pub(crate) category: Category,
    pub(crate) tenant: u16,
    /// Category and cohort of the tenant.
    pub(crate) level: Level,
    pub(crate) arrived: u64,
    /// When its client times out.
    pub(crate) deadline: u64,
    /// 1 for the first of several attempts.
    pub(crate) attempt: u8,
    /// 1 for the first call of a task.
    pub(crate) call: u8,
}

/// The index of a slot.
pub(crate) fn slot_index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

/// The level of each tenant in each category in the simulated hour.
#[derive(Clone, Debug)]
pub(crate) struct Levels(Vec<PerCategory<Level>>);

impl Levels {
    pub(crate) fn new() -> Self {
        let of = |tenant: usize| {
            let caller = Caller::named(tenant.to_string());
            Category::ALL.map(|category| Level::of(category, caller, Timestamp::EPOCH))
        };
        Levels((0..TENANTS).map(of).collect())
    }

    pub(crate) fn of(&self, category: Category, tenant: u16) -> Level {
        let levels = self.0.get(usize::from(tenant));
        levels.map_or(Level::CRITICAL, |levels| levels[category.rank()])
    }
}

/// Arrivals at a rate for each category, one after another.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    chance: Chance,
    gaps: Gaps,
    /// The mean gap in nanoseconds.
    gap: f64,
    /// How many of 2^32 draws give this category or a lower one.
    up_to: PerCategory<u64>,
    /// How many of 2^16 draws give the noisy tenant.
    noisy: u64,
    next_at: u64,
}

impl Arrivals {
    pub(crate) fn new(seed: u64, noisy_share: f64) -> Self {
        let noisy = whole(noisy_share * 65_536.0);
        let chance = Chance::new(seed);
        let gaps = Gaps::new();
        Arrivals { chance, gaps, gap: f64::INFINITY, up_to: [0; 4], noisy, next_at: u64::MAX }
    }

    /// Sets the rate of each category from `now` on. The next arrival is drawn again, which is
    /// correct because exponential gaps have no memory.
    pub(crate) fn set_rates(&mut self, now: u64, rates: &PerCategory<f64>) {
        let total: f64 = rates.iter().sum();
        self.gap = if total > 0.0 { SECOND as f64 / total } else { f64::INFINITY };
        let mut sum = 0.0;
        for (up_to, rate) in self.up_to.iter_mut().zip(rates) {
            sum += rate;
            *up_to = whole(sum / total * 4_294_967_296.0);
        }
        self.next_at = now;
        self.draw_gap();
    }

    pub(crate) const fn next_at(&self) -> u64 {
        self.next_at
    }

    /// The present arrival. Draws the next one.
    #[inline]
    pub(crate) fn take(&mut self) -> (Category, u16) {
        let drawn = self.chance.next();
        let of = drawn >> 32;
        let category = match self.up_to.iter().position(|up_to| of < *up_to) {
            Some(0) => Category::Test,
            Some(1) => Category::Get,
            Some(2) => Category::Post,
            _ => Category::Critical,
        };
        let tenant = u16::try_from(drawn & 0x3FF).unwrap_or(0);
        let tenant = if (drawn >> 10) & 0xFFFF < self.noisy { 0 } else { tenant };
        self.draw_gap();
        (category, tenant)
    }

    #[inline]
    fn draw_gap(&mut self) {
        let gap = self.gap * self.gaps.draw(&mut self.chance);
        self.next_at = self.next_at.saturating_add(whole(gap));
    }
}

/// The distribution of service times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceTimes {
    /// Lognormal, mean 20 ms, deviation 20 ms. The default.
    Lognormal,
    /// Exponential, mean 20 ms.
    Exponential,
    /// 10 ms for nine of ten, 110 ms for the tenth.
    Bimodal,
    /// Lognormal, mean 200 ms, deviation 200 ms.
    Slow,
    /// Always the same: 50 ms.
    Fixed50,
}

impl ServiceTimes {
    /// All distributions.
    pub const ALL: [ServiceTimes; 5] = [
        ServiceTimes::Lognormal,
        ServiceTimes::Exponential,
        ServiceTimes::Bimodal,
        ServiceTimes::Slow,
        ServiceTimes::Fixed50,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            ServiceTimes::Lognormal => "lognormal",
            ServiceTimes::Exponential => "exponential",
            ServiceTimes::Bimodal => "bimodal",
            ServiceTimes::Slow => "slow",
            ServiceTimes::Fixed50 => "fixed-50ms",
        }
    }

    /// The mean, in nanoseconds.
    pub(crate) const fn mean(self) -> u64 {
        match self {
            ServiceTimes::Lognormal | ServiceTimes::Exponential | ServiceTimes::Bimodal => {
                20_000_000
            }
            ServiceTimes::Slow => 200_000_000,
            ServiceTimes::Fixed50 => 50_000_000,
        }
    }

    pub(crate) fn draw(self, chance: &mut Chance) -> u64 {
        let mean = self.mean() as f64;
        match self {
            ServiceTimes::Lognormal | ServiceTimes::Slow => {
                // A deviation as large as the mean: sigma² = ln 2.
                let variance = std::f64::consts::LN_2;
                let drawn = super::draw::normal(chance) * variance.sqrt() - variance / 2.0;
                whole(mean * drawn.exp())
            }
            ServiceTimes::Exponential => whole(mean * exponential(chance)),
            ServiceTimes::Bimodal if unit(chance) < 0.9 => 10_000_000,
            ServiceTimes::Bimodal => 110_000_000,
            ServiceTimes::Fixed50 => self.mean(),
        }
    }

    /// The percentile of an unloaded server, in nanoseconds.
    pub(crate) fn percentile(self, percent: f64) -> u64 {
        const DRAWS: usize = 200_000;
        let mut chance = Chance::new(0);
        let mut drawn: Vec<u64> = (0..DRAWS).map(|_| self.draw(&mut chance)).collect();
        drawn.sort_unstable();
        let index = whole(percent / 100.0 * DRAWS as f64);
        let index = usize::try_from(index).unwrap_or(0).min(DRAWS - 1);
        drawn.get(index).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_their_rates() {
        let mut arrivals = Arrivals::new(1, 0.0);
        arrivals.set_rates(0, &[200.0, 600.0, 150.0, 50.0]);
        let mut seen = [0_u32; 4];
        while arrivals.next_at() < 100 * SECOND {
            seen[arrivals.take().0.rank()] += 1;
        }
        for (seen, rate) in seen.iter().zip([20_000, 60_000, 15_000, 5_000]) {
            assert!(seen.abs_diff(rate) < 500, "{seen} of {rate}");
        }
    }

    #[test]
    fn a_noisy_tenant_has_its_share() {
        let mut arrivals = Arrivals::new(1, 0.8);
        arrivals.set_rates(0, &[0.0, 100.0, 0.0, 0.0]);
        let noisy = (0..10_000).filter(|_| arrivals.take().1 == 0).count();
        assert!(noisy.abs_diff(8_000) < 150, "{noisy}");
    }

    #[test]
    fn nobody_comes_at_a_rate_of_nothing() {
        let mut arrivals = Arrivals::new(1, 0.0);
        arrivals.set_rates(5, &[0.0; 4]);
        assert_eq!(arrivals.next_at(), u64::MAX);
    }

    #[test]
    fn service_times_have_the_mean_that_capacity_is_counted_by() {
        for times in ServiceTimes::ALL {
            let mut chance = Chance::new(3);
            let sum: u64 = (0..200_000).map(|_| times.draw(&mut chance)).sum();
            let off = (sum as f64 / 200_000.0) / times.mean() as f64 - 1.0;
            assert!(off.abs() < 0.01, "{times:?}: {off}");
        }
    }

    #[test]
    fn a_percentile_lies_where_the_law_says() {
        // exp(2.326 sigma - sigma²/2) times the mean.
        let ninety_nine = ServiceTimes::Lognormal.percentile(99.0) as f64 / 1e6;
        assert!((ninety_nine - 98.1).abs() < 2.0, "{ninety_nine}");
    }
}
