//! The stream of events.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use tidegate_access::AccessPolicy;
use tidegate_admin::{DebugBody, DebugParts, DebugSettings};

use super::support::Stage;

fn stage() -> Stage {
    let settings = DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() };
    let rules = "- {key: user, rate_limit: {unit: day, requests_per_unit: 1}}";
    Stage::new(rules, DebugParts { settings, ..DebugParts::default() })
}

/// Opens a stream.
async fn open(stage: &Stage, kinds: &str) -> http::Response<DebugBody> {
    let request = Request::get(format!("/api/events?kinds={kinds}")).body(Full::<Bytes>::default());
    let Ok(answer) = stage.door.call(request.unwrap()).await;
    answer
}

async fn frame(body: &mut DebugBody) -> String {
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    String::from_utf8(frame.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_sends_the_state_every_second() {
    let stage = stage();
    let answer = open(&stage, "state").await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut body = answer.into_body();
    let began = tokio::time::Instant::now();
    for _ in 0..3 {
        stage.door.record();
        let text = frame(&mut body).await;
        assert!(text.starts_with("event: state\ndata: {") && text.ends_with("\n\n"), "{text}");
        assert!(text.len() <= 4 * 1024, "{} bytes", text.len());
    }
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn refusals_and_changes_arrive_with_the_next_frame() {
    let stage = stage();
    let mut body = open(&stage, "verdicts,changes").await.into_body();
    assert!(stage.check("user", "7") && !stage.check("user", "7"));
    stage.send(Method::PUT, "/switches/kill", &[], r#"{"off": true, "reason": "x"}"#).await;
    let text = frame(&mut body).await;
    assert!(text.contains("event: change\nid: 1\ndata: {") && text.contains(r#""reason":"x""#));
    assert!(text.contains("event: verdict\ndata: {") && text.contains(r#""answer":"refused""#));
    assert_eq!(text.matches("event: verdict").count(), 1, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_returns_gets_the_changes_that_it_missed() {
    let stage = stage();
    for off in [true, false, true] {
        let body = format!(r#"{{"off": {off}}}"#);
        stage.send(Method::PUT, "/switches/kill", &[], &body).await;
    }
    let request = Request::get("/api/events?kinds=changes").header("last-event-id", "1");
    let Ok(answer) = stage.door.call(request.body(Full::<Bytes>::default()).unwrap()).await;
    let text = frame(&mut answer.into_body()).await;
    assert!(!text.contains("id: 1\n") && text.contains("id: 2\n") && text.contains("id: 3\n"));
}

#[tokio::test(start_paused = true)]
async fn there_is_a_maximum_of_streams_and_a_closed_one_makes_room() {
    let stage = stage();
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(open(&stage, "state,verdicts").await);
    }
    for _ in 0..84 {
        assert_eq!(open(&stage, "state").await.status(), 503);
    }
    streams.pop();
    assert_eq!(open(&stage, "state").await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_reading_gets_the_newest_state_and_nothing_in_between() {
    let stage = stage();
    let mut body = open(&stage, "state,verdicts").await.into_body();
    frame(&mut body).await;
    for _ in 0..60 {
        stage.door.record();
        for _ in 0..1_000 {
            stage.check("user", "7");
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let text = frame(&mut body).await;
    assert_eq!(text.matches("event: state").count(), 1);
    assert!(text.matches("event: verdict").count() <= 100, "{text}");
    assert!(text.len() <= 64 * 1024, "{} bytes", text.len());
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_sends_a_comment_now_and_then() {
    let stage = stage();
    let mut body = open(&stage, "changes").await.into_body();
    assert_eq!(frame(&mut body).await, ": nothing new\n\n");
}

#[tokio::test]
async fn an_unknown_kind_is_rejected() {
    let stage = stage();
    let answer = open(&stage, "state,everything").await;
    assert_eq!(answer.status(), 400);
}
