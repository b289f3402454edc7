//! The promises, each checked by brute force on what was seen to happen.
//!
//! A checker is a small type with one method that says what is wrong, if
//! anything. None uses the production arithmetic: they add up histories and
//! compare with what the documents promise.

mod bound;
mod charging;
mod ruling;
mod service;
mod slots;

use std::collections::BTreeMap;

pub(crate) use bound::{
    BucketBound, DepartureSpacing, LogBound, SlidingBound, SoftAllowance, WindowBound,
};
pub(crate) use charging::{Charging, PeekAgrees};
pub(crate) use ruling::{NeededRefusal, NeverFits, Outcome, Roles, Steadfast};
pub(crate) use service::{Decided, HonestRetry, KillSwitch, MemoryBudget};
pub(crate) use slots::{SlotBound, SlotsInUse};

use crate::history::Track;
use crate::written::Kind;

/// What a checker found: in words, what is wrong.
pub(crate) type Finding = Result<(), String>;

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) promise: &'static str,
    pub(crate) detail: String,
}

/// Counts the checks made, by promise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks(pub(crate) BTreeMap<&'static str, u64>);

impl Checks {
    /// Notes one check.
    pub(crate) fn note(&mut self, promise: &'static str, finding: Finding) -> Result<(), Broken> {
        *self.0.entry(promise).or_default() += 1;
        finding.map_err(|detail| Broken { promise, detail })
    }

    /// Checks the bound of a counter that was just charged.
    pub(crate) fn bound(&mut self, track: &Track) -> Result<(), Broken> {
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
            Kind::SlidingWindow { period, buckets, .. } => {
                let bound = SlidingBound { limit, period, buckets };
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
