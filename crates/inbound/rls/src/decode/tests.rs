use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use prost::encoding::encode_varint;

use super::wire::DEPTH_MAX;
use super::{RateLimitRequest as DecodedRequest, WireError, decode};
use crate::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use crate::proto::{RateLimitDescriptor, RateLimitRequest};

/// A decoded request as prost has it.
fn as_prost(request: &DecodedRequest<'_>) -> RateLimitRequest {
    let descriptors = request.descriptors().iter().map(|descriptor| RateLimitDescriptor {
        entries: request
            .entries(descriptor)
            .iter()
            .map(|entry| Entry { key: entry.key.to_owned(), value: entry.value.to_owned() })
            .collect(),
        limit: descriptor.limit.map(|limit| RateLimitOverride {
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
        }),
        hits_addend: descriptor.hits,
        is_negative_hits: descriptor.negative,
    });
    RateLimitRequest {
        domain: request.domain.to_owned(),
        descriptors: descriptors.collect(),
        hits_addend: request.hits,
    }
}

fn decoded(bytes: &[u8]) -> Result<DecodedRequest<'_>, WireError> {
    let mut request = DecodedRequest::default();
    decode(bytes, &mut request).map(|()| request)
}

/// Checks that both accept and agree, or both reject. Returns whether they accept.
fn agrees_with_prost(bytes: &[u8]) -> bool {
    match (decoded(bytes), RateLimitRequest::decode(bytes)) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(as_prost(&ours), theirs, "{bytes:?}");
            true
        }
        (Err(_), Err(_)) => false,
        (ours, theirs) => panic!("we say {ours:?}, prost says {theirs:?} of {bytes:?}"),
    }
}

fn tagged(number: u32, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_varint(u64::from(number) << 3 | u64::from(kind), &mut out);
    out.extend_from_slice(rest);
    out
}

fn varint(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    encode_varint(number, &mut out);
    out
}

fn block(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut rest = varint(bytes.len() as u64);
    rest.extend_from_slice(bytes);
    tagged(number, 2, &rest)
}

fn number_field(number: u32) -> impl Strategy<Value = Vec<u8>> {
    let values = prop_oneof![0_u64..10, any::<u64>(), Just(u64::MAX), Just(1 << 32)];
    values.prop_map(move |value| tagged(number, 0, &varint(value)))
}

fn text_field(number: u32) -> impl Strategy<Value = Vec<u8>> {
    let texts = prop_oneof![
        20 => ".{0,12}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..4),
    ];
    texts.prop_map(move |text| block(number, &text))
}

/// A field that may be unknown, or known and of the wrong type.
fn odd_field() -> impl Strategy<Value = Vec<u8>> {
    let plain = prop_oneof![
        (5_u32..40, any::<u64>()).prop_map(|(number, value)| tagged(number, 0, &varint(value))),
        (5_u32..40, any::<[u8; 8]>()).prop_map(|(number, value)| tagged(number, 1, &value)),
        (5_u32..40, any::<[u8; 4]>()).prop_map(|(number, value)| tagged(number, 5, &value)),
        (5_u32..40, vec(any::<u8>(), 0..8)).prop_map(|(number, value)| block(number, &value)),
    ];
    plain.prop_recursive(4, 12, 3, |inner| {
        (5_u32..40, vec(inner, 0..3)).prop_map(|(number, inside)| {
            let mut group = tagged(number, 3, &inside.concat());
            group.extend(tagged(number, 4, &[]));
            group
        })
    })
}

/// Fields in any order, some more than once, some unknown, and now and then a broken one.
fn fields(known: impl Strategy<Value = Vec<u8>> + 'static) -> impl Strategy<Value = Vec<u8>> {
    let broken = (0_u32..6, 0_u8..8, vec(any::<u8>(), 0..5))
        .prop_map(|(number, kind, rest)| tagged(number, kind, &rest));
    let field = prop_oneof![40 => known, 5 => odd_field(), 1 => broken];
    vec(field, 0..5).prop_map(|fields| fields.concat())
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let entry = fields(prop_oneof![text_field(1), text_field(2)]);
    let limit = fields(prop_oneof![number_field(1), number_field(2)]);
    let wrapped = fields(number_field(1));
    let descriptor = fields(prop_oneof![
        3 => entry.prop_map(|entry| block(1, &entry)),
        1 => limit.prop_map(|limit| block(2, &limit)),
        1 => wrapped.prop_map(|wrapped| block(3, &wrapped)),
        1 => number_field(4),
    ]);
    fields(prop_oneof![
        1 => text_field(1),
        3 => descriptor.prop_map(|descriptor| block(2, &descriptor)),
        1 => number_field(3),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn reads_any_order_of_fields_as_prost_does(bytes in message()) {
        agrees_with_prost(&bytes);
    }

    #[test]
    fn reads_any_bytes_as_prost_does(bytes in vec(any::<u8>(), 0..40)) {
        agrees_with_prost(&bytes);
    }

    #[test]
    fn reads_messages_with_one_changed_byte_as_prost_does(
        bytes in message(),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut bytes = bytes;
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        agrees_with_prost(&bytes);
    }

    #[test]
    fn reads_messages_that_are_cut_off_as_prost_does(
        bytes in message(),
        at in any::<prop::sample::Index>(),
    ) {
        let end = at.index(bytes.len() + 1);
        agrees_with_prost(&bytes[..end]);
    }
}

#[test]
fn most_generated_messages_are_valid() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let accepted = (0..500)
        .filter(|_| agrees_with_prost(&message().new_tree(&mut runner).unwrap().current()))
        .count();
    assert!(accepted > 250, "{accepted} of 500");
}

#[test]
fn groups_nest_as_deep_as_in_prost() {
    for depth in [1, DEPTH_MAX - 2, DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1, 10_000] {
        let depth = usize::try_from(depth).unwrap();
        let mut bytes = tagged(9, 3, &[]).repeat(depth);
        bytes.extend(tagged(9, 4, &[]).repeat(depth));
        agrees_with_prost(&bytes);
        // One level deeper, within a descriptor and within an entry.
        let inside = block(2, &bytes);
        agrees_with_prost(&inside);
        agrees_with_prost(&block(2, &block(1, &bytes)));
    }
}

#[test]
fn numbers_of_every_length_are_read_as_prost_does() {
    for length in 1..=12 {
        for last in [0, 1, 2, 0x7F, 0x80] {
            let mut number = vec![0xFF; length - 1];
            number.push(last);
            agrees_with_prost(&tagged(3, 0, &number));
            agrees_with_prost(&number);
        }
    }
}

#[test]
fn texts_are_borrowed_from_the_message() {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(b"\x0a\x03api");
    let request = decoded(&bytes).unwrap();
    assert!(bytes.as_ptr_range().contains(&request.domain.as_ptr()));
}
