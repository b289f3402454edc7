//! What a page shows beside its own server: nodes of the fleet, the control plane, a forwarder.

use std::pin::Pin;

use serde_json::json;
use tidegate_admin::{ControlReading, DebugParts, DebugSettings, ForwardedReading};

use super::data::{RULES, local, second};
use super::support::Stage;

#[tokio::test]
async fn the_fleet_is_this_node_alone_or_all_that_describe_themselves() {
    let settings = || DebugSettings { node_name: "n".repeat(9_000), ..local() };
    let alone = Stage::new(RULES, DebugParts { settings: settings(), ..DebugParts::default() });
    second(&alone);
    let page = alone.get("/api/fleet").await.json();
    assert_eq!(page["nodes"].as_array().unwrap().len(), 1, "{page}");
    assert!(alone.door.node_state().len() <= 1_024, "{}", alone.door.node_state().len());
    assert_eq!(page["rules_version"], alone.get("/api/state").await.json()["rules"]["version"]);

    let own = alone.door.node_state();
    let nodes =
        vec![own, "{\"name\": \"<b>\", \"rates\": {\"admitted\": 4}}".to_owned(), "x".to_owned()];
    let reader = move || -> Pin<Box<dyn Future<Output = _> + Send>> {
        let nodes = nodes.clone();
        Box::pin(async move { Ok(nodes) })
    };
    let parts =
        DebugParts { nodes: Some(Box::new(reader)), settings: local(), ..DebugParts::default() };
    let page = Stage::new(RULES, parts).get("/api/fleet").await.json();
    assert_eq!(page["nodes"].as_array().unwrap().len(), 2, "{page}");
    assert_eq!(page["rates"]["admitted"], 4.0);

    let away = || -> Pin<Box<dyn Future<Output = _> + Send>> {
        Box::pin(async { Err("no answer".to_owned()) })
    };
    let parts =
        DebugParts { nodes: Some(Box::new(away)), settings: local(), ..DebugParts::default() };
    let page = Stage::new(RULES, parts).get("/api/fleet").await.json();
    assert_eq!(
        (page["problem"].as_str(), page["nodes"].as_array().unwrap().len()),
        (Some("no answer"), 1)
    );
}

#[tokio::test]
async fn control_plane_and_forwarder_are_in_the_state_where_there_are_some() {
    let control = || ControlReading { version: "42".to_owned(), age_s: 7, problem: None };
    let mail = || ForwardedReading {
        name: "mail".to_owned(),
        mode: "running".to_owned(),
        waiting: 3,
        ..ForwardedReading::default()
    };
    let parts = DebugParts {
        control: Some(Box::new(control)),
        forwarder: Some(Box::new(move || vec![mail()])),
        ..DebugParts::default()
    };
    let state = Stage::new(RULES, parts).get("/api/state").await.json();
    assert_eq!(
        (&state["control"]["version"], &state["control"]["age_s"]),
        (&json!("42"), &json!(7))
    );
    assert_eq!(
        (&state["forwarder"][0]["name"], &state["forwarder"][0]["waiting"]),
        (&json!("mail"), &json!(3))
    );
    let without = Stage::new(RULES, DebugParts::default()).get("/api/state").await.json();
    assert_eq!((&without["control"], &without["forwarder"]), (&json!(null), &json!(null)));
}
