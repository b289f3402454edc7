//! The history of each limit: days, hours, and ten-second steps of the busiest.

use std::collections::HashMap;

use crate::counts::{Counts, SpanCounts};
use crate::ring::Ring;
use crate::{DAY, HOUR};

/// How many days are kept.
pub const DAYS: usize = 14;
/// The most limits with steps of ten seconds.
const FINE_LIMITS_MAX: usize = 256;
const FINE_STEP: u64 = 10;
const FINE_LENGTH: u64 = 360;
/// The bytes of one ring of ten-second steps.
const FINE_BYTES: usize = 360 * SpanCounts::BYTES;
/// An entry of the index: identity, position, and room for the table to grow.
const INDEX_BYTES: usize = 24;
/// Limits that change their ring in one minute, so that a reading stays short.
const RING_CHANGES_MAX: usize = 16;
/// A limit that was in no reading for this many seconds makes room for others.
const GONE_AFTER: u64 = 60;

/// The totals of one limit now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitReading {
    /// The identity of the limit.
    pub identity: u64,
    /// Its counts since the process started.
    pub total: Counts,
    /// Whether it is in shadow mode.
    pub in_shadow: bool,
}

/// A limit's history.
#[derive(Clone, Debug)]
pub(crate) struct LimitHistory {
    pub(crate) identity: u64,
    /// The totals of the last reading; zero after a restart, as the counters are.
    before: Counts,
    /// When it was first read, in seconds since 1970.
    pub(crate) first_seen: u64,
    /// When it was last in a reading.
    pub(crate) last_seen: u64,
    /// Since when it is in shadow mode; zero if it is not.
    pub(crate) shadow_since: u64,
    /// The number of the hour that `hours[0]` counts.
    pub(crate) hour: u64,
    /// This hour and the one before.
    pub(crate) hours: [SpanCounts; 2],
    /// The number of the day that `days[0]` counts.
    pub(crate) day: u64,
    /// Today and the days before.
    pub(crate) days: [SpanCounts; DAYS],
    /// The position of its ring of ten-second steps.
    ring: Option<u16>,
}

/// The history of a limit, to read.
#[derive(Clone, Debug)]
pub struct LimitView<'h> {
    /// The counts of this hour (UTC) and of the one before.
    pub hours: [SpanCounts; 2],
    /// The counts of today (UTC) and of the days before.
    pub days: [SpanCounts; DAYS],
    /// Counts of about the last hour: exact for the busiest limits, otherwise those of `hours` together.
    pub last_hour: SpanCounts,
    /// When it was first read, in seconds since 1970.
    pub first_seen: u64,
    /// Since when it is in shadow mode, in seconds since 1970.
    pub shadow_since: Option<u64>,
    fine: Option<&'h Ring<SpanCounts>>,
    now: u64,
}

/// One step of ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FineStep {
    /// Its beginning, in seconds since 1970.
    pub at: u64,
    /// Its counts.
    pub counts: SpanCounts,
}

impl LimitView<'_> {
    /// The steps of the last hour; none if other limits are busier.
    pub fn fine(&self) -> Vec<FineStep> {
        let Some(ring) = self.fine else { return Vec::new() };
        let since = self.now.saturating_sub(HOUR);
        let step = |(at, row): (u64, &[SpanCounts])| FineStep {
            at,
            counts: row.first().copied().unwrap_or_default(),
        };
        ring.rows_since(since).map(step).collect()
    }
}

impl LimitHistory {
    pub(crate) fn new(identity: u64, now: u64) -> Self {
        LimitHistory {
            identity,
            before: Counts::default(),
            first_seen: now,
            last_seen: now,
            shadow_since: 0,
            hour: now / HOUR,
            hours: Default::default(),
            day: now / DAY,
            days: Default::default(),
            ring: None,
        }
    }

    /// Makes today and this hour the first of their lists. A clock that was set back goes on counting where it was.
    pub(crate) fn advance(&mut self, now: u64) {
        shift(&mut self.hours, &mut self.hour, now / HOUR);
        shift(&mut self.days, &mut self.day, now / DAY);
    }

