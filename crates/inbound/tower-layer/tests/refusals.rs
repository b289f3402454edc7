//! What a refused request is answered.

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use support::{by_user, get, hello, layer, send, user_limits};
use tidegate_admission::RequestDescription;
use tidegate_answers::{HeaderSet, HeadersOn, Refusal};
use tidegate_engine::{
    CounterStore, DESCRIPTORS_MAX, Engine, FailureKind, FailureMode, ManualClock, MemoryStore,
    Nanos, Options, Source, StoreError, compile,
};
use tidegate_stores::{Answers, Batch};
use tidegate_tower_layer::RateLimitLayer;
use tower::Layer;

const TWO_A_MINUTE: &str =
    "{name: burst, algorithm: token_bucket, unit: minute, requests_per_unit: 2}";

#[tokio::test]
async fn answers_429_with_exact_fields_and_a_problem_once_the_burst_is_spent() {
    let service = layer(&user_limits(TWO_A_MINUTE)).layer(hello());
    for remaining in ["1", "0"] {
        let answer = send(&service, get("/")).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(remaining));
        assert_eq!(answer.field("retry-after"), None);
    }
    let refused = send(&service, get("/")).await;
    assert_eq!(refused.status, 429);
    let expected = [
        "cache-control: no-store",
        "content-type: application/problem+json",
        "ratelimit-policy: \"burst\";q=2;w=60",
        "ratelimit: \"burst\";r=0;t=30",
        "retry-after: 30",
        "x-ratelimit-limit: 2",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-retry-after: 30",
    ];
    assert_eq!(refused.fields(), expected);
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "code": "rate_limited",
        "detail":
            "The limit \"burst\" allows 2 per 60s. Wait for the time in Retry-After, then try again.",
        "violated-policies": ["burst"],
        "retry-after": 30,
        "violated": [{"name": "burst", "limit": 2, "used": 2, "window": 60, "retry_after": 30}],
    });
    assert_eq!(problem, expected);
}

#[tokio::test]
async fn admits_again_after_the_time_that_it_told() {
    let engine = user_limits(TWO_A_MINUTE);
    let service = layer(&engine).layer(hello());
    let mut request = get("/");
    request.headers_mut().insert("x-cost", "2".parse().unwrap());
    send(&service, request).await;
    let refused = send(&service, get("/")).await;
    let seconds = refused.field("retry-after").unwrap().parse().unwrap();
    engine.clock().advance(Nanos::from_secs(seconds));
    assert_eq!(send(&service, get("/")).await.status, 200);
}

#[tokio::test]
async fn head_is_refused_without_a_body() {
    let service = layer(&user_limits("{unit: day, requests_per_unit: 0}")).layer(hello());
    let full = send(&service, get("/")).await;
    let refused = send(&service, Request::head("/").body(()).unwrap()).await;
    assert_eq!((refused.status, refused.body.as_str()), (429, ""));
    assert_eq!(refused.field("content-type"), Some("application/problem+json"));
    assert_eq!(refused.field("content-length"), Some(full.body.len().to_string().as_str()));
}

fn call(content_type: &str, cost: &str) -> Request<()> {
    let request = Request::post("/echo.Echo/Say");
    request.header("content-type", content_type).header("x-cost", cost).body(()).expect("a call")
}

