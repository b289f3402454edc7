//! Offered demand: how busy the process would be if it admitted every request.
//!
//! By Little's law the demand for slots is the rate of offered requests times the time that a
//! request holds its slot. Both are measured while requests are shed: the offered requests are
//! counted before the threshold, the holding time is that of the admitted ones. So the end of an
//! overload is known as soon as enough requests are counted, and nothing has to be tried.
//!
//! The estimate is an upper bound. The number of arrivals is random, so three standard
//! deviations are added; with few arrivals the bound is far above the mean.

use tidegate_algorithms::Nanos;
use tidegate_macros::defaults;

use crate::utilization::Signals;

/// Ticks that are remembered: ten seconds with ticks of 250 ms.
const TICKS: usize = 40;
/// Arrivals of a shorter time say too little about a rate.
const WINDOW_MIN: Nanos = Nanos::from_secs(1);
/// Standard deviations between the mean and the bound.
const DEVIATIONS: f64 = 3.0;
/// The holding time is a mean over about so many requests.
const ENTERED: f64 = 4096.0;
/// With fewer the holding time is unknown.
const ENTERED_MIN: f64 = 16.0;

defaults! {
    /// The offered demand, measured tick by tick.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct OfferedDemand {
        /// Arrivals and the length of each tick, the newest first.
        ticks: [(u64, Nanos); TICKS] = [(0, Nanos::ZERO); TICKS],
        holding: HoldingTime,
    }
}

impl OfferedDemand {
    /// Takes in a tick. Returns the upper bound of the demand as a part of the limit, or `None`
    /// while it is unknown.
    pub(crate) fn record(
        &mut self,
        arrivals: u64,
        passed: Nanos,
        signals: &Signals,
    ) -> Option<f64> {
        self.ticks.rotate_right(1);
        self.ticks[0] = (arrivals, passed);
        self.holding.record(signals.entered, signals.in_flight * seconds(passed));
        Some(self.rate_max()? * self.holding.mean()? / signals.limit.max(1) as f64)
    }

    /// The upper bound of offered requests a second: the lowest bound of all windows, since a
    /// longer one is surer, but not less than the rate of the shortest, which is the latest.
    fn rate_max(&self) -> Option<f64> {
        let (mut arrivals, mut length) = (0u64, Nanos::ZERO);
        let mut found: Option<(f64, f64)> = None;
        for (count, passed) in self.ticks {
            arrivals = arrivals.saturating_add(count);
            length = Nanos::new(length.get().saturating_add(passed.get()));
            if length < WINDOW_MIN {
                continue;
            }
            let (mean, length) = (arrivals as f64, seconds(length));
            let bound = (mean + DEVIATIONS * mean.max(1.0).sqrt()) / length;
            found = Some(match found {
                None => (mean / length, bound),
                Some((latest, least)) => (latest, least.min(bound)),
            });
        }
        found.map(|(latest, least)| latest.max(least))
    }
}

/// How long a request holds its slot: the time that slots were held over the requests that
/// entered. Fades with the number of requests and not with time, so the mean of the last ones is
/// kept while few enter.
#[derive(Clone, Copy, Debug, Default)]
struct HoldingTime {
    held_seconds: f64,
    entered: f64,
}

impl HoldingTime {
    fn record(&mut self, entered: u64, held_seconds: f64) {
        let fresh = entered as f64;
        let kept = (-fresh / ENTERED).exp();
        self.held_seconds = self.held_seconds * kept + held_seconds.max(0.0);
        self.entered = self.entered * kept + fresh;
    }

    fn mean(&self) -> Option<f64> {
        (self.entered >= ENTERED_MIN).then(|| self.held_seconds / self.entered)
    }
}

fn seconds(span: Nanos) -> f64 {
    span.get() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Nanos = Nanos::from_millis(250);

    /// A tick of a server with 64 slots that serves all of `arrivals`, 20 ms each.
    fn signals(entered: u64) -> Signals {
        let in_flight = entered as f64 * 4.0 * 0.02;
        Signals { entered, in_flight, limit: 64, ..Signals::default() }
    }

    fn after(ticks: &[u64]) -> Option<f64> {
        let mut demand = OfferedDemand::default();
        ticks.iter().map(|count| demand.record(*count, TICK, &signals(*count))).last()?
    }

    #[test]
    fn demand_is_unknown_for_a_second_and_while_nothing_enters() {
        assert_eq!(after(&[400; 3]), None);
        assert!(after(&[400; 4]).is_some());
        assert_eq!(after(&[0; 40]), None);
    }

    #[test]
    fn the_bound_lies_above_the_demand_and_comes_closer_with_more_arrivals() {
        // 1,600 a second × 20 ms are half of the slots.
        let (early, late) = (after(&[400; 4]).unwrap(), after(&[400; 16]).unwrap());
        assert!(0.5 < late && late < early && early < 0.54, "{early} {late}");
        let few = after(&[4; 16]).unwrap();
        assert!(few > 1.3 * 0.005, "{few}");
    }

    #[test]
    fn what_is_shed_counts_as_offered() {
        let mut demand = OfferedDemand::default();
        let bounds: Vec<_> =
            (0..8).map(|_| demand.record(8_000, TICK, &signals(800)).unwrap_or(0.0)).collect();
        assert!(bounds[7] > 10.0, "{bounds:?}");
    }

    #[test]
    fn a_fall_is_known_after_a_second_and_a_rise_at_once() {
        let fallen = [[8_000; 40].as_slice(), &[400; 4]].concat();
        assert!(after(&fallen).unwrap() < 0.6);
        let risen = [[400; 40].as_slice(), &[8_000; 1]].concat();
        assert!(after(&risen).unwrap() > 2.0);
    }

    #[test]
    fn numbers_out_of_range_are_no_demand() {
        let mut demand = OfferedDemand::default();
        let wild = Signals { in_flight: f64::NAN, entered: u64::MAX, ..Signals::default() };
        for _ in 0..40 {
            let bound = demand.record(u64::MAX, Nanos::MAX, &wild);
            assert!(bound.is_none_or(|bound| bound >= 0.0), "{bound:?}");
        }
    }
}