    fn view<'h>(&self, rings: &'h [Ring<SpanCounts>], now: u64) -> LimitView<'h> {
        let mut limit = self.clone();
        limit.advance(now);
        let fine = self.ring.and_then(|ring| rings.get(usize::from(ring)));
        let mut view = LimitView {
            hours: limit.hours,
            days: limit.days,
            last_hour: SpanCounts::default(),
            first_seen: limit.first_seen,
            shadow_since: Some(limit.shadow_since).filter(|since| *since > 0),
            fine,
            now,
        };
        match fine {
            Some(_) => view.fine().iter().for_each(|step| view.last_hour.add(step.counts)),
            None => view.hours.iter().for_each(|hour| view.last_hour.add(*hour)),
        }
        view
    }
}

/// Shifts spans until the first of them is the one with this number.
fn shift(spans: &mut [SpanCounts], first: &mut u64, number: u64) {
    let Some(passed) = number.checked_sub(*first) else { return };
    let passed = usize::try_from(passed).unwrap_or(usize::MAX).min(spans.len());
    spans.rotate_right(passed);
    spans.iter_mut().take(passed).for_each(|span| *span = SpanCounts::default());
    *first = number;
}

#[derive(Debug)]
pub(crate) struct LimitHistories {
    pub(crate) limits: Vec<LimitHistory>,
    index: HashMap<u64, usize>,
    limits_max: usize,
    rings: Vec<Ring<SpanCounts>>,
    rings_max: usize,
    others: LimitHistory,
    others_before: Counts,
    summed: u64,
    minute: u64,
}

