//! When the next record may leave: virtual scheduling with an exact bound.
//!
//! Each limit has a *next free time*. A record leaves at that time or later, and moves it by the interval that its cost
//! takes at the rate of the share. Intervals are rounded up in units of 2⁻¹⁶ ns, so the pace is never too fast, and
//! slower by less than one part in a million.
//!
//! Bound: a member that holds the same slots throughout sends at most its share of the limit within any half-open window
//! of the limit's length, provided that its share of the window holds the costliest record. The members' shares add up
//! to the limit, so the fleet keeps it too. Three margins make this hold:
//!
//! - the base rate is [`Pace::level_ppm`] of the limit (98 % by default);
//! - records of one cost are spaced so that a whole number of them fits the share; with mixed costs, one record of the
//!   highest cost is left free;
//! - a new share starts without credit: its first record waits for its own interval. A record is sent only if its
//!   interval ends before the lease does. No use of a slot therefore reaches into the time of its next owner.
//!
//! A record that leaves late takes its interval from its time, up to [`TargetLimit::slack`] before the present instant, so
//! that late timers and busy processors cost no pace. The intervals are padded by the slack, so that the bound holds
//! however late records leave.
//!
//! A record above the share of a window still leaves at the right average pace; then members × cost may exceed the limit.

use tidegate_algorithms::{Nanos, Timestamp};

use crate::limits::{Cost, TargetLimit, TargetLimits};

/// The rate at which a share may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The slots that the member holds.
    pub slots: u16,
    /// The part of the share to use, in parts per million: utilisation times brake.
    pub level_ppm: u32,
}

impl Pace {
    /// A whole, in parts per million.
    pub const WHOLE: u32 = 1_000_000;
    /// The utilisation unless the operator chooses another: 98 %.
    pub const UTILISATION_DEFAULT: u32 = 980_000;
}

/// The pacers of all limits of a target. A record leaves when all of them allow it.
#[derive(Clone, Debug)]
pub struct TargetPacer {
    pacers: Vec<LimitPacer>,
}

impl TargetPacer {
    /// A pacer without a share: nothing leaves until [`TargetPacer::set_pace`].
    pub fn new(limits: &TargetLimits) -> Self {
        let pacer = |(index, limit): (usize, &TargetLimit)| {
            (!limit.is_quota()).then(|| LimitPacer::new(*limit, limits.slots(), index))
        };
        TargetPacer { pacers: limits.limits().iter().enumerate().filter_map(pacer).collect() }
    }

    /// Changes the share or its level; what was sent before stays counted.
    pub fn set_pace(&mut self, pace: Pace, now: Timestamp) {
        for pacer in &mut self.pacers {
            pacer.set_pace(pace, now);
        }
    }

    /// Replaces the limits; what was sent before stays counted for limits of the same dimension and window.
    pub fn set_limits(&mut self, limits: &TargetLimits, pace: Pace, now: Timestamp) {
        let mut fresh = TargetPacer::new(limits);
        fresh.set_pace(pace, now);
        for pacer in &mut fresh.pacers {
            let same = |old: &&mut LimitPacer| {
                old.limit.dimension == pacer.limit.dimension
                    && old.limit.window_ms == pacer.limit.window_ms
            };
            if let Some(old) = self.pacers.iter_mut().find(same) {
                old.set_limit(pacer.limit, limits.slots(), now);
                *pacer = LimitPacer { index: pacer.index, ..old.clone() };
            }
        }
        *self = fresh;
        self.set_pace(pace, now);
    }

    /// When a record of this cost may leave, if its interval then ends before `deadline`.
    pub fn earliest(&self, cost: Cost, now: Timestamp, deadline: Timestamp) -> Departure {
        let mut at = now;
        for pacer in &self.pacers {
            match pacer.earliest(cost.of(pacer.limit.dimension), now) {
                Some(free) => at = at.max(free),
                None => return Departure::NoShare,
            }
        }
        let free_again = |pacer: &LimitPacer| pacer.free_after(cost.of(pacer.limit.dimension), at);
        if self.pacers.iter().any(|pacer| free_again(pacer).is_none_or(|free| free > deadline)) {
            return Departure::AfterLease;
        }
        Departure::At(at)
    }

    /// Counts a record that leaves now.
    pub fn depart(&mut self, cost: Cost, now: Timestamp) {
        for pacer in &mut self.pacers {
            pacer.depart(cost.of(pacer.limit.dimension), now);
        }
    }

    /// Corrects the count of a record when its real cost is known: more delays the next records, less brings them
    /// forward, but never before `now`.
    pub fn correct(&mut self, counted: Cost, real: Cost, now: Timestamp) {
        for pacer in &mut self.pacers {
            let dimension = pacer.limit.dimension;
            pacer.correct(counted.of(dimension), real.of(dimension), now);
        }
    }

