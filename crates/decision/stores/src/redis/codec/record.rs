//! One check as the script reads it.

use tidegate_algorithms::{Algorithm, BucketTerms, Limit, Period, Timestamp, Window};

use super::bytes::{Body, put};
use super::request::Order;
use crate::batch::{Check, Role};
use crate::redis::kept::{COUNT_MAX, MICRO, kept_lease};

/// Ticks of 2⁻¹⁴ ns in a second.
const SECOND_TICKS: u128 = 1_000_000_000 << FINEST;
const FINEST: u32 = 14;
/// The most ticks that a charge adds, as the bucket has it.
const TICKS_MAX: u128 = 1 << 62;

/// A room that admits whatever is used.
const ALWAYS: u64 = (1 << 56) - 1;
const ALWAYS_SHORT: u64 = u32::MAX as u64;
const ALWAYS_SECONDS: u128 = (1 << 40) - 1;

const SOFT: u8 = 16;
const COUNTS_REFUSED: u8 = 4;
const LEASED: u8 = 8;

/// How far before the present a calendar's window is asked about.
const PROBE: u64 = 60 * 1_000_000_000;

/// Appends one check. `expected` is the server's clock as far as it is known;
/// `spent` is what all checks of the parcel on the same key cost.
pub(super) fn put_check(
    body: &mut Body,
    order: Order,
    check: &Check<'_>,
    limit: &Limit,
    expected: Timestamp,
    spent: u64,
) {
    let (hard, wide) = (limit.algorithm(), limit.kept_by());
    let cost = cost_of(order, check, hard);
    let kind = kind(hard) + if limit.soft().is_some() { SOFT } else { 0 };
    let counts = if hard.counts_refused() { COUNTS_REFUSED } else { 0 };
    let lease = lease_of(check, wide);
    let leased = if lease.is_some() { LEASED } else { 0 };
    body.extend_from_slice(&[kind, role(check.role) + counts + leased]);
    let asked = Asked { order, cost, soft: limit.soft().is_some() };
    match (hard, wide) {
        (Algorithm::TokenBucket(hard), Algorithm::TokenBucket(wide)) => {
            put_bucket(body, asked, hard.terms(), wide.terms());
        }
        (Algorithm::LeakyBucket(hard), Algorithm::LeakyBucket(wide)) => {
            put_bucket(body, asked, hard.terms(), wide.terms());
        }
        (Algorithm::FixedWindow(hard), Algorithm::FixedWindow(wide)) => {
            put_window(body, wide.window(), expected);
            let at_zero = |limit: u64| {
                if wide.counts_refused() {
                    limit.saturating_add(1).min(COUNT_MAX + 1)
                } else {
                    ALWAYS
                }
            };
            put(body, asked.room(wide.limit(), at_zero(wide.limit())), 7);
            put(body, cost, 7);
            if asked.soft {
                put(body, asked.room(hard.limit(), at_zero(hard.limit())), 7);
            }
        }
        (Algorithm::SlidingWindow(hard), Algorithm::SlidingWindow(wide)) => {
            put(body, wide.slice().get() / MICRO, 7);
            put(body, lag(wide.period()), 3);
            put(body, u64::from(wide.slices()), 1);
            put(body, asked.room(wide.limit(), ALWAYS), 7);
            put(body, cost, 7);
            if asked.soft {
                put(body, asked.room(hard.limit(), ALWAYS), 7);
            }
        }
        (Algorithm::SlidingLog(hard), Algorithm::SlidingLog(wide)) => {
            put(body, wide.period().as_nanos() / MICRO, 7);
            put(body, lag(wide.period()), 3);
            put(body, wide.limit(), 4);
            put(body, asked.room(wide.limit(), ALWAYS_SHORT), 4);
            put(body, cost, 7);
            put(body, spare(hard.limit(), spent), 4);
            if asked.soft {
                put(body, asked.room(hard.limit(), ALWAYS_SHORT), 4);
            }
        }
        (Algorithm::Concurrency(hard), Algorithm::Concurrency(wide)) => {
            put(body, wide.time_to_live().as_nanos() / MICRO, 7);
            put(body, asked.room(wide.limit(), ALWAYS_SHORT), 4);
            put(body, cost, 7);
            put(body, spare(hard.limit(), spent), 4);
            put(body, check.holder.0, 8);
            if let Some(lease) = lease {
                put(body, lease.as_nanos() / MICRO, 7);
            }
            if asked.soft {
                put(body, asked.room(hard.limit(), ALWAYS_SHORT), 4);
            }
        }
        // A stretched limit is of the same kind as its own.
        _ => {}
    }
    if let Some(soft) = limit.soft() {
        put(body, soft.lasting.as_nanos() / MICRO, 7);
        put(body, hard.period().get() / MICRO, 7);
    }
}

