use proptest::prelude::*;
use tidegate_engine::{FixedWindow, Unit, Window};

use super::*;

const BATCH_MAX: usize = 3;

fn problem_of(body: &str) -> String {
    check_body(body.as_bytes(), BATCH_MAX).unwrap_err().to_string()
}

#[test]
fn a_request_is_read_without_copying_its_texts() {
    let body = br#"{"domain":"api","descriptors":[
        {"entries":[{"key":"user","value":"7"},{"value":"GET","key":"method"}]},
        {"entries":[{"key":"a\n","value":""}],"cost":5,
         "limit":{"requests_per_unit":3,"unit":"week"}}],"cost":2}"#;
    let CheckBody::One(request) = check_body(body, BATCH_MAX).unwrap() else { panic!("a batch") };
    assert!(matches!(request.domain, Cow::Borrowed("api")));
    let entries = request.entries();
    let descriptors = request.engine_descriptors(&entries);
    let request = request.engine_request(&descriptors);
    let limit = Limit::new(FixedWindow::new(3, Window::Every(Unit::Week.period())));
    let entry = |key, value| Entry { key, value };
    let (one, two) = ([entry("user", "7"), entry("method", "GET")], [entry("a\n", "")]);
    let expected = Request {
        domain: "api",
        descriptors: &[
            Descriptor::new(&one),
            Descriptor { cost: Some(5), limit: Some(&limit), ..Descriptor::new(&two) },
        ],
        cost: 2,
    };
    assert_eq!(format!("{request:?}"), format!("{expected:?}"));
}

#[test]
fn what_may_be_left_out_may_be_null() {
    let body = br#"{"domain":"d","cost":null,"descriptors":[
        {"cost":null,"limit":null,"entries":[{"key":"a","value":"b"}]}]}"#;
    let request = one_request(body).unwrap();
    assert_eq!(request.cost, 1);
    let Object(descriptor) = &request.descriptors.0[0];
    assert!(descriptor.limit.is_none() && descriptor.cost.is_none());
}

#[test]
fn a_batch_has_up_to_its_maximum_of_requests() {
    let request = r#"{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"b"}]}]}"#;
    let batch = |count| format!("{{\"requests\":[{}]}}", vec![request; count].join(","));
    let body = batch(3);
    let read = check_body(body.as_bytes(), BATCH_MAX).unwrap();
    assert!(matches!(read, CheckBody::Batch(List(all)) if all.len() == 3));
    let problem = problem_of(&batch(4));
    assert_eq!(problem, "`requests` has 4 requests; the maximum is 3 (send several batches)");
    let problem = one_request(body.as_bytes()).unwrap_err().to_string();
    assert!(problem.starts_with("this route takes one request"), "{problem}");
}