    /// Whether every interval of the records so far has passed: slots can be given back without a trace of their use.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.pacers.iter().all(|pacer| pacer.next <= fine(now))
    }

    /// The index of the limit that allows the record last: the binding one.
    pub fn binding_limit(&self, cost: Cost, now: Timestamp) -> Option<usize> {
        let free = |pacer: &LimitPacer| pacer.earliest(cost.of(pacer.limit.dimension), now);
        let times = self.pacers.iter().map(|pacer| (pacer.index, free(pacer)));
        times
            .filter_map(|(index, free)| free.map(|free| (index, free)))
            .max_by_key(|(_, free)| *free)
            .map(|(index, _)| index)
    }
}

/// When a record may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "only `At` permits the departure"]
pub enum Departure {
    /// At this time, which is not before `now`.
    At(Timestamp),
    /// Not within this lease: its interval would outlast it. More slots or a longer lease may help.
    AfterLease,
    /// Not without a slot.
    NoShare,
}

/// Fraction bits of [`Instant16`].
const FRACTION: u32 = 16;

/// An instant or a span in units of 2⁻¹⁶ ns.
type Instant16 = u128;

fn fine(instant: Timestamp) -> Instant16 {
    u128::from(instant.as_nanos()) << FRACTION
}

/// Rounded up to a whole nanosecond.
fn coarse(instant: Instant16) -> Timestamp {
    let nanos = instant.div_ceil(1 << FRACTION);
    Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The pacer of one limit.
#[derive(Clone, Debug)]
struct LimitPacer {
    limit: TargetLimit,
    /// The index of the limit among those of the target.
    index: usize,
    slots_total: u16,
    pace: Pace,
    next: Instant16,
    /// Whether nothing has left since the share began.
    fresh: bool,
    costs: RecentCosts,
}

impl LimitPacer {
    fn new(limit: TargetLimit, slots_total: u16, index: usize) -> Self {
        let pace = Pace { slots: 0, level_ppm: 0 };
        LimitPacer {
            limit,
            index,
            slots_total,
            pace,
            next: 0,
            fresh: true,
            costs: RecentCosts::default(),
        }
    }

    fn earliest(&self, cost: u64, now: Timestamp) -> Option<Timestamp> {
        if cost == 0 {
            return Some(now);
        }
        Some(coarse(self.start(cost, now)?).max(now))
    }

    /// The next free time, with the margins that a record of this cost needs.
    fn start(&self, cost: u64, now: Timestamp) -> Option<Instant16> {
        let recent = self.costs.at(now, self.limit);
        let margin = match recent {
            _ if self.fresh => self.interval(cost, cost, true)?,
            None => 0,
            Some(range) if range.holds_only(cost) => 0,
            // The first record of another cost: records before it left no margin for it.
            Some(range) if range.low == range.high => {
                self.interval(range.high.max(cost), range.high.max(cost), false)?
            }
            Some(range) => {
                self.interval(cost.saturating_sub(range.high), cost.max(range.high), false)?
            }
        };
        self.next.checked_add(margin)
    }

    fn free_after(&self, cost: u64, at: Timestamp) -> Option<Timestamp> {
        if cost == 0 {
            return Some(at);
        }
        let start = self.start(cost, at)?;
        // Nothing leaves while the target is closed.
        self.next_interval(cost, at)?;
        // The limit counts, not the brake: a braked interval may be longer than any lease.
        let whole =
            LimitPacer { pace: Pace { level_ppm: Pace::WHOLE, ..self.pace }, ..self.clone() };
        Some(coarse(start.max(fine(at)).checked_add(whole.next_interval(cost, at)?)?))
    }

    fn depart(&mut self, cost: u64, now: Timestamp) {
        if cost == 0 {
            return;
        }
        let (Some(start), Some(interval)) = (self.start(cost, now), self.next_interval(cost, now))
        else {
            self.next = Instant16::MAX;
            return;
        };
        let late_at_most =
            fine(now).saturating_sub(u128::from(self.limit.slack().get()) << FRACTION);
        self.next = start.max(late_at_most).saturating_add(interval);
        self.fresh = false;
        self.costs.add(cost, now, self.limit);
    }

    fn correct(&mut self, counted: u64, real: u64, now: Timestamp) {
        let difference = self.interval(counted.abs_diff(real), counted.abs_diff(real), false);
        if real > counted {
            self.next = self.next.saturating_add(difference.unwrap_or(0));
            self.costs.add(real, now, self.limit);
        } else if let Some(difference) = difference {
            self.next = self.next.saturating_sub(difference).max(fine(now).min(self.next));
        }
    }

    /// The interval that a record takes, with the records of the last window in mind.
    fn next_interval(&self, cost: u64, now: Timestamp) -> Option<Instant16> {
        let recent = self.costs.at(now, self.limit);
        match recent {
            Some(range) if !range.holds_only(cost) => {
                self.interval(cost, range.high.max(cost), false)
            }
            _ => self.interval(cost, cost, true),
        }
    }

    /// The interval for `cost` at the present pace. `high` is the highest cost of the last window; `uniform` says that
    /// all costs are the same.
    fn interval(&self, cost: u64, high: u64, uniform: bool) -> Option<Instant16> {
        let rate = u128::from(self.limit.amount)
            * u128::from(self.pace.slots)
            * u128::from(self.pace.level_ppm);
        if rate == 0 {
            return None;
        }
        let window = u128::from(self.limit.window().get());
        let whole = window.checked_mul(u128::from(self.slots_total) * u128::from(Pace::WHOLE))?;
        let base = scale(u128::from(cost), whole, rate)?;

        // Timers may be late by the slack, so this many nanoseconds hold what the window may.
        let padded = window + u128::from(self.limit.slack().get());
        let share = u128::from(self.limit.amount) * u128::from(self.pace.slots)
            / u128::from(self.slots_total);
        let guard = if uniform {
            match share / u128::from(cost.max(1)) {
                0 => 0,
                records => scale(1, padded, records)?,
            }
        } else {
            match share.checked_sub(u128::from(high)) {
                None | Some(0) => 0,
                Some(room) => scale(u128::from(cost), padded, room)?,
            }
        };
        Some(base.max(guard))
    }

    fn set_pace(&mut self, pace: Pace, now: Timestamp) {
        let (old, new) = (speed(self.pace), speed(pace));
        if old == 0 && new > 0 {
            self.next = self.next.max(fine(now));
            self.fresh = true;
        } else if new > 0 {
            self.stretch(old, new, now);
        }
        self.pace = pace;
    }

    fn set_limit(&mut self, limit: TargetLimit, slots_total: u16, now: Timestamp) {
        let old = u128::from(self.limit.amount) * u128::from(slots_total);
        let new = u128::from(limit.amount) * u128::from(self.slots_total);
        self.stretch(old, new, now);
        self.limit = limit;
        self.slots_total = slots_total;
    }

    /// Keeps the cost that is still to be waited for, at a new speed.
    fn stretch(&mut self, old: u128, new: u128, now: Timestamp) {
        let now = fine(now);
        if self.next > now {
            let wait = (self.next - now) >> FRACTION;
            let stretched = scale(wait + 1, old, new).unwrap_or(Instant16::MAX - now);
            self.next = now.saturating_add(stretched);
        }
    }
}

fn speed(pace: Pace) -> u128 {
    u128::from(pace.slots) * u128::from(pace.level_ppm)
}

/// `value × numerator ÷ denominator` in units of 2⁻¹⁶, rounded up; `None` when it does not fit.
fn scale(value: u128, numerator: u128, denominator: u128) -> Option<u128> {
    let product = value.checked_mul(numerator)?;
    let whole = (product / denominator).checked_mul(1 << FRACTION)?;
    let rest = (product % denominator).checked_mul(1 << FRACTION)?.div_ceil(denominator);
    whole.checked_add(rest)
}

/// The lowest and highest cost of one or two windows.
#[derive(Clone, Copy, Debug)]
struct CostRange {
    low: u64,
    high: u64,
}

impl CostRange {
    fn holds_only(self, cost: u64) -> bool {
        self.low == cost && self.high == cost
    }

    fn with(self, other: CostRange) -> Self {
        CostRange { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// The costs of the present window and of the one before, so that at least one whole window is remembered.
#[derive(Clone, Debug, Default)]
struct RecentCosts {
    since: Timestamp,
    present: Option<CostRange>,
    before: Option<CostRange>,
}

impl RecentCosts {
    /// The range of costs of at least the last window, and at most the last two.
    fn at(&self, now: Timestamp, limit: TargetLimit) -> Option<CostRange> {
        let age = now.since(self.since).get();
        let length = limit.window().get() + limit.slack().get();
        let (present, before) = match age / length {
            0 => (self.present, self.before),
            1 => (None, self.present),
            _ => (None, None),
        };
        match (present, before) {
            (Some(present), Some(before)) => Some(present.with(before)),
            (range, None) | (None, range) => range,
        }
    }

    fn add(&mut self, cost: u64, now: Timestamp, limit: TargetLimit) {
        let length = limit.window().get() + limit.slack().get();
        match now.since(self.since).get() / length {
            0 => {}
            1 => {
                self.before = self.present.take();
                self.since = self.since.after(Nanos::new(length));
            }
            _ => {
                self.before = None;
                self.present = None;
                self.since = now;
            }
        }
        let range = CostRange { low: cost, high: cost };
        self.present = Some(self.present.map_or(range, |present| present.with(range)));
    }
}

#[cfg(test)]
mod tests;
