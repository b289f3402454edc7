//! Answers of the gateway itself, and their format.

use http::Request;
use tidegate_gateway::AnswerSettings;

use crate::harness::{Harness, by_user, to};
use crate::upstream::{ClosedPort, Upstream};

const NONE: &str = "- key: user\n  limits: [{name: \"<a> & \\\"b\\\"\", algorithm: token_bucket, \
                    unit: hour, requests_per_unit: 1, burst: 1}]";

async fn spent(settings: AnswerSettings) -> (Harness, Upstream) {
    let upstream = Upstream::start().await;
    let mut all = by_user(to(&[upstream.url()]));
    all.routes[0].answers = settings;
    let harness = Harness::limited(all, NONE);
    harness.get_as("7").await;
    (harness, upstream)
}

#[tokio::test]
async fn browsers_get_a_page_and_others_a_problem() {
    let (harness, _upstream) = spent(AnswerSettings::default()).await;
    let asking = |accept: &str| Request::get("/").header("x-user", "7").header("accept", accept);
    let page = harness.send(asking("text/html,application/xhtml+xml,*/*;q=0.8")).await;
    assert_eq!(
        (page.status.as_u16(), page.header("content-type")),
        (429, "text/html; charset=utf-8")
    );
    assert!(page.body.contains("&lt;a&gt; &amp; &quot;b&quot;"), "{}", page.body);
    let problem = harness.send(asking("application/json, text/html")).await;
    assert_eq!(problem.header("content-type"), "application/problem+json");
    assert_eq!(problem.json()["violated-policies"][0], "<a> & \"b\"");
    let first = harness.get_as("7").await.body;
    assert_eq!(first, harness.get_as("7").await.body);
}

#[tokio::test]
async fn a_head_request_is_answered_without_a_body() {
    let (harness, _upstream) = spent(AnswerSettings::default()).await;
    let whole = harness.get_as("7").await;
    let request = || Request::head("/").header("x-user", "7");
    for mut client in [harness.one().await, harness.two().await] {
        let reply = client.send(request(), "").await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (429, ""));
        assert_eq!(reply.header("content-length"), whole.body.len().to_string());
    }
}

#[tokio::test]
async fn templates_are_filled_with_the_values_of_the_answer() {
    let (harness, _upstream) = spent(AnswerSettings {
        json: Some(r#"{"error":{"code":"{code}","quota":"{quota}","is":{status}}}"#.into()),
        html: Some("<p>{title}: {quota}".into()),
        refusal_status: None,
    })
    .await;
    let reply = harness.get_as("7").await;
    assert_eq!(reply.header("content-type"), "application/json");
    let error = &reply.json()["error"];
    assert_eq!((error["code"].as_str(), error["is"].as_u64()), (Some("rate_limited"), Some(429)));
    assert_eq!(error["quota"], "<a> & \"b\"");
    let page = Request::get("/").header("x-user", "7").header("accept", "text/html");
    let page = harness.send(page).await;
    assert_eq!(page.body, "<p>Quota Exceeded: &lt;a&gt; &amp; &quot;b&quot;");
}

#[tokio::test]
async fn grpc_calls_are_refused_in_grpc_with_a_time_to_retry() {
    let (harness, _upstream) = spent(AnswerSettings::default()).await;
    let mut client = harness.two().await;
    let call = Request::post("/pkg.Service/Call")
        .header("x-user", "7")
        .header("content-type", "application/grpc+proto");
    let reply = client.send(call, "").await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, ""));
    assert_eq!(reply.header("content-type"), "application/grpc+proto");
    assert_eq!(reply.header("grpc-status"), "8");
    assert_eq!(reply.header("grpc-retry-pushback-ms"), "3600000");
    assert!(reply.header("grpc-message").contains("Wait for the time"));
    let status = tonic::Status::from_header_map(&reply.headers).unwrap();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    let details = details(status.details());
    assert_eq!(details, (8, "type.googleapis.com/google.rpc.RetryInfo".into(), 3_600));
}

/// The code, the type of the detail, and its seconds.
fn details(bytes: &[u8]) -> (i32, String, i64) {
    #[derive(prost::Message)]
    struct Status {
        #[prost(int32, tag = "1")]
        code: i32,
        #[prost(string, tag = "2")]
        message: String,
        #[prost(message, repeated, tag = "3")]
        details: Vec<prost_types::Any>,
    }
    #[derive(prost::Message)]
    struct RetryInfo {
        #[prost(message, optional, tag = "1")]
        retry_delay: Option<prost_types::Duration>,
    }
    use prost::Message as _;
    let status = Status::decode(bytes).unwrap();
    assert!(!status.message.is_empty());
    let detail = &status.details[0];
    let info = RetryInfo::decode(detail.value.as_slice()).unwrap();
    (status.code, detail.type_url.clone(), info.retry_delay.unwrap().seconds)
}

#[tokio::test]
async fn an_unreachable_upstream_is_reported_as_a_problem() {
    let closed = ClosedPort::new();
    let harness = Harness::open(to(&[closed.url()]));
    let reply = harness.get("/").await;
    assert_eq!(
        (reply.status.as_u16(), reply.json()["code"].as_str()),
        (502, Some("upstream_unreachable"))
    );
    assert_eq!(reply.header("content-type"), "application/problem+json");
    let call = Request::post("/").header("content-type", "application/grpc");
    let reply = harness.two().await.send(call, "").await;
    assert_eq!((reply.status.as_u16(), reply.header("grpc-status")), (200, "14"));
    assert_eq!(harness.count("upstream_unreachable"), 2);
}

#[tokio::test]
async fn new_rules_change_the_answers() {
    let (harness, _upstream) = spent(AnswerSettings::default()).await;
    assert!(harness.get_as("7").await.body.contains("allows 1 per"));
    let text = format!("domain: gateway\ndescriptors:\n{}\n", NONE.replace("unit: 1,", "unit: 2,"));
    let source = tidegate_engine::Source::new("rules.yaml", text);
    let rules = tidegate_engine::compile(&[source], &Default::default()).unwrap();
    harness.engine.install(rules);
    let reply = harness.get_as("7").await;
    assert!(reply.body.contains("allows 2 per"), "{}", reply.body);
}
