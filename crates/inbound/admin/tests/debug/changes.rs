//! The record of changes: undo, ends of switches, what earlier processes left.

use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tidegate_admin::{DebugDoor, DebugParts};
use tidegate_engine::Nanos;

use super::data::{RULES, local, second, stage};
use super::support::{START, Stage, bare_engine, protected};

#[tokio::test]
async fn undo_of_a_switch_restores_the_end_of_the_switch_before() {
    let stage = &stage();
    let put = |body: Value| async move {
        let path = body["path"].as_str().map_or("/switches/limiter", |_| "/switches/limit");
        let path = if body["off"].is_boolean() { "/switches/kill" } else { path };
        let answer = stage.send(Method::PUT, path, &[], &body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let undo_newest = || async {
        let page = stage.get("/api/changes").await.json();
        let undo = page["changes"][0]["undo"].clone();
        let method: Method = undo["method"].as_str().unwrap().parse().unwrap();
        let body = undo["body"].to_string();
        let answer = stage.send(method, undo["path"].as_str().unwrap(), &[], &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let user = json!({"domain": "api", "path": "user"});
    let with = |extra: Value| {
        let mut body = user.clone();
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    put(json!({"limiter": "rate", "mode": "shadow", "for_seconds": 3600})).await;
    put(json!({"limiter": "rate", "mode": "off", "for_seconds": 60})).await;
    undo_newest().await;
    put(json!({"off": true, "for_seconds": 3600})).await;
    put(json!({"off": false})).await;
    undo_newest().await;
    put(with(json!({"mode": "shadow", "for_seconds": 3600}))).await;
    put(with(json!({"mode": "off"}))).await;
    undo_newest().await;
    let switches = stage.get("/switches").await.json();
    assert_eq!(switches["ends_in"], json!({"off": 3600, "rate": 3600}));
    assert_eq!(switches["limiters"]["rate"], "shadow");
    assert_eq!(switches["limits"][0]["ends_in"], 3600);
    let both = json!({"off": true, "for_seconds": 1, "until_ms": 1}).to_string();
    assert_eq!(stage.send(Method::PUT, "/switches/kill", &[], &both).await.status, 400);
}

#[tokio::test]
async fn a_change_can_be_undone_until_another_one_of_the_same_replaces_it() {
    let stage = stage();
    let switch = |limiter: &str, mode: &str| json!({"limiter": limiter, "mode": mode}).to_string();
    for (limiter, mode) in [("rate", "shadow"), ("concurrency", "off"), ("rate", "off")] {
        stage.send(Method::PUT, "/switches/limiter", &[], &switch(limiter, mode)).await;
    }
    let page = stage.get("/api/changes").await.json();
    let changes = page["changes"].as_array().unwrap();
    let undone: Vec<bool> = changes.iter().map(|change| change["undo"].is_object()).collect();
    assert_eq!(undone, [true, true, false]);
}

#[tokio::test]
async fn a_switch_that_ends_by_itself_is_a_change_too() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let engine = bare_engine();
    let (_, board) = protected(&engine);
    let parts = DebugParts {
        settings: local(),
        switchboard: Some(Arc::clone(&board)),
        on_audit: Some(Box::new(move |line: &str| kept.lock().push(line.to_owned()))),
        ..DebugParts::default()
    };
    let stage = Stage { door: DebugDoor::new(Arc::clone(&engine), parts), engine };
    let body = json!({"limiter": "gate", "mode": "off", "for_seconds": 60, "reason": "=1+1"});
    stage.send(Method::PUT, "/switches/limiter", &[], &body.to_string()).await;
    board.expire(START.after(Nanos::from_secs(60)));
    second(&stage);
    let page = stage.get("/api/changes").await.json();
    let ended = &page["changes"][0];
    assert_eq!(
        (&ended["kind"], &ended["by"], &ended["undo"]),
        (&json!("limiter_back"), &json!(null), &json!(null))
    );
    assert!(ended["what"].as_str().unwrap().contains("time of its switch was over"), "{ended}");
    assert!(!page["changes"][1]["undo"].is_object(), "it has ended");

    // The next process reads the lines, and goes on with the numbers.
    let next = Stage::new(RULES, DebugParts { settings: local(), ..DebugParts::default() });
    assert_eq!(next.door.restore_changes(&lines.lock().join("\n")), 0);
    let kill = json!({"off": true}).to_string();
    next.send(Method::PUT, "/switches/kill", &[], &kill).await;
    let page = next.get("/api/changes").await.json();
    let ids: Vec<_> = page["changes"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [3, 2, 1]);
    assert_eq!(page["changes"][2]["before_start"], true);
    assert!(page["changes"][0].get("before_start").is_none());
    let csv = next.get("/api/changes?format=csv").await.body;
    assert!(csv.contains("'=1+1"), "{csv}");
}
