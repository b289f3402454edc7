//! Limits whose state is one small value, decided in two steps.
//!
//! Whoever keeps states where others wait for them wants to be done soon. So a
//! check comes apart here: [`SmallLimit::admit`] says what must be known before
//! the next one may ask, and [`SmallLimit::tell`] puts the decision into words
//! afterwards, from the usage that both were given. The two together are
//! [`Limit::check`](crate::Limit::check), and a test holds them to that.

use crate::ask::Ask;
use crate::decision::Decision;
use crate::fixed_window::{FixedWindow, WindowState};
use crate::leaky_bucket::LeakyBucket;
use crate::pace::{BucketState, Debt};
use crate::time::Timestamp;
use crate::token_bucket::TokenBucket;

/// A limit whose state is one small value.
pub trait SmallLimit {
    /// What is kept of a key.
    type State: Copy;
    /// What a state comes to at one instant.
    type Usage: Copy;

    /// What a state comes to now.
    fn usage(&self, state: Self::State, now: Timestamp) -> Self::Usage;

    /// Whether the cost is admitted, and the state after that.
    fn admit(&self, usage: Self::Usage, ask: Ask) -> (bool, Self::State);

    /// The whole decision.
    fn tell(&self, usage: Self::Usage, ask: Ask) -> Decision;
}

/// The limits of this kind.
#[derive(Clone, Copy, Debug)]
pub enum Small<'l> {
    /// See [`TokenBucket`].
    TokenBucket(&'l TokenBucket),
    /// See [`LeakyBucket`].
    LeakyBucket(&'l LeakyBucket),
    /// See [`FixedWindow`].
    FixedWindow(&'l FixedWindow),
}

impl SmallLimit for TokenBucket {
    type State = BucketState;
    type Usage = Debt;

    #[inline(always)]
    fn usage(&self, state: BucketState, now: Timestamp) -> Debt {
        self.pace().debt(state, now)
    }

    #[inline(always)]
    fn admit(&self, debt: Debt, ask: Ask) -> (bool, BucketState) {
        self.pace().admit(debt, ask)
    }

    #[inline(always)]
    fn tell(&self, debt: Debt, ask: Ask) -> Decision {
        self.pace().tell(debt, ask)
    }
}

impl SmallLimit for LeakyBucket {
    type State = BucketState;
    type Usage = Debt;

    #[inline(always)]
    fn usage(&self, state: BucketState, now: Timestamp) -> Debt {
        self.pace().debt(state, now)
    }

    #[inline(always)]
    fn admit(&self, debt: Debt, ask: Ask) -> (bool, BucketState) {
        self.pace().admit(debt, ask)
    }

    #[inline(always)]
    fn tell(&self, debt: Debt, ask: Ask) -> Decision {
        self.tell(debt, ask)
    }
}

impl SmallLimit for FixedWindow {
    type State = WindowState;
    type Usage = WindowState;

    #[inline(always)]
    fn usage(&self, state: WindowState, now: Timestamp) -> WindowState {
        self.settle(Some(state), now)
    }

    #[inline(always)]
    fn admit(&self, settled: WindowState, ask: Ask) -> (bool, WindowState) {
        if self.fits(settled, ask.cost) {
            return (true, Self::charge(settled, ask.cost));
        }
        (false, self.refuse(settled, ask.cost))
    }

    #[inline(always)]
    fn tell(&self, settled: WindowState, ask: Ask) -> Decision {
        self.decide(settled, ask)
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

    /// One check in two steps, on a state that is kept as stores keep it.
    fn in_two_steps<L: SmallLimit>(
        limit: &L,
        state: L::State,
        ask: Ask,
    ) -> (Decision, bool, L::State) {
        let usage = limit.usage(state, ask.now);
        let (admitted, after) = limit.admit(usage, ask);
        (limit.tell(usage, ask), admitted, after)
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
            let ask = Ask::new(cost, now);
            // The state was left by other parameters, perhaps at a later instant.
            let old = limits(before, before_burst, counts_refused);
            for (old, limit) in old.iter().zip(limits(amount, burst, counts_refused)) {
                let mut state = State::Unused;
                old.check(&mut state, Ask::new(first, start));
                let mut whole = state.clone();
                let decision = limit.check(&mut whole, ask);
                let (told, admitted, after) = match (limit.small(), state) {
                    (Some(Small::TokenBucket(limit)), State::Bucket(state)) => {
                        let (told, admitted, after) = in_two_steps(limit, state, ask);
                        (told, admitted, State::Bucket(after))
                    }
                    (Some(Small::LeakyBucket(limit)), State::Bucket(state)) => {
                        let (told, admitted, after) = in_two_steps(limit, state, ask);
                        (told, admitted, State::Bucket(after))
                    }
                    (Some(Small::FixedWindow(limit)), State::Window(state)) => {
                        let (told, admitted, after) = in_two_steps(limit, state, ask);
                        (told, admitted, State::Window(after))
                    }
                    other => panic!("{other:?} is not small"),
                };
                prop_assert_eq!(told, decision);
                prop_assert_eq!(admitted, decision.is_admitted());
                prop_assert_eq!(after, whole);
            }
        }
    }
}
