//! Instants and spans in whole nanoseconds, and the clock that callers bring.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An instant: nanoseconds since the Unix epoch, up to the year 2554.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch itself.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// The last instant that can be represented.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The instant `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    /// The instant `seconds` seconds after the epoch, or [`Timestamp::MAX`].
    pub const fn from_secs(seconds: u64) -> Self {
        Timestamp(seconds.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The instant `span` later, or [`Timestamp::MAX`].
    #[must_use]
    pub const fn after(self, span: Nanos) -> Self {
        Timestamp(self.0.saturating_add(span.0))
    }

    /// Whether this instant is not after `now`. [`Timestamp::MAX`] never comes: it stands for every
    /// later instant.
    #[inline]
    pub(crate) fn has_come(self, now: Timestamp) -> bool {
        self <= now && self != Timestamp::MAX
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn since(self, earlier: Timestamp) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A span of time in whole nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);
    /// The longest span, 584 years.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// A span of `nanos` nanoseconds.
    pub const fn new(nanos: u64) -> Self {
        Nanos(nanos)
    }

    /// A span of `millis` milliseconds, or [`Nanos::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Nanos(millis.saturating_mul(1_000_000))
    }

    /// A span of `seconds` seconds, or [`Nanos::MAX`].
    pub const fn from_secs(seconds: u64) -> Self {
        Nanos(seconds.saturating_mul(1_000_000_000))
    }

    /// The span as a plain number of nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded up, as in a `Retry-After` header.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        Duration::from_nanos(span.0)
    }
}

impl From<Duration> for Nanos {
    /// Saturates at [`Nanos::MAX`].
    fn from(duration: Duration) -> Self {
        Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from(*self), f)
    }
}

/// The source of the present instant.
///
/// Read once per request, so that every limit uses the same instant. It may stand still or step
/// back: a small step changes nothing, a large one neither frees nor blocks a key.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// A clock set by hand, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock at `start`.
    pub const fn at(start: Timestamp) -> Self {
        ManualClock(AtomicU64::new(start.0))
    }

    /// Moves the clock forward by `span`.
    pub fn advance(&self, span: impl Into<Nanos>) {
        let span = span.into().0;
        let turned = self.0.load(Ordering::Relaxed).saturating_add(span);
        self.0.store(turned, Ordering::Relaxed);
    }

    /// Sets the clock to any instant, also an earlier one.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}
