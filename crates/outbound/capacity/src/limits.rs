//! The limits of a target and the cost of a record.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_algorithms::Nanos;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Requests, each counts as one.
    Operations,
    /// Bytes sent.
    Bytes,
    /// Units that the service charges, such as request units or points.
    Units,
}

/// What one record costs in each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cost {
    /// Requests.
    pub operations: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Units charged.
    pub units: u64,
}

impl Cost {
    /// No cost.
    pub const NONE: Cost = Cost { operations: 0, bytes: 0, units: 0 };

    /// One request of `units` units, of unknown size.
    pub const fn units(units: u64) -> Self {
        Cost { operations: 1, bytes: 0, units }
    }

    /// The cost in one dimension.
    pub const fn of(self, dimension: Dimension) -> u64 {
        match dimension {
            Dimension::Operations => self.operations,
            Dimension::Bytes => self.bytes,
            Dimension::Units => self.units,
        }
    }

    /// What it has beyond another cost.
    pub(crate) const fn beyond(self, other: Cost) -> Self {
        Cost {
            operations: self.operations.saturating_sub(other.operations),
            bytes: self.bytes.saturating_sub(other.bytes),
            units: self.units.saturating_sub(other.units),
        }
    }

    /// Both costs together.
    #[must_use]
    pub const fn plus(self, other: Cost) -> Self {
        Cost {
            operations: self.operations.saturating_add(other.operations),
            bytes: self.bytes.saturating_add(other.bytes),
            units: self.units.saturating_add(other.units),
        }
    }
}

/// At most `amount` in any window of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TargetLimit {
    /// What is counted.
    pub dimension: Dimension,
    /// How much fits into a window.
    pub amount: u64,
    /// The length of the window, in milliseconds.
    pub window_ms: u64,
}

impl TargetLimit {
    /// The largest amount; leaves room for exact arithmetic in 128 bits.
    pub const AMOUNT_MAX: u64 = 1 << 44;
    /// The longest window that is paced. Longer ones are quotas: members take chunks of them ahead.
    pub const PACED_WINDOW_MAX: Duration = Duration::from_mins(1);
    const SLACK_MIN: Nanos = Nanos::from_millis(2);
    const SLACK_MAX: Nanos = Nanos::from_millis(10);
    /// The longest window.
    pub const WINDOW_MAX: Duration = Duration::from_hours(31 * 24);

    /// A limit per second.
    pub const fn per_second(dimension: Dimension, amount: u64) -> Self {
        TargetLimit { dimension, amount, window_ms: 1_000 }
    }

    /// A limit per minute.
    pub const fn per_minute(dimension: Dimension, amount: u64) -> Self {
        TargetLimit { dimension, amount, window_ms: 60_000 }
    }

    /// A quota per day of 24 hours.
    pub const fn per_day(dimension: Dimension, amount: u64) -> Self {
        TargetLimit { dimension, amount, window_ms: 24 * 60 * 60 * 1_000 }
    }

    /// How late a record may leave and still have its successor on time: a hundredth of the window, between 2 ms and
    /// 10 ms. Makes up for late timers; not a burst, because the intervals of the pace are padded by it.
    pub const fn slack(self) -> Nanos {
        let hundredth = self.window().get() / 100;
        if hundredth < Self::SLACK_MIN.get() {
            Self::SLACK_MIN
        } else if hundredth > Self::SLACK_MAX.get() {
            Self::SLACK_MAX
        } else {
            Nanos::new(hundredth)
        }
    }

    /// Whether it is kept by chunks that members take ahead, and not by pacing.
    pub const fn is_quota(&self) -> bool {
        self.window_ms as u128 > Self::PACED_WINDOW_MAX.as_millis()
    }

    /// The length of the window.
    pub const fn window(self) -> Nanos {
        Nanos::from_millis(self.window_ms)
    }
}

/// All limits of a target, and the number of slots that its capacity is divided into.
///
/// A slot is an equal share of every limit: of 20 slots, each has a twentieth of the operations, of the bytes and of the
/// units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetLimits {
    limits: Vec<TargetLimit>,
    slots: u16,
}

/// Limits that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// No limit at all.
    #[error("a target needs at least one limit")]
    Empty,
    /// Too many limits.
    #[error("a target has at most {max} limits, not {0}", max = TargetLimits::LIMITS_MAX)]
    TooMany(usize),
    /// A limit of zero, or one that is too large.
    #[error("a limit must be between 1 and {max}, not {0}", max = TargetLimit::AMOUNT_MAX)]
    Amount(u64),
    /// A window that is too short or too long.
    #[error("a window must be between 1 ms and {max:?}, not {0} ms", max = TargetLimit::WINDOW_MAX)]
    Window(u64),
    /// Only limits over long windows.
    #[error("a target with a quota needs a limit over at most {max:?} too, for its pace", max = TargetLimit::PACED_WINDOW_MAX)]
    NoPace,
    /// No slot, or too many.
    #[error("a target has between 1 and {max} slots, not {0}", max = TargetLimits::SLOTS_MAX)]
    Slots(u16),
}

