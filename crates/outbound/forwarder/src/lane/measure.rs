//! Measurements of a lane: its rate each second, the time of attempts, the adaptive limit on requests in flight.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::{Cost, MemberStatus};
use tidegate_overload::{AdaptiveLimit, AdaptiveSettings, WindowSample};

use super::Lane;
use crate::forecast::{
    BindingCause, ForecastInput, GRANT_SPAN, Outlook, RateHistory, SecondCounts, SenderState,
    binding_cause, forecast, seconds_at,
};

/// The length of a window.
const WINDOW: Nanos = Nanos::from_secs(1);
/// How long after a claim with a fresh record others are expected.
const FRESH_FOR: Nanos = Nanos::from_secs(1);
/// The most times of attempts kept in a window.
const TIMES_MAX: usize = 1_000;

/// The measurements of one lane.
#[derive(Debug)]
pub(super) struct Measurements {
    history: RateHistory,
    adaptive: AdaptiveLimit,
    window: WindowCounts,
    left: Cost,
    latency: Duration,
    idle: Option<IdleState>,
    /// When a claim had a fresh record last.
    fresh_seen: Option<Timestamp>,
    full: bool,
    state: SenderState,
    /// A shared queue is drained by all members of the pool.
    shared_queue: bool,
    /// How long the target stays down.
    down_for: Option<Duration>,
}

/// A queue in which nothing could be claimed.
#[derive(Clone, Copy, Debug)]
struct IdleState {
    until: Timestamp,
    /// The records that it had then; more of them end this state.
    live: u64,
}

/// What the present window counted.
#[derive(Debug, Default)]
struct WindowCounts {
    began: Option<Timestamp>,
    times: Vec<Nanos>,
    successes: u64,
    in_flight_sum: f64,
    in_flight_max: u64,
    looks: u32,
    full_looks: u32,
    granted: GrantedRate,
    /// Totals at its beginning, and the records live.
    totals: LaneTotals,
    live: u64,
}

/// The rate that the leases of this process allowed, as long as nothing interrupted it.
#[derive(Debug, Default)]
struct GrantedRate {
    slots: Option<u16>,
    records_per_second: f64,
    interrupted: bool,
}

impl GrantedRate {
    /// Looks at the share. `sending` says that there is work and that nothing stops it.
    fn look(&mut self, status: &MemberStatus, left: Cost, sending: bool) {
        let granted = status.allowance_of(status.slots, status.brake_ppm, GRANT_SPAN);
        let rate = left.operations as f64 / seconds_at(left, granted);
        let same_share = self.slots.is_none_or(|slots| slots == status.slots);
        let counts = sending && same_share && rate.is_finite() && rate > 0.0;
        self.interrupted |= !counts;
        self.slots = Some(status.slots);
        self.records_per_second += rate;
    }

    /// The mean of so many looks; zero if the share changed or there was nothing to send.
    fn mean(&self, looks: u32) -> f64 {
        if self.interrupted || looks == 0 {
            0.0
        } else {
            self.records_per_second / f64::from(looks)
        }
    }
}

/// The measurements as others see them.
#[derive(Clone, Debug)]
pub(crate) struct LaneReading {
    pub(crate) status: MemberStatus,
    pub(crate) cause: BindingCause,
    pub(crate) outlook: Outlook,
    pub(crate) left: Cost,
    pub(crate) rate: f64,
    pub(crate) concurrency: u32,
    pub(crate) latency: Duration,
    history: RateHistory,
    granted: Cost,
    brake_ppm: u32,
    in_flight: u32,
    stalled_for: Option<Duration>,
}

impl LaneReading {
    /// The forecast for another amount of work at the same rates.
    pub(crate) fn outlook_for(&self, left: Cost) -> Outlook {
        let cause = match self.cause {
            BindingCause::NoWork => BindingCause::Limit,
            cause => cause,
        };
        forecast(&ForecastInput {
            left,
            granted: self.granted,
            history: &self.history,
            brake_ppm: self.brake_ppm,
            in_flight: self.in_flight,
            latency: self.latency,
            cause,
            stalled_for: self.stalled_for,
        })
    }
}

impl Measurements {
    pub(super) fn new(in_flight_max: u32) -> Self {
        let settings = AdaptiveSettings::new(u64::from(in_flight_max));
        Measurements {
            history: RateHistory::default(),
            adaptive: AdaptiveLimit::new(settings, u64::from(in_flight_max)),
            window: WindowCounts::default(),
            left: Cost { operations: 0, bytes: 0, units: 0 },
            latency: Duration::ZERO,
            idle: None,
            fresh_seen: None,
            full: false,
            state: SenderState::Idle,
            shared_queue: false,
            down_for: None,
        }
    }

