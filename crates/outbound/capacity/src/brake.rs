//! A brake for targets that throttle below their configured limit.
//!
//! Once a second the brake looks at the answers. When more than one in a hundred was throttled, the level falls by 15 %,
//! or to 98 % of what the target accepted if that is lower, and the brake remembers the level that failed. It then rises
//! quickly to 95 % of that level, waits ten seconds, and goes on by one point a second; five points a second once it is
//! a tenth past the level that failed. The level never rises above the whole.
//!
//! A target that names a time to wait is held closed until then, and opens over five seconds, beginning at a tenth.

use tidegate_algorithms::{Nanos, Timestamp};

use crate::pacing::Pace;

/// What became of a request, as far as the target's capacity is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetAnswer {
    /// The target took it, or failed for another reason.
    Accepted,
    /// The target refused it because too many came; it may say how long to wait.
    Throttled {
        /// The time to wait that the target named.
        retry_after: Option<Nanos>,
    },
}

/// The brake of one member for one target.
#[derive(Clone, Debug)]
pub struct Brake {
    level_ppm: u32,
    /// The level that it took over from the member that probes.
    followed_ppm: u32,
    /// The level at which the target throttled last.
    failed_ppm: Option<u32>,
    waits_until: Timestamp,
    looked_at: Timestamp,
    accepted: u32,
    throttled: u32,
    closed_until: Timestamp,
    hold_max: Nanos,
}

/// How often the brake looks at the answers.
const INTERVAL: Nanos = Nanos::from_secs(1);
/// Fewer answers than this say nothing.
const ANSWERS_MIN: u32 = 20;
/// The lowest level.
const LEVEL_MIN: u32 = 50_000;
/// How long the level stays just below the one that failed.
const WAIT: Nanos = Nanos::from_secs(10);
/// How long a target takes to open after a hold.
const RAMP: Nanos = Nanos::from_secs(5);

impl Brake {
    /// The longest hold unless the operator chooses another. Targets mix up seconds and milliseconds.
    pub const HOLD_MAX_DEFAULT: Nanos = Nanos::from_secs(300);

    /// A brake that is not applied.
    pub const fn new(hold_max: Nanos) -> Self {
        Brake {
            level_ppm: Pace::WHOLE,
            followed_ppm: Pace::WHOLE,
            failed_ppm: None,
            waits_until: Timestamp::EPOCH,
            looked_at: Timestamp::EPOCH,
            accepted: 0,
            throttled: 0,
            closed_until: Timestamp::EPOCH,
            hold_max,
        }
    }

    /// Counts an answer. Returns the hold that the target asked for, if it is longer than the present one.
    pub fn record(&mut self, answer: TargetAnswer, now: Timestamp) -> Option<Nanos> {
        match answer {
            TargetAnswer::Accepted => {
                self.accepted = self.accepted.saturating_add(1);
                None
            }
            TargetAnswer::Throttled { retry_after } => {
                self.throttled = self.throttled.saturating_add(1);
                retry_after.and_then(|wait| self.hold(wait, now))
            }
        }
    }

    /// Closes the target for this long, unless it is closed for longer already.
    pub fn hold(&mut self, wait: Nanos, now: Timestamp) -> Option<Nanos> {
        let wait = wait.min(self.hold_max);
        let until = now.after(wait);
        (until > self.closed_until).then(|| {
            self.closed_until = until;
            wait
        })
    }

    /// The end of the hold, if the target is closed.
    pub fn closed_until(&self, now: Timestamp) -> Option<Timestamp> {
        (now < self.closed_until).then_some(self.closed_until)
    }

    /// The part of the share to use at `now`, in parts per million: zero while the target is closed.
    pub fn level_ppm(&self, now: Timestamp) -> u32 {
        if now < self.closed_until {
            return 0;
        }
        let open_for = now.since(self.closed_until).get();
        if self.closed_until == Timestamp::EPOCH || open_for >= RAMP.get() {
            return self.level_ppm;
        }
        let ramp = 100_000 + 900_000 * open_for / RAMP.get();
        let level = u64::from(self.level_ppm) * ramp / u64::from(Pace::WHOLE);
        u32::try_from(level).unwrap_or(self.level_ppm)
    }

    /// The level without holds, to report to the other members.
    pub const fn own_level_ppm(&self) -> u32 {
        self.level_ppm
    }

    /// Whether this member has met the limit since it took over the shared level.
    pub const fn has_fallen(&self) -> bool {
        self.level_ppm < self.followed_ppm
    }

    /// Looks at the answers of the last second. `share_per_second` is how many requests the whole share allows in a
    /// second; only the member that `probes` raises the level.
    pub fn tick(&mut self, share_per_second: f64, probes: bool, now: Timestamp) {
        let age = now.since(self.looked_at);
        if age < INTERVAL {
            return;
        }
        let (accepted, throttled) = (self.accepted, self.throttled);
        let answers = accepted.saturating_add(throttled);
        if throttled > 0 && answers < ANSWERS_MIN {
            return;
        }
        self.looked_at = now;
        (self.accepted, self.throttled) = (0, 0);
        if throttled > answers / 100 {
            let seconds = (age.get() as f64 / 1e9).min(f64::from(answers));
            self.fall(f64::from(accepted) / seconds / share_per_second, now);
        } else if probes {
            self.rise(now);
        }
    }

    /// Takes the level of the member that probes. `reported_ppm` is what this member reported in the same heartbeat: a
    /// level that has fallen since is kept until the next one.
    pub const fn follow(&mut self, shared_ppm: u32, reported_ppm: u32) {
        if self.level_ppm == reported_ppm {
            self.level_ppm = shared_ppm;
            self.followed_ppm = shared_ppm;
            // Should this member probe next, it begins here and not at the whole share.
            if shared_ppm < Pace::WHOLE && self.failed_ppm.is_none() {
                self.failed_ppm = Some(shared_ppm);
            }
        }
    }

    fn fall(&mut self, accepted_part: f64, now: Timestamp) {
        self.failed_ppm = Some(self.level_ppm);
        let by_share = self.level_ppm / 100 * 85;
        let by_accepted = accepted_part.clamp(0.0, 1.0) * 0.98 * f64::from(Pace::WHOLE);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between zero and a million"
        )]
        let by_accepted = by_accepted as u32;
        self.level_ppm = by_share.min(by_accepted).max(LEVEL_MIN);
        self.waits_until = now.after(WAIT);
    }

    fn rise(&mut self, now: Timestamp) {
        let Some(failed) = self.failed_ppm else {
            self.level_ppm = Pace::WHOLE;
            return;
        };
        let safe = failed / 100 * 95;
        let step = if self.level_ppm < safe {
            (safe - self.level_ppm).min(100_000)
        } else if now < self.waits_until {
            0
        } else if self.level_ppm > failed.saturating_add(failed / 10) {
            50_000
        } else {
            10_000
        };
        self.level_ppm = self.level_ppm.saturating_add(step).min(Pace::WHOLE);
        if self.level_ppm == Pace::WHOLE {
            self.failed_ppm = None;
        }
    }
}

#[cfg(test)]
mod tests;
