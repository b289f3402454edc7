//! The HTTP API, called without sockets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use serde_json::{Value, json};
use tidegate_access::{AccessPolicy, AccessToken, AccessTokens};
use tidegate_delivery::AttemptOutcome;
use tidegate_forwarder::{ForwardApi, ForwardApiSettings, Forwarder, LaneMode, TypeSettings};
use tidegate_queue::QueueSettings;

use crate::bench::{Arrival, Bench, answering, delivering, operations, orders};

const OPERATOR: &str = "an-operator-with-a-long-token";
const ACME: &str = "the-token-of-the-tenant-acme";

struct ApiBench {
    api: ForwardApi,
    document: ApiDocument,
    bench: Bench,
    forwarder: Arc<Forwarder>,
}

async fn serve(bench: impl Future<Output = Bench>) -> ApiBench {
    let bench = bench.await;
    let forwarder = Arc::clone(&bench.forwarder);
    let token = |name: &str, text: &str| AccessToken::of_secret(name, text).unwrap();
    let tokens = AccessTokens::new([token("operator", OPERATOR), token("acme", ACME)]);
    let settings = ForwardApiSettings {
        access: AccessPolicy { tokens, changes_without_token: false },
        tenants: HashMap::from([("acme".to_owned(), "acme".to_owned())]),
        ..ForwardApiSettings::default()
    };
    let api = ForwardApi::new(Arc::clone(&forwarder), settings);
    let document = ApiDocument::read(&api).await;
    ApiBench { api, document, bench, forwarder }
}

/// The OpenAPI document that the API serves.
struct ApiDocument(Value);

impl ApiDocument {
    async fn read(api: &ForwardApi) -> Self {
        let request = Request::get("/v1/openapi.json").body(Full::<Bytes>::default()).unwrap();
        let answer = api.call(request).await.unwrap();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        ApiDocument(serde_json::from_slice(&bytes).unwrap())
    }

    /// Fails if the document does not have this answer to this request.
    #[track_caller]
    fn check(&self, method: &str, path: &str, status: u16, view: &Value) {
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        let fits = |template: &str| {
            let (wanted, parts) = (template.split('/'), path.split('/'));
            wanted.clone().count() == parts.clone().count()
                && wanted.zip(parts).all(|(wanted, part)| wanted.starts_with('{') || wanted == part)
        };
        let paths = self.0["paths"].as_object().unwrap();
        // A path without parameters goes first, as in the table of routes.
        let found = paths.iter().filter(|(template, _)| fits(template));
        let found = found.min_by_key(|(template, _)| template.matches('{').count());
        let Some((template, methods)) = found else { return assert_eq!(status, 404, "{path}") };
        let operation = &methods[method.to_lowercase()];
        if operation.is_null() {
            return assert_eq!(status, 405, "{method} {path}");
        }
        let answer = &operation["responses"][status.to_string()];
        assert!(answer.is_object(), "{method} {template} has no {status}: {view}");
        let content = answer["content"].as_object().unwrap();
        let Some((_, media)) = content.iter().find(|(media, _)| media.ends_with("json")) else {
            return;
        };
        let mut schema = media["schema"].clone();
        schema["components"] = self.0["components"].clone();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        if let Err(error) = validator.validate(view) {
            panic!("{method} {template} {status}: {error}: {view}");
        }
    }
}

