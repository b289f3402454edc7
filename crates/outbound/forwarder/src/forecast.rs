//! When the work will be done, and what decides it.
//!
//! [`plan`] says before the start how long records take. [`forecast`] says while they are sent when the queue will be
//! empty: what is left, divided by the rate that the leases allow and by the part of it that was used in the last
//! seconds. A change of the share or of the brake therefore shows at once, and a machine that is too slow for its share
//! shows after a second. The interval comes from the spread of the last sixty seconds. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;
use tidegate_capacity::{Cost, Dimension, MemberStatus, TargetLimit, TargetLimits};
use tidegate_words::words;

/// The span of [`ForecastInput::granted`]: long, so that rates far below one in a second are exact.
pub const GRANT_SPAN: Duration = Duration::from_secs(1_000);
/// Seconds of history.
const HISTORY_MAX: usize = 60;
/// With fewer seconds, the interval is wide.
const HISTORY_MIN: usize = 3;
/// The newest seconds from which the used part of the granted rate is measured.
const USE_SECONDS: usize = 20;
/// As if so many records had used all that was granted: a few records prove little.
const USE_PRIOR: f64 = 20.0;
/// The least used part: a forecast is at most a hundred times the time at the granted rate.
const USE_MIN: f64 = 0.01;
/// Standard deviations of a 90 % interval.
const DEVIATIONS: f64 = 1.645;
/// The narrowest interval: timers and latencies are never exact.
const SPREAD_MIN: f64 = 0.02;

words! {
    /// What decides the rate.
    pub enum BindingCause {
        /// The target's limit.
        Limit = "limit",
        /// The share of the capacity that other members leave.
        Share = "share",
        /// The brake, because the target throttles below its limit.
        Brake = "brake",
        /// The target asked to wait.
        Hold = "hold",
        /// The maximum of requests in flight.
        Concurrency = "concurrency",
        /// The target does not answer.
        Down = "down",
        /// An operator paused it.
        Paused = "paused",
        /// There is nothing to send.
        NoWork = "no_work",
    }
}

/// Whether and when a queue will be empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outlook {
    /// Nothing is left.
    Done,
    /// It clears in this time, between `low` and `high` with a probability of about 90 %.
    Clears {
        /// The expected time.
        expected: Duration,
        /// The lower end of the interval.
        low: Duration,
        /// The upper end.
        high: Duration,
    },
    /// Nothing is sent until the cause ends; with the time after which it does, if that is known.
    Stalled {
        /// How long the cause lasts.
        until: Option<Duration>,
    },
    /// More arrives than leaves.
    Growing,
}

/// A forecast as APIs and commands show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForecastView {
    /// `done`, `clears`, `stalled` or `growing`.
    pub state: &'static str,
    /// What decides the rate.
    pub cause: &'static str,
    /// The expected seconds until the queue is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The ends of the interval of about 90 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<[f64; 2]>,
    /// The forecast in one sentence.
    pub summary: String,
}

/// What a forecast is made from.
#[derive(Clone, Copy, Debug)]
pub struct ForecastInput<'a> {
    /// What is left to send.
    pub left: Cost,
    /// What the leases allow within [`GRANT_SPAN`], in each dimension.
    pub granted: Cost,
    /// The seconds so far.
    pub history: &'a RateHistory,
    /// The part of the share that the brake leaves now, in parts per million; `granted` has it already.
    pub brake_ppm: u32,
    /// How many of them are in flight.
    pub in_flight: u32,
    /// The mean time of an attempt.
    pub latency: Duration,
    /// What decides the rate.
    pub cause: BindingCause,
    /// How long the cause lasts, if it stops everything and that is known.
    pub stalled_for: Option<Duration>,
}

/// What one second did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SecondCounts {
    /// Attempts that began.
    pub attempts: u64,
    /// Attempts that ended.
    pub finished: u64,
    /// Records that left the queue: delivered or dead.
    pub done: u64,
    /// Records that arrived.
    pub arrived: u64,
    /// The records that the leases of this process allowed, if they were the same all the time and there was work all the
    /// time; zero otherwise.
    pub granted: f64,
}

/// The counts of the last sixty seconds.
#[derive(Clone, Debug, Default)]
pub struct RateHistory {
    seconds: VecDeque<SecondCounts>,
}

impl RateHistory {
    /// Adds a second.
    pub fn push(&mut self, counts: SecondCounts) {
        if self.seconds.len() >= HISTORY_MAX {
            self.seconds.pop_front();
        }
        self.seconds.push_back(counts);
    }

