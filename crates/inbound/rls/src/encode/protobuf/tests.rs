use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use serde_json::{Map, json};

use super::*;
use crate::encode::answer::{Code, CurrentLimit};
use crate::proto::RateLimitResponse;
use crate::unit::UnitNumber;

fn codes() -> impl Strategy<Value = Code> {
    prop_oneof![Just(Code::Unknown), Just(Code::Ok), Just(Code::OverLimit)]
}

/// A code, a limit, what remains, and in how many seconds it starts over.
type Status = (Code, Option<(u32, i32, String)>, u32, u64);

fn statuses() -> impl Strategy<Value = Vec<Status>> {
    let numbers = prop_oneof![Just(0), 1_u32..300, Just(u32::MAX)];
    // Also names that no short answer has room for.
    let names = prop_oneof![9 => ".{0,9}", 1 => ".{30,200}"];
    let limit = option::of((numbers.clone(), 0_i32..8, names));
    let seconds = prop_oneof![Just(0_u64), 1_u64..100_000];
    vec((codes(), limit, numbers, seconds), 0..30)
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(json!(0.5)),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((".{0,4}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn writes_what_prost_would(
        (overall, statuses) in (prop_oneof![Just(Code::Ok), Just(Code::OverLimit)], statuses()),
        headers in option::of(prop::array::uniform3((".{1,9}", any::<u64>()))),
        metadata in option::of(vec((".{0,5}", values()), 0..5)),
    ) {
        let answer = Answer {
            overall,
            shadowed: false,
            statuses: statuses
                .iter()
                .map(|(code, limit, remaining, reset_seconds)| DescriptorStatus {
                    code: *code,
                    current_limit: limit.as_ref().map(|(requests_per_unit, unit, name)| {
                        CurrentLimit {
                            requests_per_unit: *requests_per_unit,
                            unit: UnitNumber::of(UnitNumber::read(*unit)),
                            name,
                        }
                    }),
                    remaining: *remaining,
                    reset_seconds: *reset_seconds,
                    counts: true,
                    refuses: false,
                })
                .collect(),
            headers: headers
                .as_ref()
                .map(|headers| headers.each_ref().map(|(name, value)| (name.as_str(), *value))),
            metadata: metadata.map(|members| members.into_iter().collect::<Map<_, _>>()),
        };
        let frame = encode(&answer);
        let (prefix, message) = frame.split_at(PREFIX_LEN);
        prop_assert_eq!(prefix[0], 0);
        prop_assert_eq!(usize::try_from(u32::from_be_bytes(prefix[1..].try_into().unwrap())), Ok(message.len()));
        let read = RateLimitResponse::decode(message).unwrap();
        prop_assert_eq!(read.statuses.len(), answer.statuses.len());
        prop_assert_eq!(read.overall_code, overall as i32);
        for (read, (code, limit, remaining, seconds)) in read.statuses.iter().zip(&statuses) {
            prop_assert_eq!(read.code, *code as i32);
            prop_assert_eq!(read.limit_remaining, *remaining);
            let read_limit = read.current_limit.as_ref();
            let read_limit =
                read_limit.map(|limit| (limit.requests_per_unit, limit.unit, limit.name.clone()));
            prop_assert_eq!(&read_limit, limit);
            let reset = read.duration_until_reset.map(|reset| reset.seconds.unsigned_abs());
            prop_assert_eq!(reset, limit.as_ref().map(|_| *seconds));
        }
        prop_assert_eq!(read.encode_to_vec(), message);
        // Whether it fits into the stack buffer or not.
        prop_assert_eq!(write_frame(&answer, &mut [0; 16]), frame.len());
        prop_assert_eq!(encode_long(&answer, frame.len()), frame);
    }
}
