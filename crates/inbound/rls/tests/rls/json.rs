//! Upstream's `/json`: what is read, what is answered.

use http_body_util::BodyExt;
use serde_json::json;
use tidegate_engine::{CounterStore, Engine, FailureMode};
use tidegate_rls::{HeaderNames, RlsSettings};

use crate::support::{Door, Down, Later, door, door_of, door_to, door_with, memory, rules};

const RULES: &str = "- {key: user, rate_limit: {unit: minute, requests_per_unit: 3, name: few}}
- {key: plan, value: team, rate_limit: {unlimited: true}}";

/// The status, the content type and the body.
async fn post<S>(door: &Door<S>, body: impl AsRef<[u8]>) -> (u16, String, String)
where
    S: CounterStore,
{
    let answer = door.rls.answer_json(body.as_ref()).await;
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let content_type = parts.headers["content-type"].to_str().unwrap().to_owned();
    (parts.status.as_u16(), content_type, String::from_utf8(body.to_vec()).unwrap())
}

/// A request with one descriptor of user 7 and these members beside its entries.
fn asking(members: &str) -> String {
    format!(
        r#"{{"domain":"api","descriptors":[{{"entries":[{{"key":"user","value":"7"}}]{members}}}]}}"#
    )
}

#[tokio::test]
async fn an_answer_leaves_out_what_is_zero() {
    let door = door(RULES);
    let body = r#"{"domain": "api", "hitsAddend": 3, "descriptors": [
        {"entries": [{"key": "user", "value": "7"}]},
        {"entries": [{"key": "plan", "value": "team"}]},
        {"entries": [{"key": "nobody"}]}
    ]}"#;
    let (status, content_type, answer) = post(&door, body).await;
    assert_eq!((status, content_type.as_str()), (200, "application/json"));
    let golden = concat!(
        r#"{"overallCode":"OK","statuses":["#,
        r#"{"code":"OK","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE","name":"few"},"#,
        r#""durationUntilReset":"60s"},"#,
        r#"{"code":"OK","limitRemaining":4294967295},{"code":"OK"}]}"#,
    );
    assert_eq!(answer, golden);
    let (status, _, answer) = post(&door, body).await;
    assert_eq!(status, 429);
    assert!(answer.starts_with(r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","#));
}

#[tokio::test]
async fn header_fields_and_metadata_are_plain_json() {
    let settings = RlsSettings {
        dynamic_metadata: true,
        response_headers: Some(HeaderNames::default()),
        ..RlsSettings::default()
    };
    let door = door_with(rules(RULES), settings);
    let (_, _, answer) = post(&door, asking("")).await;
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let fields = json!([
        {"key": "RateLimit-Limit", "value": "3"},
        {"key": "RateLimit-Remaining", "value": "2"},
        {"key": "RateLimit-Reset", "value": "60"},
    ]);
    assert_eq!(answer["responseHeadersToAdd"], fields);
    let metadata = json!({"domain": "api", "descriptors": [{"entries": ["user=7"]}]});
    assert_eq!(answer["dynamicMetadata"], metadata);
}

#[tokio::test]
async fn numbers_units_and_names_are_read_in_every_form() {
    let cases = [
        (r#","hitsAddend":2"#, 1),
        (r#","hitsAddend":"2""#, 1),
        (r#","hits_addend":2.0"#, 1),
        (r#","hitsAddend":"0.2e1""#, 1),
        (r#","hitsAddend":null"#, 2),
        (r#","hitsAddend":0"#, 3),
        (r#","isNegativeHits":true,"hitsAddend":1"#, 3),
        (r#","is_negative_hits":false"#, 2),
        (r#","isNegativeHits":null"#, 2),
        (r#","limit":null"#, 2),
        (r#","limit":{"requestsPerUnit":5,"unit":"HOUR"}"#, 4),
        (r#","limit":{"requests_per_unit":"5","unit":3}"#, 4),
        (r#","limit":{"requestsPerUnit":5,"unit":7}"#, 4),
    ];
    for (members, remaining) in cases {
        let (status, _, answer) = post(&door(RULES), asking(members)).await;
        assert_eq!(status, 200, "{members}: {answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let left = answer["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0);
        assert_eq!(left, remaining, "{members}");
    }
}

#[tokio::test]
async fn escaped_text_and_null_values_are_read() {
    let body = r#"{"domain":"\u0061pi","descriptors":[{"entries":[{"key":"us\u0065r","value":null}]}],"hitsAddend":null}"#;
    let (status, _, answer) = post(&door(RULES), body).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains(r#""limitRemaining":2"#), "{answer}");
}

#[tokio::test]
async fn what_cannot_be_read_is_a_bad_request_that_says_why() {
    let cases = [
        (String::new(), "EOF"),
        ("null".to_owned(), "null"),
        ("[]".to_owned(), "must not be empty"),
        ("{".to_owned(), "EOF"),
        ("{} x".to_owned(), "trailing characters"),
        (r#"{"domain":"api","more":1}"#.to_owned(), "unknown field `more`"),
        (r#"{"domain":"api","domain":"b"}"#.to_owned(), "duplicate field"),
        (r#"{"domain":5}"#.to_owned(), "expected a string"),
        (r#"{"descriptors":[]}"#.to_owned(), "rate limit domain must not be empty"),
        (r#"{"domain":"api"}"#.to_owned(), "rate limit descriptor list must not be empty"),
        (r#"{"domain":"api","descriptors":[null]}"#.to_owned(), "null"),
        (r#"{"domain":"api","hitsAddend":4294967296}"#.to_owned(), "too large"),
        (asking(r#","hitsAddend":-1"#), "whole number"),
        (asking(r#","hitsAddend":1.5"#), "`1.5` is not a whole number"),
        (asking(r#","hitsAddend":" 1""#), "not a whole number"),
        (asking(r#","hitsAddend":"18446744073709551616""#), "not a whole number"),
        (asking(r#","isNegativeHits":"true""#), "boolean"),
        (asking(r#","limit":{"unit":"FORTNIGHT"}"#), "`FORTNIGHT` is not a unit"),
        (asking(r#","limit":{"unit":99}"#), "unknown unit 99"),
        (asking(r#","limit":{}"#), "unknown unit 0"),
    ];
    let upstream =
        door_with(rules(RULES), RlsSettings { upstream_errors: true, ..RlsSettings::default() });
    for (body, why) in cases {
        let (status, content_type, answer) = post(&door(RULES), &body).await;
        assert_eq!((status, content_type.as_str()), (400, "text/plain; charset=utf-8"), "{body}");
        assert!(answer.starts_with("Bad Request: ") && answer.contains(why), "{body}: {answer}");
        let (status, _, answer) = post(&upstream, &body).await;
        assert_eq!((status, answer.as_str()), (400, "Bad Request\n"));
    }
}

#[tokio::test]
async fn deep_nesting_is_refused() {
    let settings = RlsSettings { message_bytes_max: 1 << 24, ..RlsSettings::default() };
    let door = door_with(rules(RULES), settings);
    let deep = 10 * 1024 * 1024;
    let cases = [
        "[".repeat(deep),
        "{\"descriptors\":".repeat(deep / 15),
        format!("{{\"descriptors\":{}", "[".repeat(deep)),
        format!("{{\"domain\":{}", "[".repeat(deep)),
        format!("{{\"more\":{}", "[".repeat(deep)),
    ];
    for body in cases {
        assert_eq!(post(&door, body).await.0, 400);
    }
}

#[tokio::test]
async fn bodies_that_are_too_long_are_refused() {
    let body = format!("{}{}", asking(""), " ".repeat(1 << 20));
    let (status, _, answer) = post(&door(RULES), body).await;
    assert_eq!(status, 400);
    assert!(answer.contains("longer than 1048576 bytes"), "{answer}");
}

#[tokio::test]
async fn what_nobody_could_decide_is_not_the_clients_fault() {
    let open = door_to(Down, rules(RULES), RlsSettings::default());
    assert_eq!(post(&open, asking("")).await.0, 200);
    let refusing = |clock| {
        Engine::new(Down, clock).with_rules(rules(RULES)).with_failure_mode(FailureMode::Refuse)
    };
    let closed = door_of(refusing, RlsSettings::default());
    assert_eq!(post(&closed, asking("")).await.0, 503);
    let settings = RlsSettings { upstream_errors: true, ..RlsSettings::default() };
    let upstream = door_to(Down, rules(RULES), settings);
    assert_eq!(post(&upstream, asking("")).await.0, 400);
}

#[tokio::test]
async fn a_store_that_takes_its_time_is_waited_for() {
    let door = door_to(Later(memory()), rules(RULES), RlsSettings::default());
    assert_eq!(post(&door, asking("")).await.0, 200);
}