impl ApiBench {
    async fn call(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value, Option<String>) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"))
            .body(Full::<Bytes>::from(body.to_owned()))
            .unwrap();
        let answer = self.api.call(request).await.unwrap();
        let retry =
            answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let view = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        self.document.check(method, path, status, &view);
        (status, view, retry)
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_answered_with_ids_and_a_forecast_and_its_job_is_followed() {
    let bench = serve(Bench::start(&operations(100), orders(), delivering())).await;
    let lines = "{\"body\": \"one\", \"cost\": 1}\n\n{\"body\": {\"two\": 2}, \"dedup\": \"d\"}\n{\"body\": \"three\", \"dedup\": \"d\"}\n";
    let (status, view, _) = bench.call(OPERATOR, "POST", "/v1/records?job=import", lines).await;
    assert_eq!((status, &view["accepted"], &view["duplicates"]), (202, &json!(2), &json!(1)));
    assert_eq!(view["ids"].as_array().unwrap().len(), 3);
    assert!(view["forecast"]["summary"].is_string(), "{view}");
    bench.bench.drain(Duration::from_secs(30)).await;
    let (status, job, _) = bench.call(OPERATOR, "GET", "/v1/jobs/import", "").await;
    assert_eq!((status, &job["delivered"], &job["finished"]), (200, &json!(2), &json!(true)));
    let (status, _, _) = bench.call(OPERATOR, "GET", "/v1/jobs/import/events", "").await;
    assert_eq!(status, 200);
}

#[tokio::test(start_paused = true)]
async fn tenants_do_not_see_each_other_and_do_not_steer() {
    let bench = serve(Bench::start(&operations(100), orders(), delivering())).await;
    let line = "{\"body\": \"one\", \"tenant\": \"rival\"}\n";
    let (status, _, _) = bench.call(ACME, "POST", "/v1/records?job=mine", line).await;
    assert_eq!(status, 202);
    // The token decides the tenant, not the record.
    assert_eq!(bench.call(ACME, "GET", "/v1/jobs/mine", "").await.0, 200);
    let (status, _, _) = bench.call(OPERATOR, "POST", "/v1/records?job=theirs", line).await;
    assert_eq!(status, 202);
    assert_eq!(bench.call(ACME, "GET", "/v1/jobs/theirs", "").await.0, 404);
    assert_eq!(bench.call(OPERATOR, "GET", "/v1/jobs/theirs", "").await.0, 200);
    for (method, path) in
        [("GET", "/v1/types"), ("GET", "/v1/types/orders/dead"), ("POST", "/v1/types/orders/pause")]
    {
        assert_eq!(bench.call(ACME, method, path, "").await.0, 403, "{path}");
    }
    assert_eq!(bench.call("a-token-that-nobody-knows", "GET", "/v1/types", "").await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_answers_with_the_time_until_there_is_room() {
    let small = QueueSettings { records_max: 100, ..QueueSettings::default() };
    let settings = TypeSettings { queue: small, ..orders() };
    let bench = serve(Bench::start(&operations(10), settings, delivering())).await;
    let lines = "{\"body\": \"x\"}\n".repeat(100);
    assert_eq!(bench.call(OPERATOR, "POST", "/v1/records", &lines).await.0, 202);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (status, problem, retry) = bench.call(OPERATOR, "POST", "/v1/records", &lines).await;
    assert_eq!(status, 429, "{problem}");
    let seconds: u64 = retry.unwrap().parse().unwrap();
    // About 95 records have to leave at 9.8 a second.
    assert!((8..=12).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_shown_redriven_and_purged_after_a_dry_run() {
    let answer = |arrival: &Arrival| match arrival.at < Duration::from_secs(60) {
        true => AttemptOutcome::Rejected { detail: "status 422".to_owned() },
        false => AttemptOutcome::Delivered,
    };
    let bench = serve(Bench::start(&operations(100), orders(), answering(answer))).await;
    let lines = "{\"body\": \"a\", \"headers\": {\"Authorization\": \"secret\", \"X-Kind\": \"k\"}}\n{\"body\": \"b\"}\n";
    let (_, view, _) = bench.call(OPERATOR, "POST", "/v1/records", lines).await;
    assert_eq!(view["dropped_fields"], json!(["Authorization"]));
    bench.bench.drain(Duration::from_secs(30)).await;
    let (_, list, _) = bench.call(OPERATOR, "GET", "/v1/types/orders/dead", "").await;
    assert_eq!(list["dead_letters"].as_array().unwrap().len(), 2);
    let id = list["dead_letters"][0]["id"].as_str().unwrap().to_owned();
    let (_, shown, _) =
        bench.call(OPERATOR, "GET", &format!("/v1/types/orders/dead/{id}"), "").await;
    assert_eq!((&shown["body"], &shown["detail"]), (&json!("a"), &json!("status 422")));
    let (_, dry, _) = bench.call(OPERATOR, "POST", "/v1/types/orders/dead/redrive", "{}").await;
    assert_eq!(dry, json!({"dry_run": true, "would_change": 2}));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let one = json!({"ids": [id], "dry_run": false, "rate": 10}).to_string();
    let (status, _, _) = bench.call(OPERATOR, "POST", "/v1/types/orders/dead/redrive", &one).await;
    assert_eq!(status, 202);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let all = json!({"dry_run": false}).to_string();
    let (_, purged, _) = bench.call(OPERATOR, "POST", "/v1/types/orders/dead/purge", &all).await;
    assert_eq!(purged["purged"], json!(1));
    assert_eq!(bench.bench.target.arrivals().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn operators_pause_change_limits_and_see_leases_and_metrics() {
    let bench = serve(Bench::start(&operations(100), orders(), delivering())).await;
    let lines = "{\"body\": \"x\"}\n".repeat(2_000);
    assert_eq!(bench.call(OPERATOR, "POST", "/v1/records", &lines).await.0, 202);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (_, leases, _) = bench.call(OPERATOR, "GET", "/v1/leases", "").await;
    assert_eq!(leases["leases"][0]["slots"], json!(100));
    let lower = json!({"limits": [{"dimension": "operations", "amount": 20, "window_ms": 1000}]});
    let path = "/v1/targets/service/limits";
    assert_eq!(bench.call(OPERATOR, "PUT", path, &lower.to_string()).await.0, 200);
    let wrong = json!({"limits": []}).to_string();
    assert_eq!(bench.call(OPERATOR, "PUT", path, &wrong).await.0, 422);
    tokio::time::sleep(Duration::from_secs(7)).await;
    let before = bench.bench.target.arrivals().len();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let sent = bench.bench.target.arrivals().len() - before;
    assert!((90..=105).contains(&sent), "{sent}");
    assert_eq!(bench.call(OPERATOR, "POST", "/v1/types/orders/pause", "").await.0, 200);
    let (_, types, _) = bench.call(OPERATOR, "GET", "/v1/types", "").await;
    assert_eq!(types["types"][0]["mode"], json!("paused"));
    assert!(bench.forwarder.set_mode("orders", LaneMode::Running));
    assert_eq!(bench.call(OPERATOR, "GET", "/metrics", "").await.0, 200);
    assert_eq!(
        tidegate_metrics::missing(tidegate_forwarder::FORWARDER_METRICS, &*bench.forwarder),
        [""; 0]
    );
    for (method, path, status) in
        [("GET", "/v1/records", 405), ("GET", "/v2", 404), ("POST", "/v1/types/x/pause", 404)]
    {
        assert_eq!(bench.call(OPERATOR, method, path, "").await.0, status, "{path}");
    }
    let (status, problem, _) =
        bench.call(OPERATOR, "POST", "/v1/records", "{\"body\": 1, \"colour\": 2}").await;
    assert_eq!(status, 400);
    assert!(
        problem["detail"].as_str().unwrap().starts_with("line 1: unknown field `colour`"),
        "{problem}"
    );
}

#[tokio::test(start_paused = true)]
async fn targets_are_shown_with_their_limits_and_types() {
    let bench = serve(Bench::start(&operations(100), orders(), delivering())).await;
    let (status, view, _) = bench.call(OPERATOR, "GET", "/v1/targets", "").await;
    assert_eq!(status, 200);
    let limit = json!({"dimension": "operations", "amount": 100, "window_ms": 1000});
    let target = &view["targets"][0];
    assert_eq!((&target["limits"], &target["types"]), (&json!([limit]), &json!(["orders"])));
    assert_eq!(bench.call("", "GET", "/livez", "").await.0, 200);
    assert_eq!(bench.call("", "GET", "/v1/targets", "").await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn without_tokens_pages_of_a_browser_neither_enqueue_nor_read() {
    let bench = Bench::start(&operations(100), orders(), delivering()).await;
    let api = ForwardApi::new(Arc::clone(&bench.forwarder), ForwardApiSettings::default());
    let send = |method: &str, path: &str, name: &'static str, value: &'static str| {
        let body = Full::<Bytes>::from("{\"body\": 1}");
        let request = Request::builder().method(method).uri(path).header(name, value).body(body);
        api.call(request.unwrap())
    };
    let status = |answer: Result<http::Response<_>, std::convert::Infallible>| {
        let answer: http::Response<tidegate_forwarder::ApiBody> = answer.unwrap();
        answer.status().as_u16()
    };
    assert_eq!(status(send("POST", "/v1/records", "host", "localhost:8090").await), 202);
    assert_eq!(status(send("POST", "/v1/records", "origin", "https://evil.example").await), 403);
    assert_eq!(status(send("GET", "/v1/types", "host", "evil.example").await), 421);
    assert_eq!(status(send("GET", "/v1/types", "host", "127.0.0.1:8090").await), 200);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_only_works_accepts_no_records() {
    let bench = Bench::start(&operations(100), orders(), delivering()).await;
    let settings = ForwardApiSettings { accepts_records: false, ..ForwardApiSettings::default() };
    let api = ForwardApi::new(Arc::clone(&bench.forwarder), settings);
    let request = Request::post("/v1/records").body(Full::<Bytes>::from("{\"body\": 1}")).unwrap();
    let answer: http::Response<tidegate_forwarder::ApiBody> = api.call(request).await.unwrap();
    assert_eq!(answer.status(), 403);
}
