use http::Request;
use http_body::Body as _;

use super::*;

fn asker(accept: &'static str) -> Asker {
    let request = Request::get("/").header("accept", accept).body(()).unwrap();
    Asker::of(&request.into_parts().0)
}

#[test]
fn each_cause_and_fault_has_a_problem_with_its_code() {
    let answers = AnswerSet::of(&AnswerSettings::default()).unwrap();
    for (place, cause) in Cause::ALL.into_iter().enumerate() {
        let problem: serde_json::Value =
            serde_json::from_slice(&answers.causes[place].json).unwrap();
        assert_eq!(problem["code"], cause.code());
        assert_eq!(problem["status"], cause.status().as_u16());
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.ends_with('.')));
    }
    for (place, fault) in Fault::ALL.iter().enumerate() {
        let problem: serde_json::Value =
            serde_json::from_slice(&answers.faults[place].json).unwrap();
        assert_eq!(problem["code"], fault.code());
        assert!(answers.faults[place].html.starts_with(b"<!doctype html>"));
    }
}

#[test]
fn the_same_refusal_again_shares_its_body() {
    let answers = AnswerSet::of(&AnswerSettings::default()).unwrap();
    let first = answers.refused(Cause::Worker, Retry::After(2), &asker("*/*"));
    let length = answers.causes[Cause::Worker as usize].json.len();
    assert_eq!(first.body().size_hint().exact(), u64::try_from(length).ok());
    assert_eq!(first.status(), 503);
    assert_eq!(first.headers()[RETRY_AFTER], "2");
    let never = answers.refused(Cause::Rate, Retry::Never, &asker("*/*"));
    assert!(!never.headers().contains_key(RETRY_AFTER));
}

#[test]
fn refusing_what_we_are_too_busy_for_allocates_only_what_fields_need() {
    let answers = AnswerSet::of(&AnswerSettings::default()).unwrap();
    let asker = asker("*/*");
    // Small numbers are written when the first is needed.
    drop(answers.refused(Cause::Worker, Retry::After(1), &asker));
    let counted = allocation_counter::measure(|| {
        drop(answers.refused(Cause::Worker, Retry::After(3), &asker));
    });
    // The table of fields: its entries and its index.
    assert!(counted.count_total <= 4, "{counted:?}");
}

#[test]
fn a_template_keeps_braces_that_are_no_words() {
    let settings = AnswerSettings {
        json: Some(r#"{"a":{"b":"{code}{unknown}"}}"#.to_owned()),
        html: Some("{{status}} {".to_owned()),
    };
    let answers = AnswerSet::of(&settings).unwrap();
    let written = &answers.causes[Cause::Fleet as usize];
    assert_eq!(written.json, r#"{"a":{"b":"shed_fleet{unknown}"}}"#);
    assert_eq!(written.html, "{503} {");
}
