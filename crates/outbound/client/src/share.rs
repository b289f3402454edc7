//! The rate that this process may use when the stated one is not the whole truth.
//!
//! Several processes on one key, or a service that states no rate, refuse a caller that keeps to what it knows. Then the
//! share is searched: a refusal cuts the rate to 85 % of the accepted one, it returns to 95 % within two seconds, grows
//! by half a percent a second from there, and is forgotten when it has doubled. Rates are in calls per thousand seconds,
//! so that all is in integers.

use tidegate_algorithms::{Nanos, Timestamp};

/// What remains of the accepted rate after a refusal, and what of it comes back soon, in thousandths.
const CUT: u64 = 850;
const RESTORED: u64 = 950;
/// When that much is restored.
const RESTORED_AFTER: Nanos = Nanos::from_secs(2);
/// The growth in a second afterwards, in thousandths.
const GROWTH: u64 = 5;
/// The growth of that growth: a share that was cut too far comes back within a minute.
const GROWTH_SQUARED: u64 = 1;
/// The share that is forgotten: twice the accepted rate.
const FORGOTTEN: u64 = 2_000;
/// The lowest rate: one call in two seconds.
const RATE_MIN: u64 = 500;
/// Refusals within this time belong to one cut: their calls left before it.
const CUT_PAUSE: Nanos = Nanos::from_secs(1);
/// How long accepted calls are counted for one reading of the rate.
const BIN: Nanos = Nanos::from_millis(500);
const SLACK: Nanos = Nanos::from_millis(2);

/// The search for this process's share.
#[derive(Clone, Debug)]
pub(crate) struct ShareSearch {
    /// The rate that was accepted before the last cut, and when that was; `None` while the stated rates suffice.
    cut: Option<(u64, Timestamp)>,
    /// Calls accepted since `bin_start`.
    accepted: u64,
    bin_start: Timestamp,
    /// The rate of accepted calls, smoothed.
    accepted_rate: u64,
    next: Timestamp,
}

impl ShareSearch {
    pub(crate) const fn new(now: Timestamp) -> Self {
        ShareSearch { cut: None, accepted: 0, bin_start: now, accepted_rate: 0, next: now }
    }

    /// Counts a call that the service accepted.
    pub(crate) fn count_accepted(&mut self, now: Timestamp) {
        self.accepted += 1;
        self.read_bin(now);
    }

    /// Lowers the rate after a refusal.
    pub(crate) fn cut(&mut self, now: Timestamp) {
        if self.cut.is_some_and(|(_, at)| now.since(at) < CUT_PAUSE) {
            return;
        }
        self.read_bin(now);
        let accepted = match self.rate(now) {
            // Calls waited for this rate, so that it is what was accepted at most.
            Some(rate) => rate.min(self.accepted_rate.max(rate / 2)),
            None => self.accepted_rate,
        };
        // Nothing accepted yet says nothing about a share: the hold alone must do.
        if accepted == 0 {
            return;
        }
        self.cut = Some((accepted.max(RATE_MIN), now));
        self.next = self.next.max(now);
    }

    /// Leaves the time until `until` out of the measured rate: the target is closed.
    pub(crate) fn skip_until(&mut self, until: Timestamp) {
        self.bin_start = self.bin_start.max(until);
        self.accepted = 0;
    }

    /// How long the next call waits.
    pub(crate) fn wait(&mut self, now: Timestamp) -> Nanos {
        if self.rate(now).is_none() {
            self.cut = None;
            return Nanos::ZERO;
        }
        self.next.since(now)
    }

    /// Counts a call that leaves now.
    pub(crate) fn count_send(&mut self, now: Timestamp) {
        if let Some(rate) = self.rate(now) {
            let interval = Nanos::new(1_000_000_000_000 / rate);
            let earliest = Timestamp::from_nanos(now.as_nanos().saturating_sub(SLACK.get()));
            self.next = self.next.max(earliest).after(interval);
        }
    }

    /// The rate in use; `None` once it has doubled since the cut.
    fn rate(&self, now: Timestamp) -> Option<u64> {
        let (accepted, at) = self.cut?;
        let passed = now.since(at).get() / 1_000_000;
        let restored_after = RESTORED_AFTER.get() / 1_000_000;
        let thousandths = if passed < restored_after {
            CUT + (RESTORED - CUT) * passed / restored_after
        } else {
            let seconds = (passed - restored_after).min(1_000_000);
            (seconds * GROWTH + seconds * seconds / 1_000 * GROWTH_SQUARED) / 1_000 + RESTORED
        };
        (thousandths < FORGOTTEN)
            .then(|| (accepted.saturating_mul(thousandths) / 1_000).max(RATE_MIN))
    }

    /// Turns the count of a full bin into a rate; an idle time counts as it is.
    fn read_bin(&mut self, now: Timestamp) {
        let passed = now.since(self.bin_start).get();
        if passed < BIN.get() {
            return;
        }
        let rate = u128::from(self.accepted) * 1_000_000_000_000 / u128::from(passed);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.accepted_rate = if self.accepted_rate == 0 {
            rate
        } else {
            (self.accepted_rate / 5).saturating_add(rate / 5 * 4)
        };
        self.accepted = 0;
        self.bin_start = now;
    }
}
