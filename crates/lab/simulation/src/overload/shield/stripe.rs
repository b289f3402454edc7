//! Stripe's worker utilization shedder, on top of the static limit.
//!
//! The published law: an amount to shed is summed up over time from the share of
//! workers that are busy. Facts from the article and its gist. The article
//! sheds categories one after another but does not say how an amount becomes
//! categories; here the amount is the share of all traffic, lowest category first,
//! which is the reading most in its favour. The gist's rounding of the resting
//! amount to a whole, which would start shedding after 120 s instead of 28 s,
//! is not copied.

use super::{
    Answer, Controls, FinishedRequest, RefusalStage, ReleasedRequests, Shield, StaticLimit,
    StaticSettings,
};
use crate::chance::Chance;
use crate::overload::draw::unit;
use crate::overload::load::{PerCategory, Request};
use crate::time::SECOND;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StripeSettings {
    /// The time between two readings of utilization: 8 s in the gist.
    pub(crate) period: u64,
    /// Below it the amount falls: 0.7 in the gist.
    pub(crate) low: f64,
    /// Above it the amount rises: 0.8 in the gist.
    pub(crate) high: f64,
    /// From nothing to everything: 120 s in the gist.
    pub(crate) ramp: f64,
}

impl Default for StripeSettings {
    fn default() -> Self {
        StripeSettings { period: 8 * SECOND, low: 0.7, high: 0.8, ramp: 120.0 }
    }
}

/// The time of overload before anything is shed, and the longest step: both 28 s in the gist.
const REST: f64 = 28.0;

#[derive(Clone, Debug)]
pub(crate) struct Stripe {
    settings: StripeSettings,
    ground: StaticLimit,
    workers: u32,
    amount: f64,
    tick_at: u64,
    offered: PerCategory<u64>,
    refused_share: PerCategory<f64>,
    chance: Chance,
}

impl Stripe {
    pub(crate) fn new(workers: u32, settings: StripeSettings, seed: u64) -> Self {
        Stripe {
            settings,
            ground: StaticLimit::new(workers, StaticSettings::default()),
            workers,
            amount: -REST / settings.ramp,
            tick_at: settings.period,
            offered: [0; 4],
            refused_share: [0.0; 4],
            chance: Chance::new(seed),
        }
    }

    fn tick(&mut self) {
        let StripeSettings { period, low, high, ramp } = self.settings;
        let utilization = f64::from(self.ground.inside()) / f64::from(self.workers.max(1));
        let slope = if utilization < low {
            utilization / low - 1.0
        } else if utilization > high {
            (utilization - high) / (1.0 - high)
        } else {
            0.0
        };
        let seconds = (period as f64 / SECOND as f64).min(REST);
        self.amount = (self.amount + slope * seconds / ramp).clamp(-REST / ramp, 1.0);
        self.walk();
        self.tick_at += period;
    }

    /// Spreads the amount over the categories, the lowest first.
    fn walk(&mut self) {
        let total: u64 = self.offered.iter().sum();
        let mut left = self.amount.max(0.0);
        for (share, offered) in self.refused_share.iter_mut().zip(&mut self.offered) {
            let own = std::mem::take(offered) as f64 / total.max(1) as f64;
            *share = if own > 0.0 { (left / own).min(1.0) } else { f64::from(left > 0.0) };
            left = (left - own).max(0.0);
        }
    }
}

impl Shield for Stripe {
    fn arrive(&mut self, now: u64, request: &Request, released: &mut ReleasedRequests) -> Answer {
        let rank = request.category.rank();
        self.offered[rank] += 1;
        let share = self.refused_share[rank];
        if share > 0.0 && unit(&mut self.chance) < share {
            return Answer::Refuse(RefusalStage::Threshold);
        }
        self.ground.arrive(now, request, released)
    }

    fn finished(&mut self, now: u64, done: &FinishedRequest, released: &mut ReleasedRequests) {
        self.ground.finished(now, done, released);
    }

    fn wake_at(&self) -> u64 {
        self.tick_at.min(self.ground.wake_at())
    }

    fn wake(&mut self, now: u64, released: &mut ReleasedRequests) {
        if now >= self.tick_at {
            self.tick();
        }
        self.ground.wake(now, released);
    }

    fn controls(&self) -> Controls {
        Controls { level: 1.0 - self.amount.max(0.0), limit: self.ground.controls().limit }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;
    use tidegate_overload::Category;

    #[test]
    fn sheds_after_half_a_minute_of_full_workers_and_everything_after_two_more() {
        let mut bench = Bench::new(Stripe::new(1, StripeSettings::default(), 1));
        bench.arrive(Category::Get);
        bench.pass(24 * SECOND);
        assert_eq!(bench.shield.controls().level, 1.0);
        bench.pass(16 * SECOND);
        assert!((bench.shield.controls().level - 0.9).abs() < 1e-9);
        bench.pass(120 * SECOND);
        assert_eq!(bench.shield.controls().level, 0.0);
    }

    #[test]
    fn the_lowest_category_goes_first() {
        let mut stripe = Stripe::new(1, StripeSettings::default(), 1);
        stripe.offered = [20, 60, 15, 5];
        stripe.amount = 0.5;
        stripe.walk();
        assert_eq!(stripe.refused_share[0], 1.0);
        assert!((stripe.refused_share[1] - 0.5).abs() < 1e-9);
        assert_eq!(stripe.refused_share[2..], [0.0, 0.0]);
    }
}