impl TargetLimits {
    /// The most slots that a target is divided into.
    pub const SLOTS_MAX: u16 = 1_000;
    /// The most limits that a target has.
    pub const LIMITS_MAX: usize = 8;
    /// The number of slots unless the operator chooses another.
    pub const SLOTS_DEFAULT: u16 = 100;

    /// Limits divided into [`TargetLimits::SLOTS_DEFAULT`] slots.
    ///
    /// # Errors
    /// When a limit is zero or too large, a window too long, or there is none.
    pub fn new(limits: Vec<TargetLimit>) -> Result<Self, LimitsError> {
        Self::with_slots(limits, Self::SLOTS_DEFAULT)
    }

    /// Limits divided into this many slots.
    ///
    /// # Errors
    /// As [`TargetLimits::new`]; also when the number of slots is out of range.
    pub fn with_slots(limits: Vec<TargetLimit>, slots: u16) -> Result<Self, LimitsError> {
        let limits = TargetLimits { limits, slots };
        limits.validate()?;
        Ok(limits)
    }

    /// Checks limits that were read from a store.
    pub(crate) fn validate(&self) -> Result<(), LimitsError> {
        if self.limits.is_empty() {
            return Err(LimitsError::Empty);
        }
        if self.paced().next().is_none() {
            return Err(LimitsError::NoPace);
        }
        if self.limits.len() > Self::LIMITS_MAX {
            return Err(LimitsError::TooMany(self.limits.len()));
        }
        if !(1..=Self::SLOTS_MAX).contains(&self.slots) {
            return Err(LimitsError::Slots(self.slots));
        }
        for limit in &self.limits {
            if !(1..=TargetLimit::AMOUNT_MAX).contains(&limit.amount) {
                return Err(LimitsError::Amount(limit.amount));
            }
            let window_max = TargetLimit::WINDOW_MAX.as_millis();
            if limit.window_ms == 0 || u128::from(limit.window_ms) > window_max {
                return Err(LimitsError::Window(limit.window_ms));
            }
        }
        Ok(())
    }

    /// The limits.
    pub fn limits(&self) -> &[TargetLimit] {
        &self.limits
    }

    /// The limits that are paced.
    pub(crate) fn paced(&self) -> impl Iterator<Item = &TargetLimit> {
        self.limits.iter().filter(|limit| !limit.is_quota())
    }

    /// The limits that are kept by chunks.
    pub fn quotas(&self) -> impl Iterator<Item = &TargetLimit> {
        self.limits.iter().filter(|limit| limit.is_quota())
    }

    /// The number of slots.
    pub const fn slots(&self) -> u16 {
        self.slots
    }

    /// The slots that send records of this cost within a second, at most all of them.
    pub(crate) fn slots_for(&self, backlog: Cost) -> u16 {
        let needed = |limit: &TargetLimit| {
            let cost = u128::from(backlog.of(limit.dimension));
            (cost * u128::from(limit.window_ms) * u128::from(self.slots))
                .div_ceil(u128::from(limit.amount) * 1_000)
        };
        let most = self.paced().map(needed).max().unwrap_or(0);
        u16::try_from(most).unwrap_or(self.slots).min(self.slots)
    }

    /// Whether all slots together can pay for a record within half of a lease, and every quota for all of it.
    pub(crate) fn fits_lease(&self, cost: Cost, lease: Duration) -> bool {
        self.limits.iter().all(|limit| {
            if limit.is_quota() {
                return cost.of(limit.dimension) <= limit.amount;
            }
            let needed_ms = u128::from(cost.of(limit.dimension)) * u128::from(limit.window_ms)
                / u128::from(limit.amount);
            needed_ms <= lease.as_millis() / 2
        })
    }

    /// How many records of this cost all limits together allow in a second.
    pub(crate) fn records_per_second(&self, cost: Cost) -> f64 {
        let rate = |limit: &TargetLimit| {
            let cost = cost.of(limit.dimension);
            (cost > 0).then(|| limit.amount as f64 * 1_000.0 / limit.window_ms as f64 / cost as f64)
        };
        self.paced().filter_map(rate).fold(f64::INFINITY, f64::min)
    }
}
