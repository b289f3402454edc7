//! Answers in every format, and what rendering allocates.

use http::Request;
use tidegate_engine::Nanos;
use tidegate_overload::Cause as OverloadCause;

use super::*;

fn client(accept: &'static str) -> Negotiation {
    let request = Request::get("/").header("accept", accept).body(()).unwrap();
    Negotiation::of(&request.into_parts().0)
}

fn shed(seconds: u64) -> Refusal {
    Refusal::of_overload(
        &tidegate_overload::Refusal {
            cause: OverloadCause::ShedWorker,
            category: Category::Get,
            retry_after: Nanos::from_secs(seconds),
            fleet_saturated: true,
        },
        true,
    )
}

#[test]
fn each_cause_has_a_problem_with_its_code() {
    let renderer = Renderer::default();
    for cause in Cause::ALL {
        let problem: serde_json::Value =
            serde_json::from_slice(&renderer.causes[cause.index()].json).unwrap();
        assert_eq!(problem["code"], cause.code());
        assert_eq!(problem["status"], cause.status(None).as_u16());
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.ends_with('.')));
        assert!(renderer.causes[cause.index()].html.starts_with(b"<!doctype html>"));
    }
}

#[test]
fn the_same_refusal_again_shares_its_body() {
    let renderer = Renderer::default();
    let first = renderer.render(shed(2), &client("*/*"));
    let shared = &renderer.causes[shed(2).cause.index()].json;
    assert_eq!(first.body().as_ptr(), shared.as_ptr());
    assert_eq!(first.status(), 503);
    assert_eq!(first.headers()[RETRY_AFTER], "2");
    assert_eq!(first.headers()[SHED], "get");
    assert_eq!(first.headers()[SATURATED], "fleet");
}

#[test]
fn a_refusal_without_a_limit_says_when_to_retry() {
    let renderer = Renderer::default();
    let undecided = || Refusal { cause: Cause::Undecided, shed: None, ..shed(1) };
    let refused = renderer.render(undecided(), &client("*/*"));
    let problem: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
    assert_eq!((&problem["code"], &problem["retry-after"]), (&"undecided".into(), &1.into()));
    let never = Refusal { retry: Retry::Never, ..undecided() };
    let never = renderer.render(never, &client("*/*"));
    assert!(!never.headers().contains_key(RETRY_AFTER));
}

#[test]
fn a_refusal_under_overload_allocates_only_its_header_map() {
    let renderer = Renderer::default();
    let client = client("*/*");
    // The values of small numbers are made at the first use.
    drop(renderer.render(shed(1), &client));
    let counted = allocation_counter::measure(|| {
        drop(renderer.render(shed(3), &client));
    });
    // The entries of the map and its index.
    assert!(counted.count_total <= 2, "{counted:?}");
}

#[test]
fn a_template_keeps_braces_that_enclose_no_known_word() {
    let templates =
        Templates { json: Some(r#"{"a":{"b":"{code}{unknown}"}}"#), html: Some("{{status}} {") };
    let renderer = Renderer::new(templates, None).unwrap();
    let fleet = &renderer.causes[Cause::Overload(OverloadCause::ShedFleet).index()];
    assert_eq!(fleet.json, r#"{"a":{"b":"shed_fleet{unknown}"}}"#);
    assert_eq!(fleet.html, "{503} {");
}
