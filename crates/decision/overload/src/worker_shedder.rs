//! The worker utilization shedder: the slow loop of one process.
//!
//! Every tick calculates the utilization from the signals, the [control law](ControlLaw) turns it
//! into an admitted fraction, and the [offered](OfferedLoad) traffic turns the fraction into a
//! [threshold](Threshold) on levels. A request costs one count, one load and one comparison. When
//! the offered demand is known to fit, the law opens at once.
//!
//! In shadow mode ([`CallerMode::Shadow`]) the requests that would be shed are served, so the
//! measured utilization stays high and the admitted fraction would fall to its minimum. So the
//! loop uses a *predicted* utilization: the measured one without the work at levels below the
//! threshold.
//!
//! The [`Gate`](crate::Gate) and the [probe](crate::SchedulerProbe) measure the signals.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::{CallerMode, Nanos, Timestamp};
use tidegate_macros::defaults;

use crate::category::{LEVELS, Level};
use crate::control_law::{ControlLaw, LawState};
use crate::demand::OfferedDemand;
use crate::offered::{OfferedLevels, OfferedLoad};
use crate::threshold::Threshold;
use crate::utilization::{SignalSettings, Signals, SmoothedValue};

/// The signal is smoothed over at least so many service times.
const SMOOTHED_SERVICES: u64 = 5;

/// How long after an overload the gate lets requests wait as in a burst.
const RECOVERY: Nanos = Nanos::from_secs(60);

defaults! {
    /// The settings of a worker shedder.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct WorkerSettings {
        /// The control law.
        pub law: ControlLaw,
        /// When secondary signals count as overload.
        pub signals: SignalSettings,
        /// With fewer arrivals since the last tick the law makes no step.
        pub arrivals_min: u64 = 20,
        /// Whether critical requests may be shed, after all others.
        pub shed_critical: bool,
    }
}

/// The results of the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerView {
    /// The measured utilization.
    pub utilization: f64,
    /// The utilization without the work that would be shed; the measured one when the shedder
    /// enforces.
    pub predicted_utilization: f64,
    /// The smoothed predicted utilization, the input of the law.
    pub smoothed_utilization: f64,
    /// The admitted fraction.
    pub admitted: f64,
    /// The lowest level of which anything is admitted, 0 to 512.
    pub shed_level: u16,
    /// Whether an overload ended a moment ago, and the offered demand is known to fit since.
    pub recovers: bool,
    /// Requests since the tick before.
    pub arrivals: u64,
    /// How much later than its period the tick came.
    pub tick_lag: Nanos,
}

/// Sheds the lowest levels while the process is overloaded.
#[derive(Debug)]
pub struct WorkerShedder {
    settings: WorkerSettings,
    threshold: AtomicU64,
    /// The admitted fraction, as bits.
    admitted: AtomicU64,
    offered: OfferedLoad,
    /// Work in progress at each level, counted in shadow mode.
    present: Box<[AtomicU32; LEVELS]>,
    slow_loop: Mutex<SlowLoop>,
}

#[derive(Debug, Default)]
struct SlowLoop {
    law: LawState,
    smoothed: SmoothedValue,
    memory: OfferedLevels,
    demand: OfferedDemand,
    ticked: Option<Timestamp>,
    epoch: u32,
    view: WorkerView,
}

impl WorkerShedder {
    /// A shedder that admits everything.
    pub fn new(settings: WorkerSettings) -> Self {
        let slow_loop = SlowLoop {
            view: WorkerView { admitted: 1.0, ..WorkerView::default() },
            ..SlowLoop::default()
        };
        WorkerShedder {
            settings,
            threshold: AtomicU64::new(Threshold::OPEN.to_word()),
            admitted: AtomicU64::new(1f64.to_bits()),
            offered: OfferedLoad::new(),
            present: Box::new(std::array::from_fn(|_| AtomicU32::new(0))),
            slow_loop: Mutex::new(slow_loop),
        }
    }

    /// The settings.
    pub const fn settings(&self) -> &WorkerSettings {
        &self.settings
    }

    /// Counts an offered request. Returns its sequence for [`WorkerShedder::judge`].
    #[inline]
    pub fn offer(&self, level: Level) -> u64 {
        self.offered.count(level)
    }

    /// Whether the request is admitted. Changes nothing.
    #[inline]
    pub fn judge(&self, level: Level, sequence: u64) -> bool {
        !self.threshold().refuses(level, sequence)
    }

