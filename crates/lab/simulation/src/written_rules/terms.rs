//! The terms of a limit.

use crate::time::{DAY, MILLISECOND, SECOND};

/// An algorithm's parameters, hard or soft. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) kind: Kind,
    pub(crate) soft: Option<SoftTerms>,
}

/// The six algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    TokenBucket { amount: u64, period: u64, burst: u64 },
    LeakyBucket { amount: u64, period: u64, queue: u64 },
    FixedWindow { limit: u64, window: Window, count_refused: bool },
    SlidingLog { limit: u64, period: u64, count_refused: bool },
    SlidingWindow { limit: u64, period: u64, buckets: u64, count_refused: bool, rounds_down: bool },
    Concurrency { limit: u64, time_to_live: u64 },
}

/// The boundaries of fixed windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// Windows of one length, from the epoch.
    Every(u64),
    /// Days of the calendar in Tokyo, which is always nine hours ahead.
    DayInTokyo,
    /// Weeks of the calendar in UTC, from Monday; the epoch was a Thursday.
    Week,
}

/// A soft allowance: how far above the limit, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SoftTerms {
    pub(crate) over_percent: u64,
    pub(crate) lasting: u64,
}

impl Window {
    /// The number of the window that an instant is in.
    pub(crate) const fn number(self, at: u64) -> u64 {
        match self {
            Window::Every(length) => at / length,
            Window::DayInTokyo => (at + 9 * 3_600 * SECOND) / DAY,
            Window::Week => (at / DAY + 3) / 7,
        }
    }

    const fn length(self) -> u64 {
        match self {
            Window::Every(length) => length,
            Window::DayInTokyo => DAY,
            Window::Week => 7 * DAY,
        }
    }
}

impl Terms {
    /// The word for the algorithm in a rule file.
    pub(crate) const fn algorithm(&self) -> &'static str {
        match self.kind {
            Kind::TokenBucket { .. } => "token_bucket",
            Kind::LeakyBucket { .. } => "leaky_bucket",
            Kind::FixedWindow { .. } => "fixed_window",
            Kind::SlidingLog { .. } => "sliding_log",
            Kind::SlidingWindow { .. } => "sliding_window",
            Kind::Concurrency { .. } => "concurrency",
        }
    }

    /// What an unused counter admits at once.
    pub(crate) const fn capacity(&self) -> u64 {
        match self.kind {
            Kind::TokenBucket { amount: 0, .. } | Kind::LeakyBucket { amount: 0, .. } => 0,
            Kind::TokenBucket { burst, .. } => burst,
            Kind::LeakyBucket { queue, .. } => queue + 1,
            Kind::FixedWindow { limit, .. }
            | Kind::SlidingLog { limit, .. }
            | Kind::SlidingWindow { limit, .. }
            | Kind::Concurrency { limit, .. } => limit,
        }
    }

    /// The same with the soft allowance.
    pub(crate) const fn stretched(&self) -> u64 {
        let capacity = self.capacity();
        match self.soft {
            Some(soft) => capacity + capacity * soft.over_percent / 100,
            None => capacity,
        }
    }

    /// The period of the limit; the life of a slot.
    pub(crate) const fn period(&self) -> u64 {
        match self.kind {
            Kind::TokenBucket { period, .. }
            | Kind::LeakyBucket { period, .. }
            | Kind::SlidingLog { period, .. }
            | Kind::SlidingWindow { period, .. } => period,
            Kind::FixedWindow { window, .. } => window.length(),
            Kind::Concurrency { time_to_live, .. } => time_to_live,
        }
    }

    /// How far back a reading of the clock may be to count as late.
    pub(crate) fn lag_max(&self) -> u64 {
        self.period().min(SECOND)
    }

    /// After this time without use the counter is as good as unused.
    pub(crate) fn idle_after(&self) -> u64 {
        let refill = match self.kind {
            Kind::TokenBucket { amount, period, .. } | Kind::LeakyBucket { amount, period, .. } => {
                self.stretched().saturating_mul(period) / amount.max(1)
            }
            _ => 0,
        };
        let rest = self.soft.map_or(0, |soft| soft.lasting + self.period());
        refill + rest + 2 * self.period() + MILLISECOND
    }

    pub(crate) const fn counts_refused(&self) -> bool {
        match self.kind {
            Kind::FixedWindow { count_refused, .. }
            | Kind::SlidingLog { count_refused, .. }
            | Kind::SlidingWindow { count_refused, .. } => count_refused,
            Kind::TokenBucket { .. } | Kind::LeakyBucket { .. } | Kind::Concurrency { .. } => false,
        }
    }
}