#[test]
fn every_error_has_its_location() {
    let with = |descriptor: &str| format!("{{\"domain\":\"d\",\"descriptors\":[{descriptor}]}}");
    let limit = |limit: &str| {
        with(&format!("{{\"entries\":[{{\"key\":\"a\",\"value\":\"b\"}}],\"limit\":{limit}}}"))
    };
    let whole = "a whole number from 0 to 18446744073709551615";
    for (body, expected) in [
        (
            "  \n".to_owned(),
            "the body is empty (send an object with `domain` and `descriptors`, or one with \
             `requests`)"
                .to_owned(),
        ),
        ("{".to_owned(), "the JSON ends too early: EOF while parsing an object at 1:1".to_owned()),
        ("{]".to_owned(), "the body is no JSON: key must be a string at 1:2".to_owned()),
        (
            "[1]".to_owned(),
            "invalid type: sequence, expected an object with `domain` and `descriptors`, or one \
             with `requests` at 1:1"
                .to_owned(),
        ),
        (
            "{\"domain\":\"d\",\n \"descriptor\":[]}".to_owned(),
            "there is no field `descriptor`; did you mean `descriptors`? at 2:13 in descriptor"
                .to_owned(),
        ),
        (
            "{\"colour\":1}".to_owned(),
            "there is no field `colour`; there are: domain, descriptors, cost, requests at 1:9 \
             in colour"
                .to_owned(),
        ),
        ("{\"domain\":\"d\"}".to_owned(), "missing field `descriptors` at 1:14".to_owned()),
        (
            "{\"domain\":\"d\",\"domain\":\"e\"}".to_owned(),
            "duplicate field `domain` at 1:22".to_owned(),
        ),
        (
            "{\"domain\":7}".to_owned(),
            "invalid type: integer `7`, expected a string at 1:11 in domain".to_owned(),
        ),
        (
            "{\"domain\":\"\",\"descriptors\":[]}".to_owned(),
            "`domain` is empty at 1:12 in domain".to_owned(),
        ),
        (
            with(""),
            "`descriptors` is empty: there is nothing to limit by at 1:31 in descriptors"
                .to_owned(),
        ),
        (
            with("{\"entries\":[]}"),
            "`entries` is empty: such a descriptor matches no rule at 1:43 in \
             descriptors[0].entries"
                .to_owned(),
        ),
        (
            with("{\"entries\":[{\"key\":\"a\"}]}"),
            "missing field `value` at 1:52 in descriptors[0].entries[0]".to_owned(),
        ),
        (
            with("{\"entries\":[[\"a\",\"b\"]]}"),
            "invalid type: sequence, expected an entry: an object with `key` and `value` at 1:41 \
             in descriptors[0].entries[0]"
                .to_owned(),
        ),
        (
            with("{\"cost\":-1}"),
            format!("invalid value: integer `-1`, expected {whole} at 1:39 in descriptors[0].cost"),
        ),
        (
            with("{\"cost\":1.5}"),
            format!(
                "invalid type: floating point `1.5`, expected {whole} at 1:40 in \
                 descriptors[0].cost"
            ),
        ),
        (
            limit("{\"requests_per_unit\":1,\"unit\":\"fortnight\"}"),
            "there is no unit `fortnight`; there are: second, minute, hour, day, week, month, \
             year at 1:116 in descriptors[0].limit"
                .to_owned(),
        ),
        (
            limit("{\"requests_per_unit\":1,\"per_ms\":0}"),
            "a period must be between 1ms and 366 days, not 0ns at 1:108 in descriptors[0].limit"
                .to_owned(),
        ),
        (
            limit("{\"requests_per_unit\":1,\"per_ms\":1000,\"unit\":\"day\"}"),
            "a limit has either `unit` or `per_ms` at 1:124 in descriptors[0].limit".to_owned(),
        ),
        (
            format!(
                "{{\"requests\":[{}],\"cost\":1}}",
                with("{\"entries\":[{\"key\":\"a\",\"value\":\"b\"}]}")
            ),
            "`requests` stands alone: each request of a batch has its own `domain`, `descriptors` \
             and `cost` at 1:92"
                .to_owned(),
        ),
        ("{\"requests\":[]}".to_owned(), "`requests` is empty at 1:15 in requests".to_owned()),
        (
            "{\"requests\":[{\"domain\":1}]}".to_owned(),
            "invalid type: integer `1`, expected a string at 1:24 in requests[0].domain".to_owned(),
        ),
    ] {
        assert_eq!(problem_of(&body), expected, "{body}");
    }
}

#[test]
fn more_descriptors_than_a_request_may_have_are_refused() {
    let descriptor = "{\"entries\":[{\"key\":\"a\",\"value\":\"b\"}]}";
    let all = vec![descriptor; DESCRIPTORS_MAX + 1].join(",");
    let problem = problem_of(&format!("{{\"domain\":\"d\",\"descriptors\":[{all}]}}"));
    assert!(problem.starts_with("a request may have 1000 descriptors, not 1001"), "{problem}");
}

#[test]
fn deep_nesting_ends_at_the_first_thing_that_is_not_known() {
    let deep = "[".repeat(100_000);
    for body in [deep.clone(), format!("{{\"domain\":{deep}"), format!("{{\"x\":{deep}")] {
        let problem = problem_of(&body);
        assert!(problem.len() < 300, "{problem}");
    }
    let deep = "{\"requests\":[".repeat(10_000);
    assert!(problem_of(&deep).contains("there is no field `requests`"));
}

#[test]
fn what_is_long_is_not_repeated_in_full() {
    assert!(problem_of(&format!("{{\"cost\":\"{}\"}}", "x".repeat(10_000))).len() < 500);
    assert!(problem_of(&format!("{{\"{}\":1}}", "x".repeat(10_000))).len() < 500);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body: Vec<u8>) {
        prop_assert!(check_body(&body, BATCH_MAX).is_err());
    }

    #[test]
    fn a_body_with_a_changed_byte_never_panics(at in 0_usize..120, byte: u8) {
        let mut body = br#"{"domain":"a\u00e9","descriptors":[{"entries":[{"key":"k","value":"v"}],"cost":1,"limit":{"requests_per_unit":1,"per_ms":9}}]}"#.to_vec();
        if let Some(changed) = body.get_mut(at) {
            *changed = byte;
        }
        if let Err(problem) = check_body(&body, BATCH_MAX) {
            prop_assert!(!problem.to_string().is_empty());
        }
    }

    #[test]
    fn every_text_is_read_as_it_was_written(domain in "\\PC+", key: String, value: String) {
        let body = serde_json::json!({
            "domain": domain, "descriptors": [{"entries": [{"key": key, "value": value}]}],
        });
        let body = body.to_string();
        let request = one_request(body.as_bytes()).unwrap();
        prop_assert_eq!(&request.domain, &domain);
        prop_assert_eq!(request.entries()[0], Entry { key: &key, value: &value });
    }
}
