//! Permits: slots of concurrency limits that are held from a check to its release.
//!
//! A check that takes slots is answered with a token; `/v1/release` with that token frees them.

use std::fmt;

use tidegate_admission::HeldSlots;
use tidegate_engine::{Nanos, Period, Verdict};

use crate::tokens::TokenTable;

/// The permits that are held.
pub(super) type Permits = TokenTable<HeldSlots>;

/// The table of permits is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyPermits;

impl fmt::Display for TooManyPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many permits are held; the slots were freed")
    }
}

/// How long the slots of a verdict are held unless they are released: the longest time to live of its limits.
pub(super) fn time_to_live(verdict: &Verdict) -> Nanos {
    let limits = verdict.rulings().iter().filter_map(|ruling| verdict.limit(ruling));
    let lives = limits.filter_map(|limit| limit.limit.algorithm().slot_time_to_live());
    lives.max().map_or(Nanos::ZERO, Period::as_span)
}
