//! Ticks, scales, and the fast path for one unit compared with the general arithmetic.

use proptest::prelude::*;

use super::*;
use crate::limit::Limit;
use crate::state::State;
use crate::token_bucket::TokenBucket;

/// `part` of `whole`, in 64-bit fractions.
fn share(whole: u64, part: u64) -> u64 {
    ((u128::from(whole) * u128::from(part)) >> 64) as u64
}

proptest! {
    #[test]
    fn units_by_multiplication_equal_units_by_division(
        amount in 1..=u64::MAX,
        amount_bits in 0..64_u32,
        units in 1..=u64::MAX,
        units_bits in 0..64_u32,
        nanos in 1_000_000..=Period::MAX.as_nanos(),
        part in 0..=u64::MAX,
        off in -2..=2_i64,
    ) {
        let period = Period::new(std::time::Duration::from_nanos(nanos)).unwrap();
        let meter = BucketMeter::new((amount >> amount_bits).max(1), period, units >> units_bits);
        let some = share(meter.capacity, part);
        let edge = (meter.units / 3 * meter.interval).saturating_add_signed(off);
        for ticks in [0, some, edge.min(meter.capacity), meter.capacity] {
            prop_assert_eq!(meter.units_in(ticks), ticks / meter.interval);
        }
        prop_assert_eq!(meter.units_in(meter.capacity), meter.units);
    }

    #[test]
    fn a_debt_is_read_back_from_the_state(
        amount in 1..=u64::MAX,
        amount_bits in 0..64_u32,
        units in 1..=u64::MAX,
        units_bits in 0..64_u32,
        part in 0..=u64::MAX,
    ) {
        let meter = BucketMeter::new((amount >> amount_bits).max(1), Period::DAY, units >> units_bits);
        let now = Timestamp::from_secs(1_700_000_000);
        let debt = share(meter.capacity, part);
        prop_assert_eq!(meter.debt(meter.owing(debt, now), now), Debt(debt));
    }

    #[test]
    fn a_scale_names_its_interval_within_one_part_in_two_thousand(
        interval in 1..=u64::MAX, bits in 0..64_u32,
    ) {
        let interval = (interval >> bits).clamp(1, 1 << 62);
        let named = Scale::of(interval).interval();
        prop_assert!(Scale::of(interval).0 < 1 << Scale::BITS);
        prop_assert!(named >= u128::from(interval));
        prop_assert!(named - u128::from(interval) <= u128::from(interval / 2048 + 1));
    }
}

/// A bucket's state after a first cost at `start`.
fn spent(bucket: &TokenBucket, first: u64, start: Timestamp) -> BucketState {
    let mut state = State::Unused;
    Limit::new(bucket.clone()).check(&mut state, CheckInput::new(first, start));
    bucket.meter.settle(as_bucket(&state), start)
}

fn as_bucket(state: &State) -> Option<BucketState> {
    if let State::Bucket(state) = state { Some(*state) } else { None }
}

/// Takes a unit on the fast path and by the general arithmetic, and compares. Returns whether the
/// fast path decided.
fn compare(bucket: &TokenBucket, before: BucketState, now: Timestamp) -> bool {
    let mut whole = State::Bucket(before);
    let decision = Limit::new(bucket.clone()).check(&mut whole, CheckInput::new(1, now));
    let (decided, after) = match bucket.take_unit(before, now) {
        None => return false,
        Some(UnitOutcome::Taken(after)) => (bucket.unit_admission(after, now), after),
        Some(UnitOutcome::Refused) => (bucket.unit_refusal(before, now), before),
    };
    assert_eq!(decided, decision);
    assert_eq!(Some(after), as_bucket(&whole));
    true
}

proptest! {
    #[test]
    fn the_fast_path_decides_and_charges_like_the_general_arithmetic(
        (amount, amount_bits) in (1..=u64::MAX, 0..64_u32),
        (burst, burst_bits) in (1..=u64::MAX, 0..64_u32),
        first in prop_oneof![1..=4_000_u64, 1..=u64::MAX],
        apart in prop_oneof![-2_000_000_000..=2_000_000_000_i64, -5..=5_i64, Just(i64::MAX)],
    ) {
        let amount = (amount >> amount_bits).max(1);
        let bucket = TokenBucket::new(amount, Period::MINUTE, (burst >> burst_bits).max(1));
        let start = Timestamp::from_secs(1_700_000_000);
        let now = Timestamp::from_nanos(start.as_nanos().saturating_add_signed(apart));
        let served = compare(&bucket, spent(&bucket, first, start), now);
        // With readings in order and before the year 2262, the fast path always decides.
        prop_assert!(served || apart < 0 || apart == i64::MAX);
    }

    #[test]
    fn the_fast_path_is_exact_at_the_edge_of_a_full_bucket(
        amount in 1..=3_000_000_000_u64,
        burst in 1..=1_000_u64,
        late in -3..=3_i64,
    ) {
        let bucket = TokenBucket::new(amount, Period::SECOND, burst);
        let start = Timestamp::from_secs(1_700_000_000);
        let empty = spent(&bucket, burst, start);
        let refusal = bucket.unit_refusal(empty, start);
        let Retry::After(wait) = refusal.retry else { panic!("{refusal:?} is no refusal") };
        let back = start.after(wait).as_nanos().saturating_add_signed(late);
        let back = Timestamp::from_nanos(back);
        if back >= start {
            prop_assert!(compare(&bucket, empty, back));
            let taken = bucket.take_unit(empty, back);
            prop_assert_eq!(matches!(taken, Some(UnitOutcome::Taken(_))), late >= 0);
        }
    }

    #[test]
    fn a_state_of_any_bits_is_decided_as_by_the_general_arithmetic_or_left_to_it(
        (amount, burst) in (0..=u64::MAX, 0..=u64::MAX),
        (amount_bits, burst_bits) in (0..64_u32, 0..64_u32),
        full_at: u64,
        part: u32,
        own_scale: bool,
        ahead in prop_oneof![0..=1_u64 << 40, 0..=u64::MAX],
    ) {
        let bucket = TokenBucket::new(amount >> amount_bits, Period::HOUR, burst >> burst_bits);
        let scale = bucket.meter.terms().scale;
        let part = if own_scale { (part >> Scale::BITS << Scale::BITS) | scale } else { part };
        let state = BucketState::from_parts(Timestamp::from_nanos(full_at), part);
        compare(&bucket, state, Timestamp::from_nanos(full_at.saturating_sub(ahead)));
        compare(&bucket, state, Timestamp::from_nanos(full_at.saturating_add(ahead)));
    }
}

#[test]
fn a_unit_of_a_bucket_without_any_is_left_to_the_general_arithmetic() {
    let now = Timestamp::from_secs(1_700_000_000);
    for bucket in [TokenBucket::new(0, Period::SECOND, 5), TokenBucket::new(5, Period::SECOND, 0)] {
        assert_eq!(bucket.take_unit(bucket.meter.settle(None, now), now), None);
    }
}
