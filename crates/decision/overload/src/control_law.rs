//! The law of the slow loop: state + utilization + time passed → next state.
//!
//! The law controls the admitted fraction of the offered traffic. The default law changes it by a
//! *factor*: with `r` times the traffic that fits, utilization follows `r × fraction`, so a step
//! by a factor changes utilization equally at every `r`. A step by an amount, as in Stripe's law,
//! changes it `r` times as much, and oscillates when `r` is large. Between the two thresholds
//! nothing changes, and utilization has to stay beyond one of them for a while.
//!
//! Utilization does not tell how much of the shed traffic would fit, so the law restores slowly,
//! and even more slowly after a restore that caused overload. When the offered demand is known,
//! [`ControlLaw::open`] admits at once what fits. If overload returns soon after that, demand
//! changes faster than the loop can follow, and the law restores slowly until it was calm.
//!
//! Pure: it replays bit for bit on the same machine. [`Threshold`](crate::Threshold) chooses the
//! requests that make up the fraction.

use tidegate_algorithms::Nanos;
use tidegate_macros::defaults;

/// Overload within this time after a restore counts as caused by it.
const BLAMED_FOR: Nanos = Nanos::from_secs(30);
/// After this time without overload restoring becomes faster again.
const FORGIVEN_AFTER: Nanos = Nanos::from_secs(120);
/// The slowest restore, as a multiple of the configured one.
const RESTORE_SLOWER_MAX: f64 = 8.0;
/// From this fraction on everything is admitted after [`COMPLETE_AFTER`].
const COMPLETE_FROM: f64 = 0.995;
const COMPLETE_AFTER: Nanos = Nanos::from_secs(10);
/// The part of the known capacity that is filled at once when not everything fits.
const FITS: f64 = 0.93;
/// The smallest fraction. From a smaller one restoring by a factor would take too long.
const FRACTION_MIN: f64 = 0.001;

/// How a step changes the admitted fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// By a factor: `e` in each of these times at full strength.
    ByFactor {
        /// For shedding.
        shed: Nanos,
        /// For restoring, unless a restore has caused overload.
        restore: Nanos,
    },
    /// By an amount: all traffic in this time at full strength.
    ByAmount {
        /// For both directions.
        full: Nanos,
    },
}

defaults! {
    /// The parameters of the law.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ControlLaw {
        /// Sheds above this utilization.
        pub shed_above: f64 = 1.15,
        /// Restores below this utilization. Between the two nothing moves.
        pub restore_below: f64 = 0.95,
        /// Sheds at full strength so far above `shed_above`.
        pub width: f64 = 0.25,
        /// Shedding starts after utilization was high for this time.
        pub hold_on: Nanos = Nanos::from_secs(2),
        /// Restoring starts after utilization was low for this time.
        pub hold_off: Nanos = Nanos::from_secs(5),
        /// Admits everything at once when the offered demand is known to be below this. Zero means
        /// never.
        pub open_below: f64 = 0.97,
        /// How fast the fraction changes.
        pub change: Change = Change::ByFactor { shed: Nanos::from_secs(15), restore: Nanos::from_secs(30) },
        /// The time between two steps.
        pub period: Nanos = Nanos::from_millis(250),
        /// Time constant of the smoothing of the signal; none when zero.
        pub smoothing: Nanos = Nanos::from_secs(1),
        /// The longest time that a late step accounts for.
        pub step_max: Nanos = Nanos::from_secs(1),
    }
}

impl ControlLaw {
    /// Stripe's published law: 70 % to 80 % of the workers busy, half a minute of overload before
    /// anything is shed, two minutes from nothing to everything.
    pub const STRIPE: ControlLaw = ControlLaw {
        shed_above: 0.80,
        restore_below: 0.70,
        width: 0.20,
        hold_on: Nanos::from_secs(28),
        hold_off: Nanos::ZERO,
        open_below: 0.0,
        change: Change::ByAmount { full: Nanos::from_secs(120) },
        period: Nanos::from_secs(8),
        smoothing: Nanos::ZERO,
        step_max: Nanos::from_secs(28),
    };

    /// The state after `passed` at this utilization. Shedding stops at the fraction `floor`, the
    /// share of critical traffic. A fraction that is below it already is not raised to it.
    #[must_use]
    pub fn step(&self, state: LawState, utilization: f64, floor: f64, passed: Nanos) -> LawState {
        let passed = passed.min(self.step_max);
        let mut next = state.aged(passed);
        if utilization > self.shed_above {
            self.press(&mut next, utilization, floor, passed);
        } else if utilization < self.restore_below {
            self.relax(&mut next, utilization, passed);
        } else {
            next.over_for = Nanos::ZERO;
            next.under_for = Nanos::ZERO;
        }
        if next.quiet_for >= FORGIVEN_AFTER {
            next.quiet_for = Nanos::ZERO;
            next.restore_slower = (next.restore_slower / 2.0).max(1.0);
            next.mistrusts_demand = false;
        }
        next
    }

