//! The count of one limit.

use std::collections::VecDeque;

use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::{Cost, TargetLimit};

use super::{LimitKind, ServiceLimit};

/// The count of one limit.
#[derive(Clone, Debug)]
pub(super) struct LimitState {
    limit: TargetLimit,
    count: Count,
}

#[derive(Clone, Debug)]
enum Count {
    /// The number of the window, and what it has counted.
    FixedWindow { window: u64, used: u64 },
    /// What was accepted in the last window. At most one entry for each unit of the limit.
    SlidingLog { accepted: VecDeque<(Timestamp, u64)>, used: u64 },
    /// Tokens times the length of the window in nanoseconds, so that refilling is exact.
    TokenBucket { depth: u64, tokens: u128, at: Timestamp },
}

impl LimitState {
    pub(super) fn new(service_limit: ServiceLimit) -> Self {
        let ServiceLimit { limit, kind } = service_limit;
        let count = match kind {
            LimitKind::FixedWindow => Count::FixedWindow { window: 0, used: 0 },
            LimitKind::SlidingLog => Count::SlidingLog { accepted: VecDeque::new(), used: 0 },
            LimitKind::TokenBucket { depth } => {
                let tokens = u128::from(depth) * u128::from(limit.window().get());
                Count::TokenBucket { depth, tokens, at: Timestamp::EPOCH }
            }
        };
        LimitState { limit, count }
    }

    pub(super) const fn limit(&self) -> TargetLimit {
        self.limit
    }

    /// Brings the count to `now`.
    fn settle(&mut self, now: Timestamp) {
        let length = self.limit.window().get().max(1);
        match &mut self.count {
            Count::FixedWindow { window, used } => {
                let current = now.as_nanos() / length;
                if current != *window {
                    (*window, *used) = (current, 0);
                }
            }
            Count::SlidingLog { accepted, used } => {
                let is_over = |at: Timestamp| now.since(at).get() >= length;
                while let Some((_, amount)) = accepted.pop_front_if(|(at, _)| is_over(*at)) {
                    *used -= amount;
                }
            }
            Count::TokenBucket { depth, tokens, at } => {
                let refill = u128::from(self.limit.amount) * u128::from(now.since(*at).get());
                *tokens = (*tokens + refill).min(u128::from(*depth) * u128::from(length));
                *at = now.max(*at);
            }
        }
    }

    /// How long a cost has to wait; zero if it fits, `None` if it never does.
    pub(super) fn wait(&mut self, cost: Cost, now: Timestamp) -> Option<Nanos> {
        self.settle(now);
        let amount = cost.of(self.limit.dimension);
        let (max, length) = (self.limit.amount, self.limit.window().get().max(1));
        match &self.count {
            Count::FixedWindow { .. } | Count::SlidingLog { .. } if amount > max => None,
            Count::FixedWindow { window, used } => {
                let end = (window + 1).saturating_mul(length);
                let fits = used + amount <= max;
                Some(if fits { Nanos::ZERO } else { Nanos::new(end - now.as_nanos()) })
            }
            Count::SlidingLog { accepted, used } => {
                let mut excess = (used + amount).saturating_sub(max);
                let mut wait = Nanos::ZERO;
                for (at, part) in accepted {
                    if excess == 0 {
                        break;
                    }
                    excess = excess.saturating_sub(*part);
                    wait = at.after(Nanos::new(length)).since(now);
                }
                Some(wait)
            }
            Count::TokenBucket { depth, .. } if amount > *depth => None,
            Count::TokenBucket { tokens, .. } => {
                let missing = (u128::from(amount) * u128::from(length)).saturating_sub(*tokens);
                let wait = missing.div_ceil(u128::from(max.max(1)));
                Some(Nanos::new(u64::try_from(wait).unwrap_or(u64::MAX)))
            }
        }
    }

    /// Counts an arrival for which [`LimitState::wait`] returned zero.
    pub(super) fn charge(&mut self, cost: Cost, now: Timestamp) {
        let amount = cost.of(self.limit.dimension);
        let length = u128::from(self.limit.window().get());
        match &mut self.count {
            Count::FixedWindow { used, .. } => *used += amount,
            Count::SlidingLog { accepted, used } if amount > 0 => {
                accepted.push_back((now, amount));
                *used += amount;
            }
            Count::SlidingLog { .. } => {}
            Count::TokenBucket { tokens, .. } => {
                *tokens = tokens.saturating_sub(u128::from(amount) * length);
            }
        }
    }

    /// What is left, and the time until all of it is there again.
    pub(super) fn room(&mut self, now: Timestamp) -> (u64, Nanos) {
        self.settle(now);
        let (max, length) = (self.limit.amount, self.limit.window().get().max(1));
        match &self.count {
            Count::FixedWindow { window, used } => {
                let end = (window + 1).saturating_mul(length);
                (max.saturating_sub(*used), Nanos::new(end.saturating_sub(now.as_nanos())))
            }
            Count::SlidingLog { accepted, used } => {
                let last = accepted.back().map_or(now, |(at, _)| at.after(Nanos::new(length)));
                (max.saturating_sub(*used), last.since(now))
            }
            Count::TokenBucket { depth, tokens, .. } => {
                let missing = (u128::from(*depth) * u128::from(length)).saturating_sub(*tokens);
                let reset = missing.div_ceil(u128::from(max.max(1)));
                let left = u64::try_from(tokens / u128::from(length)).unwrap_or(u64::MAX);
                (left, Nanos::new(u64::try_from(reset).unwrap_or(u64::MAX)))
            }
        }
    }
}
