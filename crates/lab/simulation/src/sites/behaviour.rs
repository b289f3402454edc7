//! How a caller sends requests.

use tidegate_algorithms::{Nanos, Retry, Timestamp};

use crate::chance::Chance;

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// How a caller sends requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Behaviour {
    /// Sessions of some minutes at a steady rate, a few hours apart. After a refusal it waits if it is obedient.
    Sessions { gap: u64, session: u64, pause: u64, obedient: bool },
    /// Many requests within seconds, then nothing for hours.
    Bursts { gap: u64, size: u64 },
    /// Some requests just before the end of a minute and some just after, hours apart.
    Edges { gap: u64, half: u64 },
}

/// A caller with what it does now.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    behaviour: Behaviour,
    /// When the session ends.
    until: u64,
    /// Requests left of a burst.
    left: u64,
    chance: Chance,
}

impl Caller {
    pub(super) fn new(behaviour: Behaviour, seed: u64) -> Self {
        Caller { behaviour, until: 0, left: 0, chance: Chance::new(seed) }
    }

    /// When it sends first.
    pub(super) fn first(&mut self, start: u64) -> u64 {
        let gap = match self.behaviour {
            Behaviour::Sessions { gap, .. }
            | Behaviour::Bursts { gap, .. }
            | Behaviour::Edges { gap, .. } => gap,
        };
        let at = start + self.chance.between(0, gap);
        self.begin(at)
    }

    /// Begins a session, a burst or a pair at the edge.
    fn begin(&mut self, at: u64) -> u64 {
        match self.behaviour {
            Behaviour::Sessions { session, .. } => {
                self.until = at + session / 2 + self.chance.between(0, session);
                at
            }
            Behaviour::Bursts { size, .. } => {
                self.left = size * self.chance.between(70, 130) / 100;
                at
            }
            Behaviour::Edges { half, .. } => {
                self.left = 2 * half;
                // Eight seconds before the end of a minute.
                at / MINUTE * MINUTE + 52 * SECOND
            }
        }
    }

    /// When it sends next, after the answer to its request at `now`.
    pub(super) fn next(&mut self, now: u64, retry: Option<Retry>) -> u64 {
        match self.behaviour {
            Behaviour::Sessions { gap, pause, obedient, .. } => {
                let wait = match retry {
                    Some(Retry::After(wait)) if obedient => wait.get().max(pause / 4),
                    _ => self.exponential(pause),
                };
                let next = now + wait.max(1);
                if next < self.until {
                    return next;
                }
                let pause = gap / 2 + self.chance.between(0, gap);
                self.begin(next.max(now) + pause)
            }
            Behaviour::Bursts { gap, .. } => {
                self.left = self.left.saturating_sub(1);
                if self.left > 0 {
                    return now + self.chance.between(1, SECOND / 10);
                }
                let pause = gap / 2 + self.chance.between(0, gap);
                self.begin(now + pause)
            }
            Behaviour::Edges { gap, half } => {
                self.left = self.left.saturating_sub(1);
                if self.left == half {
                    return now / MINUTE * MINUTE + MINUTE + self.chance.between(1, SECOND);
                }
                if self.left > 0 {
                    return now + 7 * SECOND / half.max(1);
                }
                let pause = gap / 2 + self.chance.between(0, gap);
                self.begin(now + pause)
            }
        }
    }

    /// An exponentially distributed time with this mean, by the sum of few uniform ones' logarithm.
    fn exponential(&mut self, mean: u64) -> u64 {
        let uniform = (self.chance.next() >> 11).max(1);
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let part = uniform as f64 / (1_u64 << 53) as f64;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a simulated time; the conversion saturates"
        )]
        let time = (-part.ln() * mean as f64) as u64;
        time
    }
}

/// The instant of a simulated nanosecond.
pub(super) const fn instant(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// A minute as the period of limits.
pub(super) const PERIOD: Nanos = Nanos::new(MINUTE);
