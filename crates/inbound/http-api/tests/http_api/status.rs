//! What the door says of the process: health, rules, the document, `/json`.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tidegate_engine::{Options, Source, compile};
use tidegate_http_api::{HttpApiParts, HttpApiSettings, RulesFailure, RulesStatus};

use crate::bench::{Bench, RULES, START, engine, parts, request, settings};
use crate::document::DOCUMENT;

#[tokio::test]
async fn a_process_that_drains_is_alive_and_not_ready() {
    let bench = Bench::new();
    for (path, body) in [
        ("/livez", r#"{"live":true,"reasons":[]}"#),
        ("/readyz", r#"{"ready":true,"reasons":[]}"#),
        ("/healthcheck", "OK"),
    ] {
        let answer = bench.get(path).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, body));
        assert_eq!(answer.field("cache-control"), Some("no-store"));
    }
    bench.health.hold_back("drain", "shutting down");
    assert_eq!(bench.get("/livez").await.status, 200);
    let ready = bench.get("/readyz").await;
    let expected = json!({"ready": false, "reasons": ["drain: shutting down"]});
    assert_eq!((ready.status, ready.json()), (503, expected));
    let upstream = bench.get("/healthcheck").await;
    assert_eq!((upstream.status, upstream.text.as_str()), (500, ""));
    bench.health.break_down("a worker died");
    let live = bench.get("/livez").await;
    let expected = json!({"live": false, "reasons": ["a worker died"]});
    assert_eq!((live.status, live.json()), (503, expected));
    assert_eq!(bench.meter.read().answers, [0; 6], "probes are not counted");
}

#[tokio::test]
async fn a_head_has_the_length_and_no_body() {
    let bench = Bench::new();
    let full = bench.get("/livez").await;
    let head = bench.send(request(Method::HEAD, "/livez", "")).await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    assert_eq!(head.field("content-length"), Some(&*full.text.len().to_string()));
    let lost = bench.send(request(Method::HEAD, "/v1/check", "")).await;
    assert_eq!((lost.status, lost.text.as_str()), (405, ""));
}

#[tokio::test]
async fn the_rules_in_place_are_shown_with_their_text() {
    let bench = Bench::new();
    let rules = bench.get("/v1/rules").await.json();
    assert_eq!(rules["version"], format!("{:016x}", bench.engine.rules_version()));
    assert_eq!(rules["loaded_at_ms"], 1_699_920_000_000_u64);
    assert_eq!(rules["domains"], json!(["api"]));
    assert_eq!(rules["sources"], json!([{"name": "rules.yaml", "text": RULES}]));
    assert_eq!(rules["last_failure"], Value::Null);
}

/// Parts whose rules could not be loaded again.
pub(crate) fn failed_parts() -> HttpApiParts {
    let text = "domain: api\ndescriptors:\n- kye: a\n- {key: b, value: c}\n- {key: b, value: c}\n";
    let report = compile(&[Source::new("new.yaml", text)], &Options::default()).unwrap_err();
    let failure = RulesFailure {
        at: START,
        message: "the new rules have problems".to_owned(),
        report: Some(report),
    };
    let status = RulesStatus {
        loaded_at: Some(START),
        failure: Some(Arc::new(failure)),
        ..Default::default()
    };
    HttpApiParts { rules: Arc::new(move || status.clone()), ..parts(settings()) }
}

#[tokio::test]
async fn rules_that_could_not_be_loaded_are_shown_with_their_problems() {
    let bench = Bench::over(engine(), failed_parts());
    let rules = bench.get("/v1/rules").await.json();
    let failure = &rules["last_failure"];
    assert_eq!(failure["message"], "the new rules have problems");
    assert_eq!(
        (&failure["at_ms"], &failure["omitted"]),
        (&json!(1_699_920_000_000_u64), &json!(0))
    );
    let problem = &failure["problems"][0];
    assert_eq!((&problem["file"], &problem["line"]), (&json!("new.yaml"), &json!(3)));
}

#[tokio::test]
async fn the_document_is_served() {
    let answer = Bench::new().get("/v1/openapi.json").await;
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.json(), *DOCUMENT);
}

/// Parts with an answer for `/json`: the status that the body asks for.
fn json_parts() -> HttpApiParts {
    let json = |body: Bytes| -> std::pin::Pin<Box<dyn Future<Output = _> + Send>> {
        Box::pin(async move {
            let status: u16 = std::str::from_utf8(&body).unwrap().parse().unwrap();
            Response::builder().status(status).body(Full::new(body)).unwrap()
        })
    };
    let settings = HttpApiSettings { body_bytes_max: 10, ..settings() };
    HttpApiParts { json: Some(Arc::new(json)), ..parts(settings) }
}

#[tokio::test]
async fn json_is_handed_on_whatever_the_method_and_counted_by_its_status() {
    let bench = Bench::over(engine(), json_parts());
    for (method, status) in [
        (Method::POST, 200),
        (Method::GET, 429),
        (Method::PUT, 503),
        (Method::DELETE, 400),
        (Method::POST, 500),
    ] {
        let answer = bench.send(request(method, "/json", &status.to_string())).await;
        assert_eq!((answer.status, answer.text), (status, status.to_string()));
    }
    assert_eq!(bench.meter.read().answers, [1, 1, 1, 0, 1, 1]);
    assert_eq!(bench.post_text("/json", "12345678901").await.status, 413);
}
