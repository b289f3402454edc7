//! Encodes and decodes states that are one string in Redis.
//!
//! A bucket has twelve bytes: seconds (34 bits), ticks of 2⁻¹⁴ ns within the second (44) and the scale (18). The other
//! states begin with a letter. Sliding logs and slots are sorted sets, and have no string.

use tidegate_algorithms::{
    Allowance, BucketState, Nanos, SlicesState, SoftState, State, Timestamp, WindowState,
};
use tidegate_redis_link::{NumberReader, ScriptBody, put_number};

use crate::redis::rounded_limit::{COUNT_MAX, MICRO};

const SECOND: u64 = 1_000_000_000;
const SCALE_BITS: u32 = 18;
const FRACTION_BITS: u32 = 14;

const WINDOW: u8 = b'W';
const SLICES: u8 = b'L';
const SOFT: u8 = b'S';

/// The bytes of a state; empty if it is unused or a sorted set.
pub(in crate::redis) fn encode(state: &State) -> Vec<u8> {
    let mut body = ScriptBody::new();
    write(&mut body, state);
    body.into_vec()
}

fn write(body: &mut ScriptBody, state: &State) {
    match state {
        State::Unused | State::Log(_) | State::Slots(_) => {}
        State::Bucket(bucket) => {
            let (full_at, part) = bucket.to_parts();
            let (seconds, nanos) = (full_at.as_nanos() / SECOND, full_at.as_nanos() % SECOND);
            let ticks = (nanos << FRACTION_BITS) | u64::from(part >> SCALE_BITS);
            let scale = u64::from(part) & ((1 << SCALE_BITS) - 1);
            put_number(body, (seconds << 14) | (ticks >> 30), 6);
            put_number(body, ((ticks & ((1 << 30) - 1)) << SCALE_BITS) | scale, 6);
        }
        State::Window(window) => {
            body.push(WINDOW);
            put_number(body, micros(window.end), 7);
            put_number(body, window.count.min(COUNT_MAX), 7);
        }
        State::Slices(slices) => {
            let (begun, slice, counts) = slices.to_parts();
            let most = counts.iter().max().copied().unwrap_or(0).min(COUNT_MAX);
            let width = match most {
                0..=0xFF => 1,
                0x100..=0xFFFF => 2,
                0x1_0000..=0xFFFF_FFFF => 4,
                _ => 7,
            };
            body.push(SLICES);
            put_number(body, micros(begun), 7);
            put_number(body, slice.get().div_ceil(MICRO), 7);
            put_number(body, width as u64, 1);
            counts.iter().for_each(|count| put_number(body, (*count).min(COUNT_MAX), width));
        }
        State::Soft(soft) => {
            let Allowance { closes, rests_until } = soft.allowance.unwrap_or_default();
            body.push(SOFT);
            put_number(body, micros(closes), 7);
            put_number(body, micros(rests_until), 7);
            write(body, &soft.inner);
        }
    }
}

/// The state of these bytes. Malformed bytes are an unused state, so that the limit starts from zero.
pub(in crate::redis) fn decode(raw: &[u8]) -> State {
    if raw.len() == 12 || raw.first() != Some(&SOFT) {
        return decode_hard(raw).unwrap_or_default();
    }
    let mut reader = NumberReader::new(raw.get(1..).unwrap_or_default());
    let (Some(closes), Some(rests)) = (reader.number(7), reader.number(7)) else {
        return State::Unused;
    };
    let inner = decode_hard(reader.rest()).unwrap_or_default();
    State::Soft(Box::new(SoftState { inner, allowance: allowance(closes, rests) }))
}