#[tokio::test]
async fn a_grpc_call_is_refused_with_trailers_only() {
    let service = layer(&user_limits(
        "{name: 50% é, algorithm: token_bucket, per: 1500ms, requests_per_unit: 1}",
    ))
    .headers(HeaderSet::NONE)
    .layer(hello());
    assert_eq!(send(&service, call("application/grpc", "1")).await.field("grpc-status"), None);
    let refused = send(&service, call("application/grpc+proto", "1")).await;
    assert_eq!((refused.status, refused.body.as_str()), (200, ""));
    let expected = [
        "content-type: application/grpc+proto",
        "grpc-message: The limit \"50%25 ?\" allows 1 per 1.5s. Wait for the time in Retry-After, \
         then try again.",
        "grpc-retry-pushback-ms: 1500",
        "grpc-status-details-bin: DETAILS",
        "grpc-status: 8",
        "retry-after: 2",
    ];
    let details = refused.field("grpc-status-details-bin").unwrap();
    let fields: Vec<String> =
        refused.fields().iter().map(|field| field.replace(details, "DETAILS")).collect();
    assert_eq!(fields, expected);
    assert_eq!(retry_info(&refused), 2);

    let never = send(&service, call("application/grpc", "2")).await;
    assert_eq!(never.field("grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(never.field("retry-after"), None);
}

/// The seconds in the `RetryInfo` of a refused call, as a gRPC client reads them.
fn retry_info(refused: &support::Answer) -> u8 {
    let status = tonic::Status::from_header_map(&refused.headers).expect("it is a status");
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    let details = status.details();
    let name = b"google.rpc.RetryInfo";
    assert!(details.windows(name.len()).any(|part| part == name), "{details:?}");
    // The last field is the seconds, a small number.
    *details.last().expect("they are not empty")
}

#[tokio::test]
async fn every_limit_that_refuses_is_listed_with_its_use_the_longest_wait_first() {
    let service = layer(&user_limits(
        "{name: hourly, unit: hour, requests_per_unit: 3}, \
         {name: daily, unit: day, requests_per_unit: 3}, \
         {name: yearly, unit: year, requests_per_unit: 30}",
    ))
    .layer(hello());
    let cost = |cost: &'static str| Request::get("/").header("x-cost", cost).body(()).unwrap();
    assert_eq!(send(&service, cost("2")).await.status, 200);
    let refused = send(&service, cost("2")).await;
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["daily", "hourly"]));
    let figures = |index: usize| {
        let limit = &problem["violated"][index];
        (limit["name"].as_str(), limit["limit"].as_u64(), limit["used"].as_u64())
    };
    assert_eq!(figures(0), (Some("daily"), Some(3), Some(2)));
    assert_eq!(figures(1), (Some("hourly"), Some(3), Some(2)));
    assert_eq!(problem["violated"][1]["window"], 3_600);
    assert_eq!(problem["violated"][0]["retry_after"], problem["retry-after"]);
    assert!(problem["violated"][1]["retry_after"].as_u64() < problem["retry-after"].as_u64());
}

#[tokio::test]
async fn a_limit_chooses_the_status_of_its_refusals() {
    let limit = "{name: shared, unit: day, requests_per_unit: 0, refusal_status: 503}";
    let service = layer(&user_limits(limit)).layer(hello());
    let refused = send(&service, get("/")).await;
    assert_eq!(refused.status, 503);
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!((&problem["status"], &problem["code"]), (&503.into(), &"rate_limited".into()));
    let refused = send(&service, call("application/grpc", "1")).await;
    assert_eq!(refused.field("grpc-status"), Some("14"));
}

#[tokio::test]
async fn browsers_get_a_page() {
    let service = layer(&user_limits("{unit: day, requests_per_unit: 0}")).layer(hello());
    let request = Request::get("/").header("accept", "text/html,*/*;q=0.8").body(()).unwrap();
    let refused = send(&service, request).await;
    assert_eq!(refused.field("content-type"), Some("text/html; charset=utf-8"));
    assert!(refused.body.starts_with("<!doctype html>"), "{}", refused.body);
}

#[tokio::test]
async fn an_own_answer_replaces_ours_and_keeps_its_fields() {
    let service = layer(&user_limits("{name: none, unit: day, requests_per_unit: 0}"))
        .answer_refusals_with(|request: &Parts, refusal: &Refusal| {
            let names: Vec<&str> = refusal.limits.iter().map(|limit| limit.name.as_str()).collect();
            let text = format!("{} {} {names:?}", request.method, request.uri.path());
            let answer = Response::builder().status(509).header("ratelimit", "\"mine\";r=0");
            answer.body(Bytes::from(text)).unwrap()
        })
        .layer(hello());
    let refused = send(&service, get("/a")).await;
    assert_eq!((refused.status, refused.body.as_str()), (509, "GET /a [\"none\"]"));
    assert_eq!(refused.field("ratelimit"), Some("\"mine\";r=0"));
    assert_eq!(refused.field("ratelimit-policy"), Some("\"none\";q=0;w=86400"));
}

/// A layer whose engine gives up on every request, and refuses it.
fn undecided() -> RateLimitLayer<MemoryStore, ManualClock> {
    let engine = Arc::into_inner(user_limits(TWO_A_MINUTE)).expect("there is one reference");
    let engine = Arc::new(engine.with_failure_mode(FailureMode::Refuse));
    RateLimitLayer::new(engine, "elsewhere", |request: &Parts| {
        let described = by_user(request).unwrap_or_default();
        (0..DESCRIPTORS_MAX).fold(described, |all, _| all.descriptor([("user", "7")]))
    })
}