impl LimitHistories {
    /// A quarter of the budget, at most, is for ten-second steps.
    pub(crate) fn new(budget_bytes: usize) -> Self {
        let rings_max = (budget_bytes / 4 / FINE_BYTES).min(FINE_LIMITS_MAX);
        let left = budget_bytes.saturating_sub(rings_max * FINE_BYTES);
        LimitHistories {
            limits: Vec::new(),
            index: HashMap::new(),
            limits_max: left / (size_of::<LimitHistory>() + INDEX_BYTES),
            rings: Vec::new(),
            rings_max,
            others: LimitHistory::new(0, 0),
            others_before: Counts::default(),
            summed: 0,
            minute: 0,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let rings: usize = self.rings.iter().map(Ring::bytes).sum();
        rings + self.limits.capacity() * size_of::<LimitHistory>() + self.index.len() * INDEX_BYTES
    }

    pub(crate) const fn summed(&self) -> u64 {
        self.summed
    }

    /// Forgets the ten-second steps, because the clock was set back.
    pub(crate) fn restart_fine(&mut self) {
        self.rings.iter_mut().for_each(Ring::clear);
    }

    pub(crate) fn record(&mut self, now: u64, limits: impl IntoIterator<Item = LimitReading>) {
        let minute = now / 60;
        let is_new_minute = minute != self.minute;
        if is_new_minute {
            self.minute = minute;
            self.remove_old(now);
        }
        let (mut summed, mut others) = (0_u64, Counts::default());
        for reading in limits {
            let Some(position) = self.position(reading.identity, now) else {
                summed += 1;
                others = plus(others, reading.total);
                continue;
            };
            self.record_one(position, now, &reading);
        }
        self.others.advance(now);
        let grown = others.since(self.others_before);
        // With other limits in the sum its growth says nothing.
        if summed == self.summed {
            add_first(&mut self.others.hours, grown);
            add_first(&mut self.others.days, grown);
        }
        (self.summed, self.others_before) = (summed, others);
        if is_new_minute {
            self.reassign_rings();
        }
    }

    fn record_one(&mut self, position: usize, now: u64, reading: &LimitReading) {
        let Some(limit) = self.limits.get_mut(position) else { return };
        limit.last_seen = now;
        limit.shadow_since = match (reading.in_shadow, limit.shadow_since) {
            (true, 0) => now,
            (true, since) => since,
            (false, _) => 0,
        };
        if reading.total == limit.before {
            return;
        }
        let grown = reading.total.since(limit.before);
        limit.before = reading.total;
        limit.advance(now);
        add_first(&mut limit.hours, grown);
        add_first(&mut limit.days, grown);
        if limit.ring.is_none() && self.rings.len() < self.rings_max {
            limit.ring = u16::try_from(self.rings.len()).ok();
            self.rings.push(Ring::new(FINE_STEP, FINE_LENGTH, 1, SpanCounts::default()));
        }
        let ring = limit.ring.and_then(|ring| self.rings.get_mut(usize::from(ring)));
        if let Some([step]) = ring.and_then(|ring| ring.row_mut(now)) {
            step.add(grown);
        }
    }

    /// Where a limit is; [`None`] if there is no room for it.
    fn position(&mut self, identity: u64, now: u64) -> Option<usize> {
        if let Some(position) = self.index.get(&identity) {
            return Some(*position);
        }
        self.push(LimitHistory::new(identity, now))
    }

    /// Adds a limit; [`None`] if there is no room for it.
    pub(crate) fn push(&mut self, limit: LimitHistory) -> Option<usize> {
        let position = self.limits.len();
        if position >= self.limits_max {
            return None;
        }
        if self.limits.capacity() == position {
            // Not doubled: the budget counts capacity.
            self.limits.reserve_exact((self.limits_max - position).min(1_024));
        }
        self.index.insert(limit.identity, position);
        self.limits.push(limit);
        Some(position)
    }

    /// Forgets limits whose days are over, and removed limits if there is no room left.
    fn remove_old(&mut self, now: u64) {
        let is_full = self.limits.len() >= self.limits_max;
        let kept_for = if is_full { GONE_AFTER } else { u64::try_from(DAYS).unwrap_or(0) * DAY };
        let is_old = |limit: &LimitHistory| limit.last_seen.saturating_add(kept_for) < now;
        if !self.limits.iter().any(is_old) {
            return;
        }
        self.limits.retain(|limit| !is_old(limit));
        let positions = self.limits.iter().enumerate();
        self.index = positions.map(|(position, limit)| (limit.identity, position)).collect();
    }

    /// Gives rings to the limits that were hit most in the last two hours.
    fn reassign_rings(&mut self) {
        if self.rings_max == 0 {
            return;
        }
        let hits = |limit: &LimitHistory| limit.hours.iter().map(|hour| hour.hits()).sum::<u64>();
        let mut free: Vec<bool> = vec![true; self.rings.len()];
        let mut with: Vec<(u64, usize)> = Vec::new();
        let mut without: Vec<(u64, usize)> = Vec::new();
        for (position, limit) in self.limits.iter().enumerate() {
            match limit.ring {
                Some(ring) => {
                    if let Some(free) = free.get_mut(usize::from(ring)) {
                        *free = false;
                    }
                    with.push((hits(limit), position));
                }
                None if hits(limit) > 0 => without.push((hits(limit), position)),
                None => {}
            }
        }
        without.sort_unstable_by(|one, other| other.cmp(one));
        with.sort_unstable();
        let mut unused = free.iter().enumerate().filter(|(_, free)| **free).map(|(ring, _)| ring);
        let mut least = with.into_iter();
        for (count, position) in without.into_iter().take(RING_CHANGES_MAX) {
            let ring = match unused.next() {
                Some(ring) => ring,
                None => match least.next() {
                    // Twice as many, so that two limits do not swap their ring every minute.
                    Some((fewer, loser)) if count > fewer.saturating_mul(2) => {
                        let ring = self.limits.get_mut(loser).and_then(|limit| limit.ring.take());
                        let Some(ring) = ring else { continue };
                        usize::from(ring)
                    }
                    _ => return,
                },
            };
            if let Some(ring) = self.rings.get_mut(ring) {
                ring.clear();
            }
            if let Some(limit) = self.limits.get_mut(position) {
                limit.ring = u16::try_from(ring).ok();
            }
        }
    }

    pub(crate) fn view(&self, identity: u64, now: u64) -> Option<LimitView<'_>> {
        let limit = self.limits.get(*self.index.get(&identity)?)?;
        Some(limit.view(&self.rings, now))
    }

    pub(crate) fn others(&self, now: u64) -> LimitView<'_> {
        self.others.view(&[], now)
    }
}

fn add_first(spans: &mut [SpanCounts], grown: SpanCounts) {
    if let Some(first) = spans.first_mut() {
        first.add(grown);
    }
}

fn plus(one: Counts, other: Counts) -> Counts {
    Counts {
        admitted: one.admitted.saturating_add(other.admitted),
        soft: one.soft.saturating_add(other.soft),
        near: one.near.saturating_add(other.near),
        refused: one.refused.saturating_add(other.refused),
        shadow: one.shadow.saturating_add(other.shadow),
    }
}
