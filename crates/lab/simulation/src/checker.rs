//! Checkers of the documented promises, by brute force on the history.
//!
//! A checker is a small type with one method that returns what is wrong, if anything. None uses the
//! production arithmetic: they add up the history and compare it with the documents.

mod bound;
mod charging;
mod ruling;
mod service;
mod slots;

use std::collections::BTreeMap;

pub(crate) use bound::{
    BucketBound, DepartureSpacing, LogBound, SlidingBound, SoftAllowance, WindowBound,
};
pub(crate) use charging::{ChargeCheck, PeekAgrees};
pub(crate) use ruling::{NeededRefusal, NeverFits, Outcome, Roles, StableEnforcement};
pub(crate) use service::{DecisionCheck, HonestRetry, KillSwitch, MemoryBudget, SwitchReach};
pub(crate) use slots::{SlotBound, SlotsInUse};

use crate::history::Track;
use crate::written_rules::Kind;

/// The result of a checker: an error describes what is wrong.
pub(crate) type Finding = Result<(), String>;

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokenPromise {
    pub(crate) promise: &'static str,
    pub(crate) detail: String,
}

/// Counts the checks of each promise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks(pub(crate) BTreeMap<&'static str, u64>);

impl Checks {
    /// Counts a check and names its promise in an error.
    pub(crate) fn note(
        &mut self,
        promise: &'static str,
        finding: Finding,
    ) -> Result<(), BrokenPromise> {
        *self.0.entry(promise).or_default() += 1;
        finding.map_err(|detail| BrokenPromise { promise, detail })
    }

    /// Checks the bound of a counter that was just charged.
    pub(crate) fn bound(&mut self, track: &Track) -> Result<(), BrokenPromise> {
        let (admissions, limit) = (&track.admissions, track.terms.stretched());
        match track.terms.kind {
            Kind::TokenBucket { amount, period, .. } => {
                let bucket = BucketBound { capacity: limit, amount, period };
                self.note("token bucket: burst + rate × time", bucket.check(admissions))?;
            }
            Kind::LeakyBucket { amount, period, .. } => {
                let bucket = BucketBound { capacity: limit, amount, period };
                self.note("leaky bucket: no more than the queue waits", bucket.check(admissions))?;
                let spacing = DepartureSpacing { amount, period };
                self.note("leaky bucket: departures are spaced", spacing.check(admissions))?;
            }
            Kind::FixedWindow { .. } if !track.counts_own_window() => {}
            Kind::FixedWindow { window, .. } => {
                let bound = WindowBound { limit, window };
                self.note("fixed window: the limit in one window", bound.check(admissions))?;
            }
            Kind::SlidingLog { period, .. } => {
                let bound = LogBound { limit, period };
                self.note("sliding log: the limit in any period", bound.check(admissions))?;
            }
            Kind::SlidingWindow { period, buckets, rounds_down, .. } => {
                let bound = SlidingBound { limit, period, buckets, rounds_down };
                self.note("sliding window: its two bounds", bound.check(admissions))?;
            }
            Kind::Concurrency { .. } => {
                let bound = SlotBound { limit };
                self.note("concurrency: the limit in flight", bound.check(&track.held))?;
            }
        }
        match track.terms.soft {
            Some(soft) if track.whole && !track.late => {
                let allowance = SoftAllowance { lasting: soft.lasting, rest: track.terms.period() };
                self.note("soft: an allowance closes and rests", allowance.check(admissions))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;
    use crate::written_rules::{SoftTerms, Terms, Window};

    const NOW: u64 = 1_700_000_000 * SECOND;

    /// A counter that admitted so much at one instant, one after another.
    fn used(terms: Terms, times: u64) -> Track {
        let mut track = Track::unused(terms, NOW);
        for permit in 0..times {
            // Departures of a leaky bucket, one second apart.
            track.charge(NOW, 1, permit * SECOND, false);
            track.hold(permit, 1);
        }
        track
    }

    #[test]
    fn one_admission_too_many_is_caught_for_every_algorithm_hard_and_soft() {
        let (limit, period, count_refused) = (4, 4 * SECOND, false);
        let kinds = [
            Kind::TokenBucket { amount: limit, period, burst: limit },
            Kind::LeakyBucket { amount: limit, period, queue: limit - 1 },
            Kind::FixedWindow { limit, window: Window::Every(period), count_refused },
            Kind::SlidingLog { limit, period, count_refused },
            Kind::SlidingWindow { limit, period, buckets: 2, count_refused, rounds_down: false },
            Kind::Concurrency { limit, time_to_live: period },
        ];
        let soft = Some(SoftTerms { over_percent: 50, lasting: SECOND });
        for kind in kinds {
            for (terms, most) in [(Terms { kind, soft: None }, 4), (Terms { kind, soft }, 6)] {
                let mut checks = Checks::default();
                assert_eq!(checks.bound(&used(terms, most)), Ok(()), "{terms:?}");
                assert!(checks.bound(&used(terms, most + 1)).is_err(), "{terms:?}");
            }
        }
    }

    #[test]
    fn an_allowance_that_does_not_close_is_caught() {
        let kind = Kind::TokenBucket { amount: 100, period: SECOND, burst: 100 };
        let soft = Some(SoftTerms { over_percent: 50, lasting: SECOND });
        let mut track = Track::unused(Terms { kind, soft }, NOW);
        track.charge(NOW, 1, 0, true);
        assert_eq!(Checks::default().bound(&track), Ok(()));
        track.charge(NOW + SECOND, 1, 0, true);
        let broken = Checks::default().bound(&track).expect_err("it closed a second ago");
        assert_eq!(broken.promise, "soft: an allowance closes and rests");
    }
}
