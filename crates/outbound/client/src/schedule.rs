//! When the next call may leave under one quota that the service named.
//!
//! While plenty is left, calls leave at once: a caller with spare quota pays no latency. Below a tenth of it they leave
//! at 99 % of the stated rate, and go on so until the demand falls, because a burst after each window would only meet
//! the wall again. When nothing is left, they wait for the reset.

use compact_str::CompactString;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_response_fields::PolicyReading;

/// The part of a stated rate that is used, in percent: clocks and latencies differ a little.
const UTILISATION: u64 = 99;
/// PacedService starts when less than one part in this many is left.
const FLOOR_PART: u64 = 10;
/// How much a late timer may be caught up on.
const SLACK: Nanos = Nanos::from_millis(2);
/// A schedule that lies this many intervals in the past has no demand: bursts are allowed again.
const IDLE_INTERVALS: u64 = 8;
const IDLE_MIN: Nanos = Nanos::from_millis(100);

/// The calls under one quota.
#[derive(Clone, Debug)]
pub(crate) struct PolicySchedule {
    pub(crate) name: CompactString,
    quota: Option<u64>,
    window: Option<Nanos>,
    /// What was left after the call `applied`.
    remaining: u64,
    /// The most that was ever left: what the quota allows at once.
    peak: u64,
    /// The call whose answer was applied last.
    applied: u64,
    /// When the quota is whole again.
    resets_at: Timestamp,
    /// When the next paced call may leave.
    next: Timestamp,
    /// Since when calls have been paced; `None` while they leave at once.
    paced_since: Option<Timestamp>,
}

impl PolicySchedule {
    /// The schedule of a quota that an answer named for the first time.
    pub(crate) fn new(reading: &PolicyReading, sequence: u64, now: Timestamp) -> Option<Self> {
        let remaining = reading.remaining?;
        Some(PolicySchedule {
            name: reading.name.clone(),
            quota: reading.quota.filter(|quota| *quota > 0),
            window: reading.window.filter(|window| window.get() > 0),
            remaining,
            peak: remaining,
            applied: sequence,
            resets_at: reading.reset.map_or(Timestamp::MAX, |reset| now.after(reset)),
            next: now,
            paced_since: None,
        })
    }

    /// Applies what the answer to the call `sequence` says. Answers overtake each other: only an answer to a later call
    /// than the last may raise what is left; every answer may lower it.
    pub(crate) fn apply(
        &mut self,
        reading: &PolicyReading,
        sequence: u64,
        last_sent: u64,
        now: Timestamp,
    ) {
        let Some(remaining) = reading.remaining else { return };
        let left = remaining.saturating_sub(last_sent.saturating_sub(sequence));
        if sequence <= self.applied && left >= self.left(last_sent) {
            return;
        }
        self.quota = reading.quota.filter(|quota| *quota > 0).or(self.quota);
        self.window = reading.window.filter(|window| window.get() > 0).or(self.window);
        self.remaining = remaining;
        self.peak = self.peak.max(remaining);
        self.applied = sequence;
        self.resets_at = reading.reset.map_or(self.resets_at, |reset| now.after(reset));
    }

    /// How long the next call waits; zero if it may leave now.
    pub(crate) fn wait(&mut self, last_sent: u64, now: Timestamp) -> Nanos {
        self.pass_reset(last_sent, now);
        let left = self.available(last_sent, now);
        if left == 0 {
            self.paced_since = self.paced_since.or(Some(now));
            // Without a reset only an answer or the stated rate can say more.
            let at = if self.resets_at == Timestamp::MAX { self.next } else { self.resets_at };
            return at.since(now);
        }
        let is_idle = now.since(self.next) > self.idle_span(left, now);
        if self.paced_since.is_some() && is_idle {
            self.paced_since = None;
        }
        if self.paced_since.is_none() && left > self.peak.div_ceil(FLOOR_PART) {
            return Nanos::ZERO;
        }
        self.paced_since = self.paced_since.or(Some(now));
        self.next.since(now)
    }

    /// Counts a call that leaves now.
    pub(crate) fn count_send(&mut self, last_sent: u64, now: Timestamp) {
        let interval = self.interval(self.left(last_sent).max(1), now);
        let earliest = Timestamp::from_nanos(now.as_nanos().saturating_sub(SLACK.get()));
        self.next = self.next.max(earliest).after(interval);
    }

    /// Paces calls from `at` on, without a burst: the target reopens then.
    pub(crate) fn reopen(&mut self, at: Timestamp) {
        self.paced_since = Some(at);
        self.next = self.next.max(at);
    }

    /// What is left when all calls sent since the applied one have been charged.
    fn left(&self, last_sent: u64) -> u64 {
        self.remaining.saturating_sub(last_sent.saturating_sub(self.applied))
    }

    /// What the next call may count on. Calls in flight are charged, except after a whole window at the stated rate:
    /// they cannot exceed the quota then, and at the end of a window they would stall the pace.
    fn available(&self, last_sent: u64, now: Timestamp) -> u64 {
        let has_kept_pace = self.quota.is_some()
            && self
                .window
                .zip(self.paced_since)
                .is_some_and(|(window, since)| now.since(since) >= window);
        if has_kept_pace { self.remaining } else { self.left(last_sent) }
    }

    /// After the reset the quota is whole again, until an answer says more.
    fn pass_reset(&mut self, last_sent: u64, now: Timestamp) {
        if now < self.resets_at {
            return;
        }
        // The largest remainder seen was after a call that had taken one.
        self.remaining = self.peak.saturating_add(1).min(self.quota.unwrap_or(u64::MAX));
        self.applied = last_sent;
        // The wait for the reset was no lack of demand.
        self.next = self.next.max(self.resets_at);
        self.paced_since = self.paced_since.map(|_| now);
        self.resets_at = self.window.map_or(Timestamp::MAX, |window| now.after(window));
    }

    /// The time between two paced calls: by the rate if it is known, else what is left spread until the reset.
    fn interval(&self, left: u64, now: Timestamp) -> Nanos {
        match (self.quota, self.window) {
            (Some(quota), Some(window)) => {
                let scaled = u128::from(window.get()) * 100;
                let interval = scaled.div_ceil(u128::from(quota) * u128::from(UTILISATION));
                Nanos::new(u64::try_from(interval).unwrap_or(u64::MAX))
            }
            _ if self.resets_at == Timestamp::MAX => Nanos::ZERO,
            _ => Nanos::new(self.resets_at.since(now).get() / left),
        }
    }

    fn idle_span(&self, left: u64, now: Timestamp) -> Nanos {
        let idle = self.interval(left, now).get().saturating_mul(IDLE_INTERVALS);
        Nanos::new(idle).max(IDLE_MIN)
    }
}
