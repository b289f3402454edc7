//! Samples of refusals, for a log.
//!
//! Counters tell how many requests were refused; a sample tells whose. At most one refusal per interval is sampled, the
//! others cost a comparison. The caller fetches the samples to log them; their number is bounded.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::{Nanos, Timestamp};

use super::access_log::RequestDetails;

/// The maximum number of samples not fetched yet.
const SAMPLES_MAX: usize = 1_000;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// When it arrived.
    pub at: Timestamp,
    /// The client, if it is known.
    pub client: Option<IpAddr>,
    /// The name of its route.
    pub route: Box<str>,
    /// The code of the refusal, such as `rate_limited` or `shed_worker`.
    pub code: &'static str,
    /// Its limit, category and caller, if the access log or a span has them too.
    pub details: Option<RequestDetails>,
}

/// Samples refusals.
#[derive(Debug)]
pub(super) struct RefusalSamples {
    every: Nanos,
    /// Requests that arrived before this instant are not sampled.
    next: AtomicU64,
    samples: Mutex<Vec<RefusedRequest>>,
}

impl RefusalSamples {
    pub(super) fn new(every: Duration) -> Self {
        RefusalSamples {
            every: Nanos::from(every),
            next: AtomicU64::new(0),
            samples: Mutex::default(),
        }
    }

    /// Whether a request that arrived at this instant is to be sampled. True at most once per interval.
    #[inline]
    pub(super) fn is_due(&self, arrived: Timestamp) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        if arrived.as_nanos() < next {
            return false;
        }
        let later = arrived.after(self.every).as_nanos();
        self.next.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Adds a sample, unless there are too many or the lock is taken.
    pub(super) fn add(&self, sample: RefusedRequest) {
        let samples = self.samples.try_lock().filter(|samples| samples.len() < SAMPLES_MAX);
        if let Some(mut samples) = samples {
            samples.push(sample);
        }
    }

    /// Takes the samples since the last call.
    pub(super) fn take(&self) -> Vec<RefusedRequest> {
        std::mem::take(&mut self.samples.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Timestamp) -> RefusedRequest {
        RefusedRequest {
            at,
            client: None,
            route: "all".into(),
            code: "rate_limited",
            details: None,
        }
    }

    #[test]
    fn one_refusal_per_interval_is_sampled() {
        let samples = RefusalSamples::new(Duration::from_secs(1));
        let at = |millis| Timestamp::EPOCH.after(Nanos::from_millis(millis));
        let wanted: Vec<bool> =
            [0, 1, 999, 1_000, 1_500, 2_000].map(|millis| samples.is_due(at(millis))).into();
        assert_eq!(wanted, [true, false, false, true, false, true]);
    }

    #[test]
    fn samples_are_taken_once_and_bounded() {
        let samples = RefusalSamples::new(Duration::ZERO);
        for _ in 0..SAMPLES_MAX + 5 {
            samples.add(sample(Timestamp::EPOCH));
        }
        assert_eq!(samples.take().len(), SAMPLES_MAX);
        assert!(samples.take().is_empty());
    }
}
