//! Answers as services send them, and what is read of them.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use tidegate_response_fields::{
    Nanos, POLICIES_MAX, PolicyReading, PolicyUnit, ResponseFields, Timestamp,
};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

fn read(fields: &[(&'static str, &str)]) -> ResponseFields {
    let headers: HeaderMap = fields
        .iter()
        .map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        })
        .collect();
    ResponseFields::read(&headers, NOW)
}

fn wait(fields: &[(&'static str, &str)]) -> Option<u64> {
    read(fields).wait.map(|wait| wait.get() / 1_000_000)
}

#[test]
fn retry_after_is_read_in_every_form() {
    assert_eq!(wait(&[("retry-after", "7")]), Some(7_000));
    assert_eq!(wait(&[("retry-after", " 2.0 ")]), Some(2_000));
    assert_eq!(wait(&[("retry-after", "Fri, 15 Jan 2027 08:00:30 GMT")]), Some(30_000));
    assert_eq!(wait(&[("retry-after-ms", "1500")]), Some(1_500));
    assert_eq!(wait(&[("x-ms-retry-after-ms", "20")]), Some(20));
    assert_eq!(wait(&[("grpc-retry-pushback-ms", "250")]), Some(250));
    assert_eq!(wait(&[("x-ratelimit-retry-after", "3")]), Some(3_000));
}

#[test]
fn malformed_waits_are_ignored_one_by_one() {
    for value in ["", "soon", "-1", "1e3", "Fri, 99 Jan 2027 08:00:30 GMT", "1 2"] {
        assert_eq!(wait(&[("retry-after", value)]), None, "{value}");
    }
    assert_eq!(wait(&[("retry-after", "soon"), ("retry-after-ms", "10")]), Some(10));
}

#[test]
fn a_date_is_compared_with_the_clock_of_the_service() {
    // The service's clock is an hour ahead of ours.
    let fields = [
        ("date", "Fri, 15 Jan 2027 09:00:00 GMT"),
        ("retry-after", "Fri, 15 Jan 2027 09:00:10 GMT"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1800003620"),
    ];
    assert_eq!(wait(&fields), Some(10_000));
    assert_eq!(read(&fields).policies[0].reset, Some(Nanos::from_secs(20)));
}

#[test]
fn milliseconds_are_more_precise_than_rounded_seconds() {
    assert_eq!(wait(&[("retry-after", "2"), ("retry-after-ms", "1100")]), Some(1_100));
    // Contradictions: the longer one is safe.
    assert_eq!(wait(&[("retry-after", "60"), ("retry-after-ms", "60")]), Some(60_000));
    assert_eq!(wait(&[("retry-after", "1"), ("retry-after-ms", "90000")]), Some(90_000));
}

#[test]
fn a_negative_pushback_forbids_retries() {
    assert!(read(&[("grpc-retry-pushback-ms", "-1")]).forbids_retry);
    assert!(!read(&[("grpc-retry-pushback-ms", "1")]).forbids_retry);
}

#[test]
fn answers_of_a_cache_say_nothing() {
    let fields = [("age", "3"), ("retry-after", "7"), ("x-ratelimit-remaining", "0")];
    assert_eq!(read(&fields), ResponseFields::default());
}

#[test]
fn policies_and_their_state_are_joined_by_name() {
    let fields = read(&[
        ("ratelimit-policy", r#""hourly";q=5;w=3600, "in-flight";q=2;qu="concurrent-requests""#),
        ("ratelimit", r#""hourly";r=4;t=720, "in-flight";r=1"#),
    ]);
    assert_eq!(
        fields.policies,
        [
            PolicyReading {
                name: "hourly".into(),
                unit: PolicyUnit::Requests,
                quota: Some(5),
                window: Some(Nanos::from_secs(3_600)),
                remaining: Some(4),
                reset: Some(Nanos::from_secs(720)),
            },
            PolicyReading {
                name: "in-flight".into(),
                unit: PolicyUnit::Concurrency,
                quota: Some(2),
                window: None,
                remaining: Some(1),
                reset: None,
            },
        ]
    );
}

#[test]
fn earlier_drafts_are_read() {
    let fields = read(&[
        ("ratelimit-policy", "100;w=60"),
        ("ratelimit", "limit=100, remaining=0, reset=30"),
    ]);
    let policy = &fields.policies[0];
    assert_eq!((policy.quota, policy.remaining), (Some(100), Some(0)));
    assert_eq!(
        (policy.window, policy.reset),
        (Some(Nanos::from_secs(60)), Some(Nanos::from_secs(30)))
    );
}

#[test]
fn fields_of_vendors_are_read() {
    let openai = read(&[
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ]);
    assert_eq!(openai.policies.len(), 2);
    assert_eq!(openai.policies[0].reset, Some(Nanos::from_secs(1)));
    assert_eq!(openai.policies[1].unit, PolicyUnit::Other);
    assert_eq!(openai.policies[1].reset, Some(Nanos::from_secs(360)));

    let anthropic = read(&[
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2027-01-15T08:00:20Z"),
    ]);
    assert_eq!(anthropic.policies[0].name, "requests");
    assert_eq!(anthropic.policies[0].reset, Some(Nanos::from_secs(20)));

    let github = read(&[
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1800000900"),
    ]);
    assert_eq!(github.policies[0].reset, Some(Nanos::from_secs(900)));
}

#[test]
fn numbers_at_their_ends_are_read_without_overflow() {
    let fields = read(&[
        ("retry-after", "99999999999999999999"),
        ("x-ratelimit-limit", "18446744073709551616"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "99999999999999999999"),
    ]);
    assert_eq!(fields.wait, Some(Nanos::MAX));
    assert_eq!(fields.policies[0].quota, Some(u64::MAX));
}

#[test]
fn at_most_sixteen_policies_are_read() {
    let many: Vec<String> = (0..40).map(|n| format!("\"p{n}\";q=1;w=1")).collect();
    assert_eq!(read(&[("ratelimit-policy", &many.join(", "))]).policies.len(), POLICIES_MAX);
    assert_eq!(read(&[("ratelimit-policy", &"a,".repeat(5_000))]).policies.len(), 0);
}

proptest! {
    #[test]
    fn no_answer_panics(
        fields in proptest::collection::vec(
            (
                proptest::sample::select(vec![
                    "retry-after", "retry-after-ms", "ratelimit", "ratelimit-policy", "x-ratelimit-limit",
                    "x-ratelimit-remaining", "x-ratelimit-reset", "grpc-retry-pushback-ms", "date", "age",
                    "grpc-status-details-bin", "anthropic-ratelimit-requests-reset",
                ]),
                proptest::collection::vec(0x20_u8..=0xff, 0..60),
            ),
            0..8,
        )
    ) {
        let headers: HeaderMap = fields
            .into_iter()
            .filter_map(|(name, value)| Some((HeaderName::from_static(name), HeaderValue::from_bytes(&value).ok()?)))
            .collect();
        let _ = ResponseFields::read(&headers, NOW);
    }
}
