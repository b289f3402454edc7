//! The settings of a throttled service.

use std::net::SocketAddr;
use std::time::Duration;

use crate::chance::Chance;
use crate::judge::ServiceLimit;

/// A delay with a lognormal spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Half of the delays are shorter.
    pub median: Duration,
    /// The deviation of the logarithm; 0 for a constant delay.
    pub spread: f64,
}

impl Latency {
    /// No delay.
    pub const NONE: Latency = Latency { median: Duration::ZERO, spread: 0.0 };
    /// The longest delay; a lognormal distribution has none.
    const MAX: Duration = Duration::from_secs(60);

    /// Draws a delay.
    pub fn draw(self, chance: &mut Chance) -> Duration {
        if self.median.is_zero() {
            return Duration::ZERO;
        }
        let factor = (self.spread * chance.normal()).exp();
        let seconds = (self.median.as_secs_f64() * factor).min(Self::MAX.as_secs_f64());
        Duration::try_from_secs_f64(seconds).unwrap_or(self.median)
    }
}

/// How a throttled answer says when to return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryHint {
    /// Not at all.
    None,
    /// `Retry-After` in whole seconds, rounded up.
    Seconds,
    /// `Retry-After-Ms`.
    #[default]
    Milliseconds,
}

/// A fault that a test switches on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceFault {
    /// None.
    #[default]
    None,
    /// Every request gets this status, and none is judged.
    Status(u16),
    /// Every request gets 503 with `Retry-After` in seconds, and none is judged.
    Closed {
        /// The seconds.
        retry_after: u32,
    },
    /// Requests are judged, and answered after this time.
    Slow(Duration),
    /// Requests are judged, and never answered.
    Silent,
}

/// The settings of a throttled service.
#[derive(Clone, Debug)]
pub struct ThrottledServiceSettings {
    /// Where it listens; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The threads that serve requests.
    pub threads: usize,
    /// Its limits.
    pub limits: Vec<ServiceLimit>,
    /// The units of a request without the field `X-Units`.
    pub units: u64,
    /// How far the units charged may differ from those announced, in percent.
    pub units_spread_percent: u8,
    /// The delay between the arrival at the socket and the judgement, like a network's.
    pub delay_before: Latency,
    /// The delay between the judgement and the answer.
    pub delay_after: Latency,
    /// How many of a million accepted requests get 500 instead of 200.
    pub error_ppm: u32,
    /// How a throttled answer says when to return.
    pub retry_hint: RetryHint,
    /// Whether a slot's older epoch is rejected with 409.
    pub fences: bool,
    /// The seed of delays, errors and charges.
    pub seed: u64,
}

impl ThrottledServiceSettings {
    /// A service with these limits on a free port of the loopback interface, without delays and errors.
    pub fn new(limits: Vec<ServiceLimit>) -> Self {
        ThrottledServiceSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            threads: 1,
            limits,
            units: 1,
            units_spread_percent: 0,
            delay_before: Latency::NONE,
            delay_after: Latency::NONE,
            error_ppm: 0,
            retry_hint: RetryHint::default(),
            fences: false,
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_delays_are_below_the_median() {
        let latency = Latency { median: Duration::from_millis(20), spread: 0.5 };
        let mut chance = Chance::new(5);
        let drawn: Vec<_> = (0..10_000).map(|_| latency.draw(&mut chance)).collect();
        let below = drawn.iter().filter(|delay| **delay < latency.median).count();
        assert!((4_800..5_200).contains(&below), "{below}");
        assert!(drawn.iter().all(|delay| *delay < Duration::from_secs(1)));
        assert_eq!(Latency::NONE.draw(&mut chance), Duration::ZERO);
    }
}