fn decode_hard(raw: &[u8]) -> Option<State> {
    if raw.len() == 12 {
        return bucket(raw);
    }
    let (kind, rest) = raw.split_first()?;
    let mut reader = NumberReader::new(rest);
    match *kind {
        WINDOW => {
            let end = instant(reader.number(7)?);
            let count = reader.number(7)?;
            reader.is_empty().then_some(State::Window(WindowState { end, count }))
        }
        SLICES => {
            let begun = instant(reader.number(7)?);
            let slice = Nanos::new(reader.number(7)?.saturating_mul(MICRO));
            let width = usize::try_from(reader.number(1)?).ok().filter(|width| *width <= 7)?;
            let mut counts = Vec::new();
            while !reader.is_empty() {
                counts.push(reader.number(width.max(1))?);
            }
            Some(State::Slices(SlicesState::from_parts(begun, slice, &counts)))
        }
        _ => None,
    }
}

fn bucket(raw: &[u8]) -> Option<State> {
    let mut reader = NumberReader::new(raw);
    let (first, second) = (reader.number(6)?, reader.number(6)?);
    let ticks = ((first & 0x3FFF) << 30) | (second >> SCALE_BITS);
    let nanos = (first >> 14).saturating_mul(SECOND).saturating_add(ticks >> FRACTION_BITS);
    let fraction = ticks & ((1 << FRACTION_BITS) - 1);
    let part = (fraction << SCALE_BITS) | (second & ((1 << SCALE_BITS) - 1));
    let part = u32::try_from(part).ok()?;
    Some(State::Bucket(BucketState::from_parts(Timestamp::from_nanos(nanos), part)))
}

/// The allowance that closes and has rested after so many microseconds; zero means none.
pub(super) fn allowance(closes: u64, rests: u64) -> Option<Allowance> {
    (closes > 0).then(|| Allowance { closes: instant(closes), rests_until: instant(rests) })
}

/// The instant this many microseconds after the epoch.
pub(super) const fn instant(micros: u64) -> Timestamp {
    Timestamp::from_nanos(micros.saturating_mul(MICRO))
}

fn micros(instant: Timestamp) -> u64 {
    instant.as_nanos().div_ceil(MICRO)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hard() -> impl Strategy<Value = State> {
        let bucket = (0..1_u64 << 63, any::<u32>()).prop_map(|(at, part)| {
            State::Bucket(BucketState::from_parts(Timestamp::from_nanos(at), part))
        });
        let window = (0..1_u64 << 50, 0..=COUNT_MAX)
            .prop_map(|(end, count)| State::Window(WindowState { end: instant(end), count }));
        let counts =
            (0..53_u32).prop_flat_map(|bits| prop::collection::vec(0..=COUNT_MAX >> bits, 2..=65));
        let slices = (0..1_u64 << 50, 1..1_u64 << 44, counts).prop_map(|(begun, slice, counts)| {
            let slice = Nanos::new(slice * MICRO);
            State::Slices(SlicesState::from_parts(instant(begun), slice, &counts))
        });
        prop_oneof![Just(State::Unused), bucket, window, slices]
    }

    proptest! {
        #[test]
        fn a_state_comes_back_from_its_bytes(
            state in hard(),
            allowance in prop::option::of((1..1_u64 << 50, 1..1_u64 << 50)),
            soft in any::<bool>(),
        ) {
            let allowance = allowance.and_then(|(closes, rests)| super::allowance(closes, rests));
            let state = if soft {
                State::Soft(Box::new(SoftState { inner: state, allowance }))
            } else {
                state
            };
            prop_assert_eq!(decode(&encode(&state)), state);
        }

        #[test]
        fn any_bytes_are_some_state(raw in prop::collection::vec(any::<u8>(), 0..80), kind in 0..4_usize) {
            let mut raw = raw;
            if let Some(first) = raw.first_mut() {
                *first = [WINDOW, SLICES, SOFT, *first][kind];
            }
            let state = decode(&raw);
            prop_assert!(state == State::Unused || !encode(&state).is_empty());
        }
    }

    #[test]
    fn a_bucket_takes_twelve_bytes() {
        let state = BucketState::from_parts(Timestamp::from_secs(1_700_000_000), 7);
        assert_eq!(encode(&State::Bucket(state)).len(), 12);
    }
}
