//! Encodes one check for the script.

use tidegate_algorithms::{Algorithm, BucketTerms, Limit, Period, RoundingMode, Timestamp, Window};
use tidegate_redis_link::{ScriptBody, put_number};

use super::request::ScriptVerb;
use crate::batch::{Check, Role};
use crate::redis::rounded_limit::{COUNT_MAX, MICRO, rounded_period};

/// Ticks of 2⁻¹⁴ ns in a second.
const SECOND_TICKS: u128 = 1_000_000_000 << FINEST;
const FINEST: u32 = 14;
/// The most ticks that a charge adds; the same as in the token bucket.
const TICKS_MAX: u128 = 1 << 62;

/// Room that admits whatever is used.
const ALWAYS: u64 = (1 << 56) - 1;
const ALWAYS_SHORT: u64 = u32::MAX as u64;
const ALWAYS_SECONDS: u128 = (1 << 40) - 1;

const SOFT: u8 = 16;
const COUNTS_REFUSED: u8 = 4;
const LEASED: u8 = 8;

/// How far the server's clock may be behind its estimate within one calendar window.
const CALENDAR_SLACK: u64 = 60 * 1_000_000_000;

/// Appends one check. `expected` is the estimated time of the server, `key_cost` the sum of the costs of all checks of
/// the call on the same key.
pub(super) fn put_check(
    body: &mut ScriptBody,
    verb: ScriptVerb,
    check: &Check<'_>,
    limit: &Limit,
    expected: Timestamp,
    key_cost: u64,
) {
    let (hard, wide) = (limit.algorithm(), limit.kept_by());
    let cost = cost_of(verb, check, hard);
    let kind = kind(hard) + if limit.soft().is_some() { SOFT } else { 0 };
    let counts = if hard.counts_refused() { COUNTS_REFUSED } else { 0 };
    let lease = lease_of(check, wide);
    let leased = if lease.is_some() { LEASED } else { 0 };
    body.extend_from_slice(&[kind, role(check.role) + counts + leased]);
    let params = CheckParams { verb, cost, soft: limit.soft().is_some() };
    // For a soft limit the room without its allowance follows: its value at a cost of zero, and its bytes.
    let hard_room = match wide {
        Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => {
            if let (Some(hard), Some(wide)) = (hard.bucket_terms(), wide.bucket_terms()) {
                put_bucket(body, params, hard, wide);
            }
            None
        }
        Algorithm::FixedWindow(wide) => {
            put_window(body, wide.window(), expected);
            let counted = |limit: u64| limit.saturating_add(1).min(COUNT_MAX + 1);
            let at_zero = |limit| if wide.counts_refused() { counted(limit) } else { ALWAYS };
            put_number(body, params.room(wide.limit(), at_zero(wide.limit())), 7);
            put_number(body, cost, 7);
            Some((at_zero(hard.quota()), 7))
        }
        Algorithm::SlidingWindow(wide) => {
            put_number(body, wide.slice().get() / MICRO, 7);
            put_number(body, lag(wide.period()), 3);
            put_number(body, u64::from(wide.slices()) | rounding_bit(wide.rounding()), 1);
            put_number(body, params.room(wide.limit(), ALWAYS), 7);
            put_number(body, cost, 7);
            Some((ALWAYS, 7))
        }
        Algorithm::SlidingLog(wide) => {
            put_number(body, wide.period().as_nanos() / MICRO, 7);
            put_number(body, lag(wide.period()), 3);
            put_number(body, wide.limit(), 4);
            put_number(body, params.room(wide.limit(), ALWAYS_SHORT), 4);
            put_number(body, cost, 7);
            put_number(body, spare(hard.quota(), key_cost), 4);
            Some((ALWAYS_SHORT, 4))
        }
        Algorithm::Concurrency(wide) => {
            put_number(body, wide.time_to_live().as_nanos() / MICRO, 7);
            put_number(body, params.room(wide.limit(), ALWAYS_SHORT), 4);
            put_number(body, cost, 7);
            put_number(body, spare(hard.quota(), key_cost), 4);
            put_number(body, check.holder.0, 8);
            if let Some(lease) = lease {
                put_number(body, lease.as_nanos() / MICRO, 7);
            }
            Some((ALWAYS_SHORT, 4))
        }
    };
    if let (true, Some((at_zero, bytes))) = (params.soft, hard_room) {
        put_number(body, params.room(hard.quota(), at_zero), bytes);
    }
    if let Some(soft) = limit.soft() {
        put_number(body, soft.lasting.as_nanos() / MICRO, 7);
        put_number(body, hard.period().get() / MICRO, 7);
    }
}