    /// The present threshold.
    #[inline]
    pub fn threshold(&self) -> Threshold {
        Threshold::from_word(self.threshold.load(Ordering::Relaxed))
    }

    /// Counts work of this level that begins in shadow mode.
    #[inline]
    pub fn begin(&self, level: Level) {
        self.present[level.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of work that was [begun](WorkerShedder::begin).
    #[inline]
    pub fn end(&self, level: Level) {
        let count = &self.present[level.index()];
        // Not below zero, even for work that did not begin.
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }

    /// One step of the slow loop.
    pub fn tick(&self, now: Timestamp, signals: &Signals, acting: CallerMode) -> WorkerView {
        let mut slow = self.slow_loop.lock();
        let period = self.settings.law.period;
        let passed = slow.ticked.map_or(period, |last| now.since(last));
        slow.ticked = Some(now);
        let arrivals = self.offered.fold(&mut slow.memory);
        let measured = self.settings.signals.utilization(signals);
        let predicted = match acting {
            CallerMode::Enforce => measured,
            CallerMode::Shadow => {
                let share = 1.0 - self.shadowed_share();
                self.settings.signals.utilization_of_share(signals, share)
            }
        };
        let smoothing = self.smoothing(signals.service_time);
        let smoothed = slow.smoothed.record(predicted, passed, smoothing);
        if arrivals >= self.settings.arrivals_min {
            let floor =
                if self.settings.shed_critical { 0.0 } else { slow.memory.critical_share() };
            slow.law = self.settings.law.step(slow.law, smoothed, floor, passed);
        }
        let demand = slow.demand.record(arrivals, passed, signals);
        if let Some(demand) = demand {
            slow.law = self.settings.law.open(slow.law, smoothed, demand);
        }
        let threshold = self.publish(&mut slow);
        slow.view = WorkerView {
            utilization: measured,
            predicted_utilization: predicted,
            smoothed_utilization: smoothed,
            admitted: slow.law.admitted(),
            shed_level: threshold.level(),
            recovers: slow.law.has_opened_within(RECOVERY)
                && demand.is_some_and(|demand| demand < self.settings.law.open_below),
            arrivals,
            tick_lag: Nanos::new(passed.get().saturating_sub(period.get())),
        };
        slow.view
    }

    /// Admits everything, until overload has lasted again. The measurements are kept.
    pub fn reset(&self) {
        let mut slow = self.slow_loop.lock();
        slow.law = LawState::default();
        slow.smoothed = SmoothedValue::default();
        slow.view.admitted = 1.0;
        slow.view.shed_level = 0;
        self.publish(&mut slow);
    }

    /// The admitted fraction.
    pub fn admitted(&self) -> f64 {
        f64::from_bits(self.admitted.load(Ordering::Relaxed))
    }

    /// The results of the last tick.
    pub fn view(&self) -> WorkerView {
        self.slow_loop.lock().view
    }

    fn publish(&self, slow: &mut SlowLoop) -> Threshold {
        let end = u16::try_from(LEVELS).unwrap_or(u16::MAX);
        let ceiling = if self.settings.shed_critical { end } else { Level::CRITICAL.number() };
        slow.epoch = slow.epoch.wrapping_add(1);
        let admitted = slow.law.admitted();
        let threshold = Threshold::admitting(admitted, slow.memory.levels(), ceiling, slow.epoch);
        self.threshold.store(threshold.to_word(), Ordering::Relaxed);
        self.admitted.store(admitted.to_bits(), Ordering::Relaxed);
        threshold
    }

    fn smoothing(&self, service_time: Nanos) -> Nanos {
        let smoothing = self.settings.law.smoothing;
        if smoothing == Nanos::ZERO {
            return smoothing;
        }
        smoothing.max(Nanos::new(service_time.get().saturating_mul(SMOOTHED_SERVICES)))
    }

    /// The share of the work in progress at levels below the threshold.
    fn shadowed_share(&self) -> f64 {
        let threshold = self.threshold();
        let (mut total, mut under) = (0.0, 0.0);
        for (level, count) in (0u16..).zip(self.present.iter()) {
            let here = f64::from(count.load(Ordering::Relaxed));
            total += here;
            if level < threshold.level() {
                under += here;
            } else if level == threshold.level() {
                under += here * threshold.boundary();
            }
        }
        if total > 0.0 { under / total } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
