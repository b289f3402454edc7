//! Soft limits: may be exceeded by a percentage, for some time.
//!
//! The first cost beyond the limit opens an allowance: for a while the limit is raised. Then the
//! limit is hard again, and rests for one of its own periods before the next excess may open
//! another allowance.

use crate::algorithm::Algorithm;
use crate::check_input::CheckInput;
use crate::decision::{Decision, Outcome, Retry};
use crate::period::Period;
use crate::state::State;
use crate::time::{Nanos, Timestamp};

/// By how much, and for how long, a limit may be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Soft {
    /// Percent of the limit that may be used on top of it.
    pub over_percent: u32,
    /// How long the allowance stays open.
    pub lasting: Period,
}

/// A soft limit's state: the limit's own, and its allowance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SoftState {
    /// The limit's own state.
    pub inner: State,
    /// The last allowance, open or used up.
    pub allowance: Option<Allowance>,
}

/// A time in which a soft limit may be exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Allowance {
    /// When it closes.
    pub closes: Timestamp,
    /// From when on another allowance may open.
    pub rests_until: Timestamp,
}

impl SoftState {
    pub(crate) fn idle_at(&self) -> Timestamp {
        let rested = self.allowance.map_or(Timestamp::EPOCH, |allowance| allowance.rests_until);
        self.inner.idle_at().max(rested)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.inner.heap_bytes()
    }

    /// Whether an allowance is open at `now` or may open.
    fn may_exceed(&self, now: Timestamp) -> bool {
        self.allowance
            .is_none_or(|allowance| now < allowance.closes || now >= allowance.rests_until)
    }
}

/// A [`Soft`] allowance with the algorithm that it raises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SoftLimit {
    pub(crate) soft: Soft,
    /// The algorithm with its limit raised.
    pub(crate) raised: Algorithm,
    /// One period of the algorithm.
    rest: Nanos,
}

impl SoftLimit {
    pub(crate) fn new(soft: Soft, base: &Algorithm) -> Self {
        let capacity = base.capacity();
        let extra = u128::from(capacity) * u128::from(soft.over_percent) / 100;
        let raised = capacity.saturating_add(u64::try_from(extra).unwrap_or(u64::MAX));
        SoftLimit { soft, raised: base.with_capacity(raised), rest: base.period() }
    }

    pub(crate) fn settle(&self, state: &mut SoftState, now: Timestamp) {
        self.raised.settle(&mut state.inner, now);
        if let Some(allowance) = &mut state.allowance {
            // After the clock stepped back, the allowance must not be open, or rest, for longer
            // than a new one would.
            let fresh = self.allowance(now);
            allowance.closes = allowance.closes.min(fresh.closes);
            allowance.rests_until = allowance.rests_until.min(fresh.rests_until);
        }
    }

    pub(crate) fn decide(
        &self,
        base: &Algorithm,
        state: &SoftState,
        input: CheckInput,
    ) -> Decision {
        let hard = base.decide(&state.inner, input);
        let raised = self.raised.decide(&state.inner, input);
        let decision = if state.may_exceed(input.now) {
            Decision {
                limit: hard.limit,
                soft: raised.is_admitted() && !hard.is_admitted(),
                ..raised
            }
        } else {
            hard
        };
        if decision.is_admitted() {
            return decision;
        }
        let raised = if raised.is_admitted() {
            self.decide_after_refusal(state, input, raised)
        } else {
            raised
        };
        Decision { retry: hard.retry.min(retry(state, raised, input.now)), ..decision }
    }

    /// The raised limit's decision on a cost that it would admit if it did not rest, after that
    /// refusal is counted.
    fn decide_after_refusal(
        &self,
        state: &SoftState,
        input: CheckInput,
        admitted: Decision,
    ) -> Decision {
        let Some(silent) = self.raised.not_counting_refused() else {
            return admitted;
        };
        let mut counted = state.inner.clone();
        self.raised.refuse(&mut counted, input);
        silent.decide(&counted, input)
    }

    pub(crate) fn charge(&self, state: &mut SoftState, input: CheckInput, decision: &Decision) {
        self.raised.charge(&mut state.inner, input);
        let open = state.allowance.is_some_and(|allowance| input.now < allowance.closes);
        if decision.soft && !open {
            state.allowance = Some(self.allowance(input.now));
        }
    }

    fn allowance(&self, now: Timestamp) -> Allowance {
        let closes = now.after(self.soft.lasting.as_span());
        Allowance { closes, rests_until: closes.after(self.rest) }
    }
}

/// When the raised limit would admit: while the present allowance is open, or as soon as another
/// may open.
fn retry(state: &SoftState, raised: Decision, now: Timestamp) -> Retry {
    let wait = match (raised.outcome, raised.retry) {
        (_, Retry::Never) => return Retry::Never,
        (Outcome::Refused, Retry::After(wait)) => wait,
        _ => Nanos::ZERO,
    };
    if state.may_exceed(now.after(wait)) {
        return Retry::After(wait);
    }
    let rested = state.allowance.map_or(now, |allowance| allowance.rests_until);
    Retry::After(wait.max(rested.since(now)))
}

#[cfg(test)]
mod tests;
