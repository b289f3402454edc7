//! Rate-limiting arithmetic: state + parameters + cost + now → decision + next state.
//!
//! Everything here is a pure function over integers. No clock is read, nothing is awaited, nothing
//! allocates except the two algorithms whose state is a list ([`SlidingLog`], [`Concurrency`]). No
//! input panics and none turns limiting off: arithmetic saturates, and a state that cannot be right
//! (from another algorithm, from the future) is read so that it neither frees nor blocks the key.
//!
//! Stores keep a [`State`] for each key and call [`Limit`]; everything above uses [`Decision`]s.

mod counter_time;
mod time;

mod check_input;
mod decision;
mod period;
mod state;

mod algorithm;
mod limit;
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
mod harness;

pub use algorithm::Algorithm;
pub use bucket::{BucketState, BucketTerms, Debt, UnitOutcome};
pub use check_input::{CheckInput, Holder, Tenure};
pub use concurrency::{CONCURRENCY_MAX, Concurrency, SlotsState};
pub use counter_time::{Comparison, CounterTime};
pub use decision::{Decision, Outcome, Retry};
pub use fixed_window::{FixedWindow, WindowState};
pub use leaky_bucket::LeakyBucket;
pub use limit::{Limit, ParameterError};
pub use period::{Period, PeriodError};
pub use sliding_log::{LogState, SLIDING_LOG_MAX, SlidingLog};
pub use sliding_window::{SLICES_MAX, SlicesState, SlidingWindow};
pub use soft::{Soft, SoftState};
pub use state::{SmallState, State};
pub use time::{Clock, ManualClock, Nanos, Timestamp};
pub use token_bucket::TokenBucket;
pub use two_step::{SmallLimit, TwoStepCheck};
pub use window::{CalendarUnit, Window};
