//! A few refusals, kept as examples for a log.
//!
//! Counters say how many were refused; an example says who, so that somebody can go and ask. At
//! most one refusal in a while becomes one: the others pay for a comparison. Whoever writes the log
//! takes the examples away; what nobody takes stays within a maximum.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::{Nanos, Timestamp};

/// The most examples that wait to be taken.
const SAMPLES_MAX: usize = 1_000;

/// One request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// When it came.
    pub at: Timestamp,
    /// For whom it was, if that is known.
    pub client: Option<IpAddr>,
    /// The name of its route.
    pub route: Box<str>,
    /// Why, as its answer says: `rate_limited`, `shed_worker`.
    pub code: &'static str,
}

/// Takes an example now and then.
#[derive(Debug)]
pub(super) struct Samples {
    every: Nanos,
    /// Nothing that came before is an example.
    next: AtomicU64,
    kept: Mutex<Vec<RefusedRequest>>,
}

impl Samples {
    pub(super) fn new(every: Duration) -> Self {
        Samples { every: Nanos::from(every), next: AtomicU64::new(0), kept: Mutex::default() }
    }

    /// Whether the request that came then is to be an example. True once in a while.
    #[inline]
    pub(super) fn wants(&self, came: Timestamp) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        if came.as_nanos() < next {
            return false;
        }
        let later = came.after(self.every).as_nanos();
        self.next.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Keeps an example, unless there are too many or somebody takes them just now.
    pub(super) fn keep(&self, example: RefusedRequest) {
        if let Some(mut kept) = self.kept.try_lock().filter(|kept| kept.len() < SAMPLES_MAX) {
            kept.push(example);
        }
    }

    /// Those since the last time.
    pub(super) fn take(&self) -> Vec<RefusedRequest> {
        std::mem::take(&mut self.kept.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(at: Timestamp) -> RefusedRequest {
        RefusedRequest { at, client: None, route: "all".into(), code: "rate_limited" }
    }

    #[test]
    fn one_in_a_while_is_an_example() {
        let samples = Samples::new(Duration::from_secs(1));
        let at = |millis| Timestamp::EPOCH.after(Nanos::from_millis(millis));
        let wanted: Vec<bool> =
            [0, 1, 999, 1_000, 1_500, 2_000].map(|millis| samples.wants(at(millis))).into();
        assert_eq!(wanted, [true, false, false, true, false, true]);
    }

    #[test]
    fn examples_are_taken_once_and_bounded() {
        let samples = Samples::new(Duration::ZERO);
        for _ in 0..SAMPLES_MAX + 5 {
            samples.keep(example(Timestamp::EPOCH));
        }
        assert_eq!(samples.take().len(), SAMPLES_MAX);
        assert!(samples.take().is_empty());
    }
}