#[tokio::test]
async fn what_could_not_be_decided_is_never_called_over_the_limit() {
    let service = undecided().layer(hello());
    let refused = send(&service, get("/")).await;
    assert_eq!(refused.status, 503);
    let expected =
        ["cache-control: no-store", "content-type: application/problem+json", "retry-after: 1"];
    assert_eq!(refused.fields(), expected);
    assert!(refused.body.contains("could not be checked"), "{}", refused.body);

    let refused = send(&service, call("application/grpc", "1")).await;
    assert_eq!(refused.field("grpc-status"), Some("14"));
}

/// A store that fails each time with this error.
struct Down(StoreError);

impl CounterStore for Down {
    async fn apply(&self, _: &Batch<'_>, _: &mut Answers) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        Err(self.0.clone())
    }

    fn give_back(&self, _: &Batch<'_>) {}
}

/// Every policy with every kind of failure of the store.
#[tokio::test]
async fn a_store_that_fails_is_never_called_over_the_limit() {
    let timeout = StoreError::Timeout { waited: Duration::from_millis(250) };
    let failures = [FailureKind::Refused, FailureKind::Lost, FailureKind::Auth]
        .map(|kind| StoreError::Unavailable { kind, reason: "it is down".to_owned() });
    for error in failures.into_iter().chain([timeout]) {
        for (policy, status) in [("deny", 503), ("allow", 200), ("local", 200)] {
            let text = format!(
                "domain: api\ndescriptors:\n- key: user\n  rate_limit: {{unit: minute, \
                 requests_per_unit: 2, on_store_error: {policy}}}\n"
            );
            let rules = compile(&[Source::new("rules.yaml", text)], &Options::default()).unwrap();
            let clock = ManualClock::at(support::START);
            let engine = Arc::new(Engine::new(Down(error.clone()), clock).with_rules(rules));
            let service = RateLimitLayer::new(engine, "api", by_user).layer(hello());
            for _ in 0..5 {
                let answer = send(&service, get("/")).await;
                assert_eq!(answer.status, status, "{policy}, {error}: {}", answer.body);
            }
        }
    }
}

#[tokio::test]
async fn fields_are_only_on_refusals_when_asked_so() {
    let service = layer(&user_limits("{unit: day, requests_per_unit: 1}"))
        .headers_on(HeadersOn::Refusal)
        .layer(hello());
    assert_eq!(send(&service, get("/")).await.fields(), [""; 0]);
    assert!(send(&service, get("/")).await.field("ratelimit").is_some());
}

#[tokio::test]
async fn a_field_that_the_service_sent_stays() {
    let inner = tower::service_fn(|_request: Request<()>| async {
        let answer = Response::builder().header("x-ratelimit-remaining", "77");
        Ok::<_, std::convert::Infallible>(answer.body(String::new()).unwrap())
    });
    let service = layer(&user_limits(TWO_A_MINUTE)).layer(inner);
    let answer = send(&service, get("/")).await;
    assert_eq!(answer.headers.get_all("x-ratelimit-remaining").iter().count(), 1);
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("77"));
    assert_eq!(answer.field("x-ratelimit-limit"), Some("2"));
}

#[tokio::test]
async fn every_method_of_every_user_counts_on_its_own_key() {
    let service = layer(&user_limits("{unit: day, requests_per_unit: 1}")).layer(hello());
    for user in ["a", "b"] {
        for (method, status) in [(Method::GET, 200), (Method::DELETE, 429)] {
            let request = Request::builder().method(method).uri("/").header("x-user", user);
            assert_eq!(send(&service, request.body(()).unwrap()).await.status, status);
        }
    }
}

#[tokio::test]
async fn a_described_request_need_not_be_wrapped_in_an_option() {
    let layer = RateLimitLayer::new(
        user_limits("{unit: day, requests_per_unit: 0}"),
        "api",
        |_request: &Parts| RequestDescription::new().descriptor([("user", "7")]),
    );
    assert_eq!(send(&layer.layer(hello()), get("/")).await.status, 429);
}

#[tokio::test]
async fn who_would_have_to_wait_for_too_long_is_refused_whatever_the_rule_says() {
    for when_over in ["refuse", "delay", "queue"] {
        let limit = format!(
            "{{algorithm: token_bucket, unit: minute, requests_per_unit: 1, when_over: {when_over}}}"
        );
        let service = layer(&user_limits(&limit)).layer(hello());
        assert_eq!(send(&service, get("/")).await.status, 200);
        let refused = send(&service, get("/")).await;
        assert_eq!((refused.status, refused.field("retry-after")), (429, Some("60")));
    }
}