/// What the encoding of a limit depends on.
#[derive(Clone, Copy)]
struct CheckParams {
    verb: ScriptVerb,
    cost: u64,
    soft: bool,
}

impl CheckParams {
    /// One more than the usage at which the cost still fits. For [`ScriptVerb::Take`], where the script finds the cost,
    /// one more than the usage at which nothing fits.
    fn room(self, limit: u64, at_zero: u64) -> u64 {
        let room = |cost| limit.checked_sub(cost).map_or(0, |room| room.saturating_add(1));
        match (self.verb, self.cost) {
            // A limit above the largest count never fills.
            (ScriptVerb::Take, _) if limit > COUNT_MAX => ALWAYS,
            (ScriptVerb::Take, _) => room(0),
            (_, 0) => at_zero,
            (_, cost) => room(cost).min(COUNT_MAX + 1),
        }
    }
}

/// The cost of a check; a leaky bucket refunds nothing.
pub(super) fn cost_of(verb: ScriptVerb, check: &Check<'_>, algorithm: &Algorithm) -> u64 {
    let is_kept = verb == ScriptVerb::Refund && !algorithm.is_refundable();
    if is_kept { 0 } else { check.cost.min(COUNT_MAX) }
}

/// The lease of slots, if it is shorter than their time to live.
fn lease_of(check: &Check<'_>, algorithm: &Algorithm) -> Option<Period> {
    let time_to_live = algorithm.slot_time_to_live()?;
    check.tenure.lease().map(rounded_period).filter(|lease| *lease < time_to_live)
}

fn put_bucket(body: &mut ScriptBody, params: CheckParams, hard: BucketTerms, wide: BucketTerms) {
    let finest = |ticks: u128| ticks << (FINEST - wide.shift.min(FINEST));
    let ticks = u128::from(params.cost) * u128::from(wide.interval);
    put_number(body, u64::from(wide.scale), 3);
    put_number(body, 1 << (FINEST - wide.shift.min(FINEST)), 2);
    put_span(body, (u128::from(wide.longest) + 1) << FINEST);
    let room = |capacity: u64| match (params.verb, params.cost) {
        (ScriptVerb::Take, _) => finest(u128::from(capacity)) + 1,
        (_, 0) => ALWAYS_SECONDS * SECOND_TICKS,
        _ => u128::from(capacity).checked_sub(ticks).map_or(0, |room| finest(room) + 1),
    };
    put_span(body, room(wide.capacity));
    let charged = match params.verb {
        ScriptVerb::Take | ScriptVerb::Report => u128::from(wide.interval),
        ScriptVerb::Refund => ticks.min(u128::from(u64::MAX)),
        _ => ticks.min(TICKS_MAX),
    };
    put_span(body, finest(charged));
    put_number(body, params.cost, 7);
    if params.soft {
        put_span(body, room(hard.capacity));
    }
    if matches!(params.verb, ScriptVerb::Charge | ScriptVerb::Report) {
        put_span(body, finest(u128::from(wide.capacity)));
    }
}

/// Ticks as seconds and ticks within the second.
fn put_span(body: &mut ScriptBody, ticks: u128) {
    let part = |ticks: u128| u64::try_from(ticks).unwrap_or(u64::MAX);
    put_number(body, part(ticks / SECOND_TICKS), 5);
    put_number(body, part(ticks % SECOND_TICKS), 6);
}

fn put_window(body: &mut ScriptBody, window: &Window, expected: Timestamp) {
    match window {
        Window::Every(period) => {
            put_number(body, period.as_nanos() / MICRO, 7);
            put_number(body, lag(*period), 3);
        }
        Window::Calendar(unit, _) => {
            let ends = window.end(expected);
            // An earlier instant must lie in the same window.
            let earlier = Timestamp::from_nanos(expected.as_nanos().saturating_sub(CALENDAR_SLACK));
            let begins = if window.end(earlier) == ends { earlier } else { expected };
            put_number(body, 0, 7);
            put_number(body, begins.as_nanos().div_ceil(MICRO), 7);
            put_number(body, ends.as_nanos() / MICRO, 7);
            put_number(body, unit.longest().get() / MICRO, 7);
        }
    }
}

/// How old a reading of the clock may be, in microseconds.
fn lag(period: Period) -> u64 {
    period.lag_max().get() / MICRO
}

/// The bit of the number of slices that says how use is rounded.
const fn rounding_bit(rounding: RoundingMode) -> u64 {
    match rounding {
        RoundingMode::Up => 0,
        RoundingMode::Down => 128,
    }
}

/// The part of a list that the script need not report, because no decision depends on it.
fn spare(limit: u64, key_cost: u64) -> u64 {
    limit.saturating_sub(key_cost.saturating_mul(2))
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
