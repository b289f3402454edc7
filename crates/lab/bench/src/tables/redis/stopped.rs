//! Latencies when Redis stops under load.
//!
//! The process is stopped, not killed: connections stay open without an error, so only
//! timeouts detect it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_stores::Consistency;
use tokio::time::sleep;

use super::instance::Instance;
use super::node::{CallerContext, KEYS, Load, Node, ample};
use crate::stopwatch::Stopwatch;

/// How long a request waits for Redis: the default.
pub(super) const DEADLINE: Duration = Duration::from_millis(250);
/// How long Redis may be silent: the default.
const SILENCE: Duration = Duration::from_secs(1);
const CALLERS: usize = 64;
/// A caller's pause after an answer.
const PAUSE: Duration = Duration::from_millis(1);
const BEFORE: Duration = Duration::from_millis(300);
/// Attempts on a machine on which Redis is late.
const TRIES: usize = 20;
/// Twice as long as Redis may be silent before its connection counts as dead.
const DURING: Duration = Duration::from_secs(2);

/// Latencies of decisions without Redis, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct StopWaits {
    /// Of requests that were sent to Redis before the breaker opened.
    first: Vec<f64>,
    /// Of requests after the breaker opened.
    open: Vec<f64>,
}

impl StopWaits {
    /// Adds the latencies of another measurement.
    pub(super) fn extend(&mut self, other: StopWaits) {
        self.first.extend(other.first);
        self.open.extend(other.open);
    }

    /// The 99.9th percentile of requests that were sent to Redis.
    pub(super) fn first(&self) -> Option<f64> {
        at_permille(&self.first, 999)
    }

    /// The 99.9th percentile of later requests.
    pub(super) fn open(&self) -> Option<f64> {
        at_permille(&self.open, 999)
    }

    /// The number of requests of both kinds.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.first.len(), self.open.len())
    }
}

/// Stops Redis once under load.
///
/// # Errors
/// When Redis has ended, or a request could not be decided at all.
pub(super) fn waits(instance: &Instance) -> anyhow::Result<StopWaits> {
    let (consistency, limit) = (Consistency::Exact, ample());
    let load = Load { consistency, limit, keys: KEYS, within: DEADLINE, silence: SILENCE };
    let node = Node::start(instance, &load)?;
    let waits = Arc::new(Mutex::new(StopWaits::default()));
    let noted = Arc::clone(&waits);
    let call = move |context, place| ask_and_time(context, place, Arc::clone(&noted));
    let watch = async || {
        for _ in 0..TRIES {
            sleep(BEFORE).await;
            if !node.store().is_degraded() {
                break;
            }
        }
        // Excludes timeouts of a busy machine before the stop.
        *waits.lock() = StopWaits::default();
        instance.stop()?;
        sleep(DURING).await;
        instance.go_on()
    };
    node.with_callers(CALLERS, call, watch)?;
    Ok(std::mem::take(&mut *waits.lock()))
}

async fn ask_and_time(
    context: Arc<CallerContext>,
    place: usize,
    waits: Arc<Mutex<StopWaits>>,
) -> anyhow::Result<()> {
    for name in context.keys_from(place) {
        if context.is_over() {
            break;
        }
        let open = context.store.is_degraded();
        let stopwatch = Stopwatch::start();
        let answer = context.decide(name).await?;
        let took = stopwatch.elapsed().as_secs_f64() * 1e3;
        if answer.is_some_and(|answer| answer.basis.is_degraded()) {
            let mut waits = waits.lock();
            if open { waits.open.push(took) } else { waits.first.push(took) }
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

/// The time below which so many of a thousand are, if there are any.
pub(super) fn at_permille(times: &[f64], permille: usize) -> Option<f64> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let place = (times.len() * permille).div_ceil(1_000);
    times.get(place.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_thousand_is_left_out() {
        let mut times: Vec<f64> = (1..1_000).map(f64::from).collect();
        times.push(1e9);
        assert_eq!(at_permille(&times, 999).map(f64::round), Some(999.0));
        assert_eq!(at_permille(&[3.0], 999).map(f64::round), Some(3.0));
        assert_eq!(at_permille(&[], 999), None);
    }
}
