//! Measurements of one server: throughput and CPU at saturation, and latency at a given rate.

use std::time::Duration;

use crate::load::{Enough, Generator, Protocol, Wait};
use crate::processor::spent;
use crate::rounds::Measurement;
use crate::spread::Spread;

/// Not measured: connections are opened and caches filled.
const WARM_UP: Duration = Duration::from_millis(300);

/// A server at saturation.
#[derive(Clone, Copy, Debug)]
pub(super) struct SaturationFigures {
    /// CPU time of the server, and of its store if it has one, for a call.
    pub(super) cpu_micros: f64,
    pub(super) per_second: f64,
}

/// Latencies at a given rate of arrivals.
#[derive(Clone, Debug)]
pub(super) struct WaitFigures {
    /// The 99th percentile of each interval, by time of arrival: a pause of the machine spoils
    /// only the intervals it falls into.
    pub(super) p99_micros: Vec<f64>,
    /// Answers a second.
    pub(super) per_second: f64,
    /// CPU usage of the server, in percent.
    pub(super) busy_percent: f64,
}

impl WaitFigures {
    /// The median of all intervals: pauses of the machine spoil fewer than half of them.
    pub(super) fn usual_p99_micros(&self) -> f64 {
        Spread::of(self.p99_micros.clone()).median
    }
}

/// The time during which callers arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) time: Duration,
    /// The length of an interval.
    pub(super) interval: Duration,
}

/// The processes of a measurement: the server with its store, and helpers such as an upstream.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchedProcesses<'a> {
    pub(super) servers: &'a [u32],
    pub(super) helpers: &'a [u32],
}

/// Saturates a server for a time.
///
/// # Errors
/// When a call fails or is refused.
pub(super) fn saturate(
    generator: &mut Generator<impl Protocol>,
    watched: WatchedProcesses<'_>,
    time: Duration,
) -> anyhow::Result<Measurement<SaturationFigures>> {
    generator.saturate(Enough::After(WARM_UP))?;
    let saturate = || generator.saturate(Enough::After(time));
    let (replies, spent) = spent(watched.servers, watched.helpers, saturate)?;
    let replies = replies as f64;
    let saturated = SaturationFigures {
        cpu_micros: spent.usage.server.as_secs_f64() * 1e6 / replies,
        per_second: replies / spent.time.as_secs_f64(),
    };
    Ok(Measurement { figures: saturated, others: spent.others() })
}

/// Lets callers arrive for a time. `meanwhile` runs other work of the generator's processor.
///
/// # Errors
/// When a call fails or is refused, or when `meanwhile` fails.
pub(super) fn arrive(
    generator: &mut Generator<impl Protocol>,
    server: u32,
    per_second: f64,
    span: Span,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Measurement<WaitFigures>> {
    generator.arrive(per_second, WARM_UP, &mut meanwhile)?;
    let arrive = || generator.arrive(per_second, span.time, &mut meanwhile);
    let (waits, spent) = spent(&[server], &[], arrive)?;
    let seconds = spent.time.as_secs_f64();
    let figures = WaitFigures {
        p99_micros: p99_micros(&waits, span),
        per_second: waits.len() as f64 / seconds,
        busy_percent: 100.0 * spent.usage.server.as_secs_f64() / seconds,
    };
    Ok(Measurement { figures, others: spent.others() })
}

/// The 99th percentile of each interval; NaN where no caller arrived.
fn p99_micros(waits: &[Wait], Span { time, interval }: Span) -> Vec<f64> {
    let index = |arrived: Duration| (arrived.as_nanos() / interval.as_nanos().max(1)) as usize;
    let mut intervals = vec![Vec::new(); index(time).max(1)];
    for wait in waits {
        // The rest after the last whole interval is too short.
        if let Some(waits) = intervals.get_mut(index(wait.arrived)) {
            waits.push(wait.waited);
        }
    }
    let p99 = |mut waited: Vec<Duration>| {
        waited.sort_unstable();
        let at = (waited.len() * 99).div_ceil(100).saturating_sub(1);
        waited.get(at).map_or(f64::NAN, |waited| waited.as_secs_f64() * 1e6)
    };
    intervals.into_iter().map(p99).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(arrived_millis: u64, waited_micros: impl IntoIterator<Item = u64>) -> Vec<Wait> {
        let arrived = Duration::from_millis(arrived_millis);
        let wait = |micros| Wait { arrived, waited: Duration::from_micros(micros) };
        waited_micros.into_iter().map(wait).collect()
    }

    #[test]
    fn an_interval_has_the_99th_percentile_of_its_waits() {
        let span = Span { time: Duration::from_millis(25), interval: Duration::from_millis(10) };
        let all = [waits(3, (1..=200).rev()), waits(12, [7]), waits(24, [9])].concat();
        assert_eq!(p99_micros(&all, span), [198.0, 7.0]);
    }

    #[test]
    fn an_interval_without_arrivals_has_none() {
        let span = Span { time: Duration::from_millis(20), interval: Duration::from_millis(10) };
        let [none, one] = p99_micros(&waits(10, [5]), span)[..] else { panic!("two intervals") };
        assert!(none.is_nan());
        assert_eq!(one, 5.0);
    }
}
