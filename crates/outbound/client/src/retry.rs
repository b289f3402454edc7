//! When and how often a call is repeated.

use http::{HeaderMap, Method};
use tidegate_algorithms::{Nanos, Timestamp};

/// The first pause after a failure, and after a refusal that states no time.
const FAILED_PAUSE: Nanos = Nanos::from_millis(100);
const REFUSED_PAUSE: Nanos = Nanos::from_secs(1);
/// The longest pause of our own choice.
const PAUSE_MAX: Nanos = Nanos::from_secs(20);
/// The most by which a stated wait is prolonged, so that callers do not come back together.
const JITTER_MAX: Nanos = Nanos::from_secs(1);

/// Tokens are in thousandths of a retry.
const RETRY: u64 = 1_000;
/// A retry at a time that the service stated costs half: it was invited.
const STATED_RETRY: u64 = 500;
const BUDGET_MAX: u64 = 50 * RETRY;
/// Each call pays for a tenth of a retry.
const PER_CALL: u64 = RETRY / 10;

/// The pause before the next attempt. A stated wait is never shortened.
pub(crate) fn pause(attempt: u32, stated: Option<Nanos>, refused: bool, random: u64) -> Nanos {
    if let Some(stated) = stated {
        let jitter = spread(stated.min(JITTER_MAX), random);
        return Nanos::new(stated.get().saturating_add(jitter.get()));
    }
    let first = if refused { REFUSED_PAUSE } else { FAILED_PAUSE };
    let doubled = first.get().saturating_mul(1 << attempt.saturating_sub(1).min(20));
    // Half is fixed: a pause near zero would waste the attempt.
    let half = Nanos::new(doubled.min(PAUSE_MAX.get()) / 2);
    Nanos::new(half.get() + spread(half, random).get())
}

/// A part of a span, even between nothing and all of it.
pub(crate) fn spread(span: Nanos, random: u64) -> Nanos {
    let part = (u128::from(span.get()) * u128::from(random)) >> 64;
    Nanos::new(u64::try_from(part).unwrap_or(u64::MAX))
}

/// Whether a call may be sent twice: its method is idempotent, or it has an idempotency key.
pub(crate) fn is_repeatable(method: &Method, headers: &HeaderMap) -> bool {
    method.is_idempotent() || headers.contains_key("idempotency-key")
}

/// Retries that a target may cost: a tenth of its calls, at least one a second, fifty at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    tokens: u64,
    filled_at: Timestamp,
}

impl RetryBudget {
    pub(crate) const fn new(now: Timestamp) -> Self {
        RetryBudget { tokens: 10 * RETRY, filled_at: now }
    }

    /// Counts a first attempt.
    pub(crate) fn count_call(&mut self) {
        self.tokens = self.tokens.saturating_add(PER_CALL).min(BUDGET_MAX);
    }

    /// Pays for a retry, if there is enough.
    pub(crate) fn spend(&mut self, stated: bool, now: Timestamp) -> bool {
        let earned = now.since(self.filled_at).get() / 1_000_000;
        self.tokens = self.tokens.saturating_add(earned).min(BUDGET_MAX);
        self.filled_at = now;
        let price = if stated { STATED_RETRY } else { RETRY };
        let affordable = self.tokens >= price;
        if affordable {
            self.tokens -= price;
        }
        affordable
    }
}