    /// The state when the offered demand is known, as a part of the capacity. Raises the admitted
    /// fraction at once to what fits, if utilization is low. Does nothing after an earlier opening
    /// was followed by overload, until it was calm.
    #[must_use]
    pub fn open(&self, state: LawState, utilization: f64, demand: f64) -> LawState {
        let fits = if demand < self.open_below { 1.0 } else { self.open_below * FITS / demand };
        let low = utilization < self.restore_below;
        if !low || state.mistrusts_demand || fits.is_nan() || fits <= state.admitted {
            return state;
        }
        let now = Some(Nanos::ZERO);
        LawState { admitted: fits, since_restore: now, since_open: now, ..state }
    }

    fn press(&self, state: &mut LawState, utilization: f64, floor: f64, passed: Nanos) {
        state.over_for = later(state.over_for, passed);
        state.under_for = Nanos::ZERO;
        state.quiet_for = Nanos::ZERO;
        if state.over_for < self.hold_on {
            return;
        }
        // Taken, so that a restore counts once.
        if state.since_restore.take().is_some_and(|since| since <= BLAMED_FOR) {
            state.restore_slower = (state.restore_slower * 2.0).min(RESTORE_SLOWER_MAX);
        }
        if state.since_open.take().is_some_and(|since| since <= BLAMED_FOR) {
            state.mistrusts_demand = true;
        }
        let strength = ((utilization - self.shed_above) / self.width).clamp(0.0, 1.0);
        let wanted = match self.change {
            Change::ByFactor { shed, .. } => {
                state.admitted * (-ratio(passed, shed) * strength).exp()
            }
            Change::ByAmount { full } => state.admitted - ratio(passed, full) * strength,
        };
        state.admitted = wanted.max(floor.max(self.fraction_min()).min(state.admitted));
    }

    fn relax(&self, state: &mut LawState, utilization: f64, passed: Nanos) {
        state.under_for = later(state.under_for, passed);
        state.over_for = Nanos::ZERO;
        if state.under_for < self.hold_off || state.admitted >= 1.0 {
            return;
        }
        let strength = (1.0 - utilization / self.restore_below).clamp(0.0, 1.0);
        let wanted = match self.change {
            Change::ByFactor { restore, .. } => {
                let strength = strength / state.restore_slower;
                state.admitted * (ratio(passed, restore) * strength).exp()
            }
            Change::ByAmount { full } => state.admitted + ratio(passed, full) * strength,
        };
        let complete = state.admitted >= COMPLETE_FROM && state.under_for >= COMPLETE_AFTER;
        let next = if complete { 1.0 } else { wanted.min(1.0) };
        if next > state.admitted {
            state.since_restore = Some(Nanos::ZERO);
        }
        state.admitted = next;
    }

    fn fraction_min(&self) -> f64 {
        match self.change {
            Change::ByFactor { .. } => FRACTION_MIN,
            Change::ByAmount { .. } => 0.0,
        }
    }
}

defaults! {
    /// The state of the law.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct LawState {
        admitted: f64 = 1.0,
        over_for: Nanos,
        under_for: Nanos,
        quiet_for: Nanos,
        since_restore: Option<Nanos>,
        /// Since known demand was admitted at once.
        since_open: Option<Nanos>,
        restore_slower: f64 = 1.0,
        /// Whether overload followed soon after that.
        mistrusts_demand: bool,
    }
}

impl LawState {
    /// Whether it was opened at once, at most so long ago, and not overloaded since.
    pub(crate) fn has_opened_within(&self, span: Nanos) -> bool {
        self.since_open.is_some_and(|since| since <= span)
    }

    /// The fraction of the offered traffic that is admitted, from 0 to 1.
    pub const fn admitted(&self) -> f64 {
        self.admitted
    }

    /// How many times slower than configured the law restores at present: 1 to 8.
    pub const fn restore_slower(&self) -> f64 {
        self.restore_slower
    }

    fn aged(mut self, passed: Nanos) -> Self {
        self.quiet_for = later(self.quiet_for, passed);
        self.since_restore = self.since_restore.map(|since| later(since, passed));
        self.since_open = self.since_open.map(|since| later(since, passed));
        self
    }
}

const fn later(span: Nanos, passed: Nanos) -> Nanos {
    Nanos::new(span.get().saturating_add(passed.get()))
}

/// `part` over `whole`, which counts as at least a nanosecond.
fn ratio(part: Nanos, whole: Nanos) -> f64 {
    part.get() as f64 / whole.get().max(1) as f64
}

#[cfg(test)]
mod tests;