    /// Whether the last claim found nothing, and nothing can have become claimable since.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.idle.is_some_and(|idle| now < idle.until && self.left.operations <= idle.live)
    }

    /// A claim found records, or none until an instant.
    pub(super) fn set_idle(&mut self, until: Option<Timestamp>) {
        self.idle = until.map(|until| IdleState { until, live: self.left.operations });
    }

    pub(super) const fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// The most requests in flight now.
    pub(super) fn concurrency(&self) -> u32 {
        u32::try_from(self.adaptive.limit()).unwrap_or(u32::MAX).max(1)
    }

    /// Whether fresh records wait, as far as the claims of the last second show.
    pub(super) fn see_fresh(&mut self, fresh: bool, now: Timestamp) -> bool {
        if fresh {
            self.fresh_seen = Some(now);
        }
        self.fresh_seen.is_some_and(|seen| now.since(seen) <= FRESH_FOR)
    }

    /// Counts an attempt that ended.
    pub(super) fn finish(&mut self, took: Nanos, succeeded: bool) {
        self.window.successes += u64::from(succeeded);
        if self.window.times.len() < TIMES_MAX {
            self.window.times.push(took);
        }
    }

    /// Looks at the lane, several times a second.
    pub(super) fn look(&mut self, lane: &Lane, left: Cost, now: Timestamp) {
        use tidegate_queue::Capability;
        self.shared_queue = lane.queue.capabilities().contains(&Capability::Shared);
        self.left = left;
        if let Some(idle) = &mut self.idle {
            idle.live = idle.live.min(left.operations);
        }
        let in_flight = u64::from(lane.in_flight());
        let window = &mut self.window;
        window.looks += 1;
        window.full_looks += u32::from(self.full);
        window.in_flight_sum += in_flight as f64;
        window.in_flight_max = window.in_flight_max.max(in_flight);
        let health = *lane.health.lock();
        self.down_for = health.is_down().then(|| health.wait(now).into());
        self.state = match () {
            () if !lane.sends() => SenderState::Paused,
            () if left.operations == 0 => SenderState::Idle,
            () if health.is_down() => SenderState::Down,
            () if window.full_looks * 2 > window.looks => SenderState::AtConcurrency,
            () => SenderState::Sending,
        };
        let sending = matches!(self.state, SenderState::Sending | SenderState::AtConcurrency);
        let sending = sending && !self.is_idle(now);
        let window = &mut self.window;
        window.granted.look(&lane.status(), left, sending);
        let Some(began) = window.began else {
            self.begin_window(lane, left, now);
            return;
        };
        let length = now.since(began);
        if length >= WINDOW {
            self.end_window(lane, left, length, now);
            self.begin_window(lane, left, now);
        }
    }

    fn begin_window(&mut self, lane: &Lane, left: Cost, now: Timestamp) {
        self.window = WindowCounts {
            began: Some(now),
            totals: LaneTotals::of(lane),
            live: left.operations,
            ..WindowCounts::default()
        };
    }

    fn end_window(&mut self, lane: &Lane, left: Cost, length: Nanos, now: Timestamp) {
        let totals = LaneTotals::of(lane);
        let window = &mut self.window;
        let done = totals.done.saturating_sub(window.totals.done);
        // Of a shared queue others send too; then this counts what the queue lost beyond its arrivals here.
        let arrived = left.operations.saturating_add(done).saturating_sub(window.live);
        let per_second = |count: u64| {
            let scaled = u128::from(count) * 1_000_000_000 / u128::from(length.get().max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        self.history.push(SecondCounts {
            attempts: per_second(totals.attempts.saturating_sub(window.totals.attempts)),
            finished: per_second(totals.finished.saturating_sub(window.totals.finished)),
            done: per_second(done),
            arrived: per_second(arrived),
            granted: window.granted.mean(window.looks),
        });
        window.times.sort_unstable();
        let times = &window.times;
        let p90 = times.get(times.len() * 9 / 10).copied().unwrap_or_default();
        if !times.is_empty() {
            let sum: u128 = times.iter().map(|time| u128::from(time.get())).sum();
            let mean = sum / times.len() as u128;
            self.latency = Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX));
        }
        let sample = WindowSample {
            p90,
            successes: window.successes,
            length,
            in_flight: window.in_flight_sum / f64::from(window.looks.max(1)),
            in_flight_max: window.in_flight_max,
            queue_wait: Nanos::ZERO,
        };
        self.adaptive.step(now, &sample);
    }

    pub(super) fn reading(&self, status: MemberStatus, in_flight: u32) -> LaneReading {
        let cause = binding_cause(&status, self.state);
        let slots = match () {
            () if self.shared_queue || status.members <= 1 => status.limits.slots(),
            () => status.slots.max(status.fair_share),
        };
        let brake = if status.closed_for.is_some() { 1_000_000 } else { status.brake_ppm };
        let granted = status.allowance_of(slots, brake, GRANT_SPAN);
        let stalled_for = status.closed_for.or(self.down_for);
        let (history, latency) = (self.history.clone(), self.latency);
        let outlook = forecast(&ForecastInput {
            left: self.left,
            granted,
            history: &history,
            brake_ppm: brake,
            in_flight,
            latency,
            cause,
            stalled_for,
        });
        LaneReading {
            cause,
            outlook,
            left: self.left,
            rate: self.history.rate(),
            concurrency: self.concurrency(),
            latency,
            history,
            granted,
            brake_ppm: brake,
            in_flight,
            stalled_for,
            status,
        }
    }
}

/// Counts since the start of the lane.
#[derive(Clone, Copy, Debug, Default)]
struct LaneTotals {
    /// Attempts that began.
    attempts: u64,
    /// Attempts that ended.
    finished: u64,
    /// Records that left the queue.
    done: u64,
}

impl LaneTotals {
    fn of(lane: &Lane) -> Self {
        let counts = &lane.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let ended = [
            &counts.delivered,
            &counts.throttled,
            &counts.failed,
            &counts.ambiguous,
            &counts.rejected,
        ];
        LaneTotals {
            attempts: read(&counts.attempts),
            finished: ended.into_iter().map(read).fold(0, u64::saturating_add),
            done: read(&counts.delivered).saturating_add(read(&counts.dead)),
        }
    }
}
