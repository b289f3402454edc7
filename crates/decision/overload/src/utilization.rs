//! The utilization of the process: one number from several signals.
//!
//! The main signal is the demand for the gate's slots, including queued requests. It exceeds 1
//! when requests queue, so the loop sees how large the overload is. A long wait at the gate or a
//! runtime that wakes its tasks late counts as overload too. Response times and processor time do
//! not: a slow dependency or a busy processor is no overload.

use tidegate_algorithms::Nanos;
use tidegate_macros::defaults;

use crate::gate::Window;

/// The demand of a full queue; more would mean nothing.
const DEMAND_MAX: f64 = 1.5;

/// Measurements that the utilization is calculated from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Requests in flight: the mean since the last tick, which is less noisy than the present
    /// number.
    pub in_flight: f64,
    /// Requests in the gate's queue, likewise.
    pub queued: f64,
    /// Requests that entered the gate since the last tick.
    pub entered: u64,
    /// The limit on requests in flight.
    pub limit: u64,
    /// The mean wait at the gate since the last tick.
    pub queue_wait: Nanos,
    /// The mean service time; zero while unknown.
    pub service_time: Nanos,
    /// How late the runtime wakes its tasks: the median of the last second.
    pub scheduler_delay: Nanos,
}

impl Signals {
    /// The signals of a gate with this limit.
    pub const fn of_gate(window: &Window, limit: u64, scheduler_delay: Nanos) -> Self {
        let Window { in_flight, queued, entered, queue_wait, service_time } = *window;
        Signals { in_flight, queued, entered, limit, queue_wait, service_time, scheduler_delay }
    }
}

defaults! {
    /// When secondary signals count as overload.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct SignalSettings {
        /// A longer mean wait at the gate is overload, unless it is less than half of the service
        /// time.
        pub queue_wait_max: Nanos = Nanos::from_millis(20),
        /// A longer scheduling delay is overload.
        pub scheduler_delay_max: Nanos = Nanos::from_millis(10),
        /// The utilization that a secondary signal stands for.
        pub overloaded: f64 = 1.25,
    }
}

impl SignalSettings {
    /// The largest of all signals.
    pub fn utilization(&self, signals: &Signals) -> f64 {
        self.utilization_of_share(signals, 1.0)
    }

    /// The utilization that this share of the work would cause.
    pub fn utilization_of_share(&self, signals: &Signals, share: f64) -> f64 {
        let demand = (signals.in_flight + signals.queued) * share / signals.limit.max(1) as f64;
        let demand = if demand.is_nan() { 0.0 } else { demand.clamp(0.0, DEMAND_MAX) };
        let wait_max = self.queue_wait_max.max(Nanos::new(signals.service_time.get() / 2));
        let waits = signals.queue_wait > wait_max;
        let late = signals.scheduler_delay > self.scheduler_delay_max;
        if waits || late { demand.max(self.overloaded * share) } else { demand }
    }
}

/// An exponentially smoothed signal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SmoothedValue(f64);

impl SmoothedValue {
    /// Records a value and returns the smoothed one. Without a time constant there is no smoothing.
    pub(crate) fn record(&mut self, value: f64, passed: Nanos, constant: Nanos) -> f64 {
        let weight = match constant.get() {
            0 => 1.0,
            constant => 1.0 - (-(passed.get() as f64) / constant as f64).exp(),
        };
        self.0 += (value - self.0) * weight;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(in_flight: f64, queued: f64) -> Signals {
        Signals { in_flight, queued, limit: 64, ..Signals::default() }
    }

    #[test]
    fn waiting_work_raises_demand_above_one() {
        let settings = SignalSettings::default();
        assert_eq!(settings.utilization(&loaded(32.0, 0.0)), 0.5);
        assert_eq!(settings.utilization(&loaded(64.0, 16.0)), 1.25);
        assert_eq!(settings.utilization(&loaded(64.0, 640.0)), 1.5);
    }

    #[test]
    fn a_long_wait_is_overload_unless_the_work_is_longer_still() {
        let settings = SignalSettings::default();
        let waits = Signals { queue_wait: Nanos::from_millis(30), ..loaded(32.0, 0.0) };
        assert_eq!(settings.utilization(&waits), 1.25);
        let slow_work = Signals { service_time: Nanos::from_secs(1), ..waits };
        assert_eq!(settings.utilization(&slow_work), 0.5);
    }

    #[test]
    fn a_runtime_that_wakes_late_is_overloaded() {
        let settings = SignalSettings::default();
        let late = Signals { scheduler_delay: Nanos::from_millis(11), ..loaded(1.0, 0.0) };
        assert_eq!(settings.utilization(&late), 1.25);
    }

    #[test]
    fn nonsense_is_no_load() {
        let settings = SignalSettings::default();
        let nonsense = Signals { in_flight: f64::NAN, limit: 0, ..Signals::default() };
        assert_eq!(settings.utilization(&nonsense), 0.0);
    }

    #[test]
    fn a_smoothed_signal_comes_two_thirds_of_the_way_in_its_time_constant() {
        let mut smoothed = SmoothedValue::default();
        let second = Nanos::from_secs(1);
        for _ in 0..4 {
            smoothed.record(1.0, Nanos::from_millis(250), second);
        }
        assert!((smoothed.0 - 0.632).abs() < 0.001);
        assert_eq!(smoothed.record(7.0, second, Nanos::ZERO), 7.0);
    }
}
