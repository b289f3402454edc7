//! Rate-limiting arithmetic: state + parameters + cost + now → decision + next state.
//!
//! Everything here is a pure function over integers. No clock is read, nothing is awaited, nothing
//! allocates except the two algorithms whose state is a list ([`SlidingLog`], [`Concurrency`]). No
//! input panics and none turns limiting off: arithmetic saturates, and a state that cannot be right
//! (from another algorithm, from the future) is read so that it neither frees nor blocks the key.
//!
//! Stores keep a [`State`] for each key and call [`Limit`]; everything above uses [`Decision`]s.
//!
//! ```
//! use tidegate_algorithms::{CheckInput, Limit, Nanos, Period, Retry, State, Timestamp, TokenBucket};
//!
//! // Ten per second, with a burst of two.
//! let limit = Limit::new(TokenBucket::new(10, Period::SECOND, 2));
//! let mut state = State::Unused;
//! let now = Timestamp::from_secs(1_800_000_000);
//!
//! let decision = limit.check(&mut state, CheckInput::new(2, now));
//! assert!(decision.is_admitted());
//! assert_eq!(decision.remaining, 0);
//!
//! let decision = limit.check(&mut state, CheckInput::new(1, now));
//! assert_eq!(decision.retry, Retry::After(Nanos::from_millis(100)));
//! ```

mod counter_time;
mod time;

mod check_input;
mod decision;
mod period;
mod state;

mod algorithm;
mod limit;
mod mode;
mod policy;
mod two_step;

mod bucket;
mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod sliding_log;
mod sliding_window;
mod soft;
mod token_bucket;
mod window;

#[cfg(test)]
mod tests;

pub use algorithm::Algorithm;
pub use bucket::{BucketState, BucketTerms, Debt, UnitOutcome};
pub use check_input::{CheckInput, Holder, Tenure};
pub use concurrency::{CONCURRENCY_MAX, Concurrency, SlotsState};
pub use counter_time::{Comparison, CounterTime};
pub use decision::{Decision, Outcome, Retry};
pub use fixed_window::{FixedWindow, WindowState};
pub use leaky_bucket::LeakyBucket;
pub use limit::{Limit, ParameterError};
pub use mode::{CallerMode, Mode, ModeCell, Percent};
pub use period::{Period, PeriodError};
pub use policy::{Charge, Consistency, OnStoreError, RoundingMode};
pub use sliding_log::{LogState, SLIDING_LOG_MAX, SlidingLog};
pub use sliding_window::{SLICES_MAX, SlicesState, SlidingWindow};
pub use soft::{Allowance, Soft, SoftState};
pub use state::State;
pub use time::{Clock, ManualClock, Nanos, Timestamp};
pub use token_bucket::TokenBucket;
pub use two_step::{SmallLimit, TwoStepCheck};
pub use window::{CalendarUnit, Window};
