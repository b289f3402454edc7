//! Checks of limits with a small state, in two steps.
//!
//! A store locks a state while it is checked. [`TwoStepCheck::admit`] returns the next state, which
//! has to be written under the lock; [`TwoStepCheck::decision`] builds the decision, which can
//! wait. Together they equal [`Limit::check`](crate::Limit::check), and a test compares them.

use crate::bucket::{BucketState, Debt};
use crate::check_input::CheckInput;
use crate::decision::Decision;
use crate::fixed_window::{FixedWindow, WindowState};
use crate::leaky_bucket::LeakyBucket;
use crate::time::Timestamp;
use crate::token_bucket::TokenBucket;

/// A check in two steps, of a limit whose state is one small value.
pub trait TwoStepCheck {
    /// The state of a key.
    type State: Copy;
    /// The use of the limit at one instant.
    type Usage: Copy;

    /// Calculates the use at an instant from a state.
    fn usage(&self, state: Self::State, now: Timestamp) -> Self::Usage;

    /// Whether the cost is admitted, and the next state.
    fn admit(&self, usage: Self::Usage, input: CheckInput) -> (bool, Self::State);

    /// The decision on the same usage and input.
    fn decision(&self, usage: Self::Usage, input: CheckInput) -> Decision;
}

/// A limit whose state is one small value.
#[derive(Clone, Copy, Debug)]
pub enum SmallLimit<'l> {
    /// See [`TokenBucket`].
    TokenBucket(&'l TokenBucket),
    /// See [`LeakyBucket`].
    LeakyBucket(&'l LeakyBucket),
    /// See [`FixedWindow`].
    FixedWindow(&'l FixedWindow),
}

/// Both buckets have the same state; only their decisions differ.
macro_rules! bucket_in_two_steps {
    ($bucket:ty, |$it:ident, $debt:ident, $input:ident| $decision:expr) => {
        impl TwoStepCheck for $bucket {
            type State = BucketState;
            type Usage = Debt;

            #[inline(always)]
            fn usage(&self, state: BucketState, now: Timestamp) -> Debt {
                self.meter.debt(state, now)
            }

            #[inline(always)]
            fn admit(&self, debt: Debt, input: CheckInput) -> (bool, BucketState) {
                self.meter.admit(debt, input)
            }

            #[inline(always)]
            fn decision(&self, $debt: Debt, $input: CheckInput) -> Decision {
                let $it = self;
                $decision
            }
        }
    };
}

bucket_in_two_steps!(TokenBucket, |bucket, debt, input| bucket.meter.decision(debt, input));
bucket_in_two_steps!(LeakyBucket, |bucket, debt, input| bucket.decision(debt, input));

impl TwoStepCheck for FixedWindow {
    type State = WindowState;
    type Usage = WindowState;

    #[inline(always)]
    fn usage(&self, state: WindowState, now: Timestamp) -> WindowState {
        self.settle(Some(state), now)
    }

    #[inline(always)]
    fn admit(&self, settled: WindowState, input: CheckInput) -> (bool, WindowState) {
        let fits = self.fits(settled, input.cost);
        let is_counted = fits || self.counts_refused();
        (fits, if is_counted { Self::charge(settled, input.cost) } else { settled })
    }

    #[inline(always)]
    fn decision(&self, settled: WindowState, input: CheckInput) -> Decision {
        self.decide(settled, input)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::Limit;
    use crate::period::Period;
    use crate::state::State;
    use crate::window::Window;

    /// One check in two steps.
    fn in_two_steps<L: TwoStepCheck>(
        limit: &L,
        state: L::State,
        input: CheckInput,
    ) -> (Decision, bool, L::State) {
        let usage = limit.usage(state, input.now);
        let (admitted, after) = limit.admit(usage, input);
        (limit.decision(usage, input), admitted, after)
    }

    fn limits(amount: u64, burst: u64, counts_refused: bool) -> [Limit; 3] {
        let window = FixedWindow::new(burst, Window::Every(Period::MINUTE));
        [
            Limit::new(TokenBucket::new(amount, Period::SECOND, burst)),
            Limit::new(LeakyBucket::new(amount, Period::SECOND, burst)),
            Limit::new(window.counting_refused(counts_refused)),
        ]
    }

    proptest! {
        #[test]
        fn two_steps_decide_and_charge_as_one_check_does(
            (amount, burst) in (0..=2_000_000_000_u64, 0..=2_000_u64),
            (before, before_burst) in (1..=2_000_000_000_u64, 1..=4_000_u64),
            first in 1..=4_000_u64,
            cost in prop_oneof![0..=4_000_u64, Just(u64::MAX)],
            apart in -2_000_000_000..=2_000_000_000_i64,
            counts_refused: bool,
        ) {
            let start = Timestamp::from_secs(1_700_000_000);
            let now = Timestamp::from_nanos(start.as_nanos().saturating_add_signed(apart));
            let input = CheckInput::new(cost, now);
            // Other parameters wrote the state, perhaps at a later instant.
            let old = limits(before, before_burst, counts_refused);
            for (old, limit) in old.iter().zip(limits(amount, burst, counts_refused)) {
                let mut state = State::Unused;
                old.check(&mut state, CheckInput::new(first, start));
                let mut whole = state.clone();
                let decision = limit.check(&mut whole, input);
                let (decided, admitted, after) = match (limit.small(), state) {
                    (Some(SmallLimit::TokenBucket(limit)), State::Bucket(state)) => {
                        let (decided, admitted, after) = in_two_steps(limit, state, input);
                        (decided, admitted, State::Bucket(after))
                    }
                    (Some(SmallLimit::LeakyBucket(limit)), State::Bucket(state)) => {
                        let (decided, admitted, after) = in_two_steps(limit, state, input);
                        (decided, admitted, State::Bucket(after))
                    }
                    (Some(SmallLimit::FixedWindow(limit)), State::Window(state)) => {
                        let (decided, admitted, after) = in_two_steps(limit, state, input);
                        (decided, admitted, State::Window(after))
                    }
                    other => panic!("{other:?} is not small"),
                };
                prop_assert_eq!(decided, decision);
                prop_assert_eq!(admitted, decision.is_admitted());
                prop_assert_eq!(after, whole);
            }
        }
    }
}