    fn sum(&self, of: impl Fn(&SecondCounts) -> u64) -> u64 {
        self.seconds.iter().map(of).fold(0, u64::saturating_add)
    }

    /// The seconds in which records left, since the last one that was idle.
    fn busy(&self) -> Vec<f64> {
        let busy = self.seconds.iter().rev().take_while(|second| second.done > 0);
        busy.map(|second| second.done as f64).collect()
    }

    /// Records per second while there was work.
    pub fn rate(&self) -> f64 {
        let busy = self.busy();
        // The sum of nothing is -0.0.
        (busy.iter().sum::<f64>() + 0.0) / busy.len().max(1) as f64
    }

    /// The seconds whose use of the granted rate is known, the newest first.
    fn measured(&self) -> impl Iterator<Item = &SecondCounts> {
        self.seconds.iter().rev().filter(|second| second.granted > 0.0)
    }

    /// The part of the granted rate that attempts used, at most one.
    pub fn used_part(&self) -> f64 {
        let (mut attempts, mut granted) = (USE_PRIOR, USE_PRIOR);
        for second in self.measured().take(USE_SECONDS) {
            attempts += second.attempts as f64;
            granted += second.granted;
        }
        (attempts / granted).clamp(USE_MIN, 1.0)
    }

    /// Ended attempts for each record that left, at least one.
    pub fn inflation(&self) -> f64 {
        let done = self.sum(|second| second.done);
        if done == 0 {
            return 1.0;
        }
        (self.sum(|second| second.finished) as f64 / done as f64).max(1.0)
    }

    /// The half width of the interval, as a part of the time. The mean of a second varies by itself, and so will the
    /// seconds that are left.
    fn spread(&self, left: f64) -> f64 {
        let mut parts: Vec<f64> =
            self.measured().map(|second| second.attempts as f64 / second.granted).collect();
        if parts.is_empty() {
            parts = self.busy();
        }
        let count = parts.len() as f64;
        let mean = parts.iter().sum::<f64>() / count;
        if parts.len() < HISTORY_MIN || mean <= 0.0 {
            return 0.1;
        }
        let variance = parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let variation = variance.sqrt() / mean;
        (DEVIATIONS * variation * (1.0 / count + 1.0 / left.max(1.0)).sqrt()).clamp(SPREAD_MIN, 0.9)
    }

    /// Whether more arrived than left over the history, and still does.
    fn grows(&self) -> bool {
        let recent = self.seconds.iter().rev().take(5).any(|second| second.arrived > 0);
        let steady = self.seconds.iter().filter(|second| second.arrived > 0).count();
        recent
            && steady >= HISTORY_MIN.max(self.seconds.len() / 2)
            && self.sum(|second| second.arrived) > self.sum(|second| second.done)
    }
}

/// Makes a forecast.
pub fn forecast(input: &ForecastInput<'_>) -> Outlook {
    if input.left.operations == 0 {
        return Outlook::Done;
    }
    let stopped =
        matches!(input.cause, BindingCause::Hold | BindingCause::Down | BindingCause::Paused);
    let by_grant = seconds_at(input.left, input.granted) * input.history.inflation();
    if stopped || !by_grant.is_finite() {
        return Outlook::Stalled { until: input.stalled_for };
    }
    if input.history.grows() {
        return Outlook::Growing;
    }
    // Records in flight have left: only their answers are awaited.
    let unsent = 1.0 - f64::from(input.in_flight) / input.left.operations as f64;
    let sending = by_grant * unsent.max(0.0) / input.history.used_part();
    let expected = sending + input.latency.as_secs_f64();
    let spread = input.history.spread(expected);
    let brake = f64::from(input.brake_ppm) / 1e6;
    let span = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Outlook::Clears {
        expected: span(expected),
        // The brake may open at once, or stay where it is.
        low: span(expected * (1.0 - spread).min(brake).max(0.0)),
        high: span(expected * (1.0 + spread)),
    }
}

/// The seconds that a cost takes at a rate: the maximum over the dimensions.
pub(crate) fn seconds_at(left: Cost, granted: Cost) -> f64 {
    [Dimension::Operations, Dimension::Bytes, Dimension::Units]
        .into_iter()
        .filter(|dimension| left.of(*dimension) > 0 && granted.of(*dimension) < u64::MAX)
        .map(|dimension| left.of(dimension) as f64 / granted.of(dimension) as f64)
        .fold(0.0, f64::max)
        * GRANT_SPAN.as_secs_f64()
}

