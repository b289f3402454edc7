//! Rate-limiting arithmetic: state + parameters + cost + now → decision + next state.
//!
//! Everything here is a pure function over integers. No clock is read, nothing
//! is awaited, nothing allocates except the two algorithms whose state is a
//! list ([`SlidingLog`], [`Concurrency`]). No input panics and no input turns
//! limiting off: arithmetic saturates, and state that cannot be right (from
//! another algorithm, from the future) is read in the way that neither frees
//! nor freezes the key.
//!
//! Stores keep a [`State`] per key and call [`Limit`]; everything above speaks
//! of [`Decision`]s.

mod counter_time;
mod time;

mod ask;
mod decision;
mod period;
mod state;

mod mode;
mod policy;

mod limit;
mod small;

mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod pace;
mod sliding_log;
mod sliding_window;
mod soft;
mod token_bucket;
mod window;

#[cfg(test)]
mod bench;

pub use ask::{Ask, Holder, Tenure};
pub use concurrency::{CONCURRENCY_MAX, Concurrency, SlotsState};
pub use counter_time::{Comparison, CounterTime};
pub use decision::{Decision, Outcome, Retry};
pub use fixed_window::{FixedWindow, WindowState};
pub use leaky_bucket::LeakyBucket;
pub use limit::{Algorithm, Limit, ParameterError};
pub use mode::{CallerMode, Mode, ModeCell, Percent};
pub use pace::{BucketState, BucketTerms, Debt, Taken};
pub use period::{Period, PeriodError};
pub use policy::{Charge, Consistency, OnStoreError};
pub use sliding_log::{LogState, SLIDING_LOG_MAX, SlidingLog};
pub use sliding_window::{SLICES_MAX, SlicesState, SlidingWindow};
pub use small::{Small, SmallLimit};
pub use soft::{Soft, SoftState};
pub use state::{SmallState, State};
pub use time::{Clock, ManualClock, Nanos, Timestamp};
pub use token_bucket::TokenBucket;
pub use window::{CalendarUnit, Window};
