//! What is said in place of an upstream, and in which form.

use http::Request;
use tidegate_gateway::AnswerSettings;

use crate::bench::{Bench, by_user, to};
use crate::upstream::{Nobody, Upstream};

const NONE: &str = "- key: user\n  limits: [{name: \"<a> & \\\"b\\\"\", algorithm: token_bucket, \
                    unit: hour, requests_per_unit: 1, burst: 1}]";

async fn spent(settings: AnswerSettings) -> (Bench, Upstream) {
    let upstream = Upstream::start().await;
    let mut all = by_user(to(&[upstream.url()]));
    all.routes[0].answers = settings;
    let bench = Bench::limited(all, NONE);
    bench.get_as("7").await;
    (bench, upstream)
}

#[tokio::test]
async fn browsers_get_a_page_and_others_a_problem() {
    let (bench, _upstream) = spent(AnswerSettings::default()).await;
    let asking = |accept: &str| Request::get("/").header("x-user", "7").header("accept", accept);
    let page = bench.send(asking("text/html,application/xhtml+xml,*/*;q=0.8")).await;
    assert_eq!(
        (page.status.as_u16(), page.header("content-type")),
        (429, "text/html; charset=utf-8")
    );
    assert!(page.body.contains("&lt;a&gt; &amp; &quot;b&quot;"), "{}", page.body);
    let problem = bench.send(asking("application/json, text/html")).await;
    assert_eq!(problem.header("content-type"), "application/problem+json");
    assert_eq!(problem.json()["violated-policies"][0], "<a> & \"b\"");
    let first = bench.get_as("7").await.body;
    assert_eq!(first, bench.get_as("7").await.body);
}

#[tokio::test]
async fn a_head_is_answered_without_a_body() {
    let (bench, _upstream) = spent(AnswerSettings::default()).await;
    let whole = bench.get_as("7").await;
    let request = || Request::head("/").header("x-user", "7");
    for mut client in [bench.one().await, bench.two().await] {
        let told = client.send(request(), "").await;
        assert_eq!((told.status.as_u16(), told.body.as_str()), (429, ""));
        assert_eq!(told.header("content-length"), whole.body.len().to_string());
    }
}

#[tokio::test]
async fn templates_are_filled_with_the_words_of_the_answer() {
    let (bench, _upstream) = spent(AnswerSettings {
        json: Some(r#"{"error":{"code":"{code}","quota":"{quota}","is":{status}}}"#.into()),
        html: Some("<p>{title}: {quota}".into()),
        refusal_status: None,
    })
    .await;
    let told = bench.get_as("7").await;
    assert_eq!(told.header("content-type"), "application/json");
    let error = &told.json()["error"];
    assert_eq!((error["code"].as_str(), error["is"].as_u64()), (Some("rate_limited"), Some(429)));
    assert_eq!(error["quota"], "<a> & \"b\"");
    let page = Request::get("/").header("x-user", "7").header("accept", "text/html");
    let page = bench.send(page).await;
    assert_eq!(page.body, "<p>Quota Exceeded: &lt;a&gt; &amp; &quot;b&quot;");
}

#[tokio::test]
async fn grpc_calls_are_told_in_grpc_with_a_time_to_retry() {
    let (bench, _upstream) = spent(AnswerSettings::default()).await;
    let mut client = bench.two().await;
    let call = Request::post("/pkg.Service/Call")
        .header("x-user", "7")
        .header("content-type", "application/grpc+proto");
    let told = client.send(call, "").await;
    assert_eq!((told.status.as_u16(), told.body.as_str()), (200, ""));
    assert_eq!(told.header("content-type"), "application/grpc+proto");
    assert_eq!(told.header("grpc-status"), "8");
    assert_eq!(told.header("grpc-retry-pushback-ms"), "3600000");
    assert!(told.header("grpc-message").contains("Wait for the time"));
    let status = tonic::Status::from_header_map(&told.headers).unwrap();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    let details = details(status.details());
    assert_eq!(details, (8, "type.googleapis.com/google.rpc.RetryInfo".into(), 3_600));
}

/// The code, the type of the one detail, and its seconds.
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
async fn an_upstream_that_cannot_be_reached_is_told_as_a_problem() {
    let nobody = Nobody::new();
    let bench = Bench::open(to(&[nobody.url()]));
    let told = bench.get("/").await;
    assert_eq!(
        (told.status.as_u16(), told.json()["code"].as_str()),
        (502, Some("upstream_unreachable"))
    );
    assert_eq!(told.header("content-type"), "application/problem+json");
    let call = Request::post("/").header("content-type", "application/grpc");
    let told = bench.two().await.send(call, "").await;
    assert_eq!((told.status.as_u16(), told.header("grpc-status")), (200, "14"));
    assert_eq!(bench.count("upstream_unreachable"), 2);
}

#[tokio::test]
async fn new_rules_change_what_is_told() {
    let (bench, _upstream) = spent(AnswerSettings::default()).await;
    assert!(bench.get_as("7").await.body.contains("allows 1 per"));
    let text = format!("domain: gateway\ndescriptors:\n{}\n", NONE.replace("unit: 1,", "unit: 2,"));
    let source = tidegate_engine::Source::new("rules.yaml", text);
    let rules = tidegate_engine::compile(&[source], &Default::default()).unwrap();
    bench.engine.install(rules);
    let told = bench.get_as("7").await;
    assert!(told.body.contains("allows 2 per"), "{}", told.body);
}