impl Outlook {
    /// The forecast as APIs and commands show it.
    pub fn view(&self, cause: BindingCause) -> ForecastView {
        let (state, seconds, between, summary) = match self {
            Outlook::Done => ("done", None, None, "nothing is left to send".to_owned()),
            Outlook::Clears { expected, low, high } => {
                let [expected, low, high] = [expected, low, high].map(Duration::as_secs_f64);
                let summary = format!(
                    "clears in {expected:.1} s (between {low:.1} and {high:.1} s), bound by: {}",
                    cause.as_str()
                );
                ("clears", Some(expected), Some([low, high]), summary)
            }
            Outlook::Stalled { until: Some(until) } => {
                let seconds = until.as_secs_f64();
                let summary = format!("stalled ({}) for another {seconds:.1} s", cause.as_str());
                ("stalled", None, None, summary)
            }
            Outlook::Stalled { until: None } => {
                ("stalled", None, None, format!("stalled ({})", cause.as_str()))
            }
            Outlook::Growing => {
                let summary = "growing: more arrives than leaves, so that it will not drain";
                ("growing", None, None, summary.to_owned())
            }
        };
        ForecastView { state, cause: cause.as_str(), seconds, between, summary }
    }

    /// The expected time, if there is one.
    pub const fn expected(&self) -> Option<Duration> {
        match self {
            Outlook::Clears { expected, .. } => Some(*expected),
            Outlook::Done => Some(Duration::ZERO),
            Outlook::Stalled { until } => *until,
            Outlook::Growing => None,
        }
    }
}

/// How long records take at a target that nothing else uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Sends, if none fails.
    pub sends: u64,
    /// The limit that decides; `None` if the maximum of requests in flight does.
    pub binding: Option<TargetLimit>,
    /// How long it takes.
    pub duration: Duration,
    /// Records per second.
    pub rate: f64,
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The limits of the target.
    pub limits: &'a TargetLimits,
    /// The part of them to use, in parts per million.
    pub utilisation_ppm: u32,
    /// How many records.
    pub records: u64,
    /// The cost of each.
    pub cost: Cost,
    /// The most requests in flight.
    pub in_flight_max: u32,
    /// How long a request takes.
    pub latency: Duration,
}

/// Plans the sending of equal records.
pub fn plan(input: &PlanInput<'_>) -> Plan {
    let level = f64::from(input.utilisation_ppm) / 1e6;
    let by_limit = input.limits.limits().iter().filter_map(|limit| {
        let cost = input.cost.of(limit.dimension);
        let per_second = limit.amount as f64 * 1_000.0 / limit.window_ms as f64 * level;
        (cost > 0).then(|| (per_second / cost as f64, Some(*limit)))
    });
    let latency = input.latency.as_secs_f64();
    let by_concurrency = (latency > 0.0).then(|| (f64::from(input.in_flight_max) / latency, None));
    let slowest = by_limit.chain(by_concurrency).min_by(|one, other| one.0.total_cmp(&other.0));
    let (rate, binding) = slowest.unwrap_or((f64::INFINITY, None));
    let seconds = input.records as f64 / rate + latency;
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Plan { sends: input.records, binding, duration, rate }
}

/// What decides the rate of a member, from its status and the state of its sender.
pub fn binding_cause(status: &MemberStatus, state: SenderState) -> BindingCause {
    match state {
        SenderState::Paused => BindingCause::Paused,
        SenderState::Idle => BindingCause::NoWork,
        SenderState::Down => BindingCause::Down,
        SenderState::AtConcurrency => BindingCause::Concurrency,
        SenderState::Sending if status.closed_for.is_some() => BindingCause::Hold,
        SenderState::Sending if status.brake_ppm < 1_000_000 => BindingCause::Brake,
        SenderState::Sending if status.slots < status.limits.slots() => BindingCause::Share,
        SenderState::Sending => BindingCause::Limit,
    }
}

/// The state of a sender, as far as a forecast is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderState {
    /// It waits for its turn or sends.
    Sending,
    /// All requests that may be in flight are.
    AtConcurrency,
    /// It has nothing to send.
    Idle,
    /// The target does not answer.
    Down,
    /// An operator paused it.
    Paused,
}

#[cfg(test)]
mod tests;