/// What is asked of each algorithm.
#[derive(Clone, Copy)]
struct Asked {
    order: Order,
    cost: u64,
    soft: bool,
}

impl Asked {
    /// One more than may be used already for the cost to fit; for
    /// [`Order::Take`], where the script finds the cost, for none to fit.
    fn room(self, limit: u64, at_zero: u64) -> u64 {
        let room = |cost| limit.checked_sub(cost).map_or(0, |room| room.saturating_add(1));
        match (self.order, self.cost) {
            // More than can be counted always has room.
            (Order::Take, _) if limit > COUNT_MAX => ALWAYS,
            (Order::Take, _) => room(0),
            (_, 0) => at_zero,
            (_, cost) => room(cost).min(COUNT_MAX + 1),
        }
    }
}

/// What the check costs here; a leaky bucket takes nothing back.
pub(super) fn cost_of(order: Order, check: &Check<'_>, algorithm: &Algorithm) -> u64 {
    match order {
        Order::Refund if !algorithm.is_refundable() => 0,
        _ => check.cost.min(COUNT_MAX),
    }
}

/// For how long slots are taken, if that is less than their time to live.
fn lease_of(check: &Check<'_>, algorithm: &Algorithm) -> Option<Period> {
    let time_to_live = algorithm.slot_time_to_live()?;
    check.tenure.lease().map(kept_lease).filter(|lease| *lease < time_to_live)
}

fn put_bucket(body: &mut Body, asked: Asked, hard: BucketTerms, wide: BucketTerms) {
    let finest = |ticks: u128| ticks << (FINEST - wide.shift.min(FINEST));
    let ticks = u128::from(asked.cost) * u128::from(wide.interval);
    put(body, u64::from(wide.scale), 3);
    put(body, 1 << (FINEST - wide.shift.min(FINEST)), 2);
    put_span(body, (u128::from(wide.longest) + 1) << FINEST);
    let room = |capacity: u64| match (asked.order, asked.cost) {
        (Order::Take, _) => finest(u128::from(capacity)) + 1,
        (_, 0) => ALWAYS_SECONDS * SECOND_TICKS,
        _ => u128::from(capacity).checked_sub(ticks).map_or(0, |room| finest(room) + 1),
    };
    put_span(body, room(wide.capacity));
    let charged = match asked.order {
        Order::Take => u128::from(wide.interval),
        Order::Refund => ticks.min(u128::from(u64::MAX)),
        _ => ticks.min(TICKS_MAX),
    };
    put_span(body, finest(charged));
    put(body, asked.cost, 7);
    if asked.soft {
        put_span(body, room(hard.capacity));
    }
    if asked.order == Order::Charge {
        put_span(body, finest(u128::from(wide.capacity)));
    }
}

/// Ticks as seconds and ticks within the second.
fn put_span(body: &mut Body, ticks: u128) {
    let part = |ticks: u128| u64::try_from(ticks).unwrap_or(u64::MAX);
    put(body, part(ticks / SECOND_TICKS), 5);
    put(body, part(ticks % SECOND_TICKS), 6);
}

fn put_window(body: &mut Body, window: &Window, expected: Timestamp) {
    match window {
        Window::Every(period) => {
            put(body, period.as_nanos() / MICRO, 7);
            put(body, lag(*period), 3);
        }
        Window::Calendar(unit, _) => {
            let ends = window.end(expected);
            // The script must not find another window at an earlier instant.
            let earlier = Timestamp::from_nanos(expected.as_nanos().saturating_sub(PROBE));
            let begins = if window.end(earlier) == ends { earlier } else { expected };
            put(body, 0, 7);
            put(body, begins.as_nanos().div_ceil(MICRO), 7);
            put(body, ends.as_nanos() / MICRO, 7);
            put(body, unit.longest().get() / MICRO, 7);
        }
    }
}

/// How late a reading of the clock may be, in microseconds.
fn lag(period: Period) -> u64 {
    period.lag_max().get() / MICRO
}

/// So much of a list need not be told: no answer rests on it.
fn spare(limit: u64, spent: u64) -> u64 {
    limit.saturating_sub(spent.saturating_mul(2))
}

const fn kind(algorithm: &Algorithm) -> u8 {
    match algorithm {
        Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => 1,
        Algorithm::FixedWindow(_) => 2,
        Algorithm::SlidingWindow(_) => 3,
        Algorithm::SlidingLog(_) => 4,
        Algorithm::Concurrency(_) => 5,
    }
}

const fn role(role: Role) -> u8 {
    match role {
        Role::Required => 0,
        Role::Alternative => 1,
        Role::Observed => 2,
    }
}
