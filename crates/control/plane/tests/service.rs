//! The rules service, called without sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use support::{Answer, Plane, RULES};
use tidegate_plane::{CellSettings, OPENAPI};

async fn start() -> Plane {
    Plane::start(CellSettings::default()).await
}

/// Checks an answer against the OpenAPI document.
fn check_answer(method: &str, path: &str, answer: &Answer) {
    let mut document: Value = serde_json::from_str(OPENAPI).unwrap();
    let operation = document["paths"][path][method.to_lowercase()].clone();
    assert!(operation.is_object(), "{method} {path} is not documented");
    let responses = &operation["responses"];
    let response = responses.get(answer.status.to_string()).unwrap_or(&responses["default"]);
    let content = response["content"].as_object().unwrap();
    let (kind, schema) = content.iter().next().unwrap();
    if !kind.contains("json") || schema["schema"].is_null() {
        return;
    }
    let mut schema = schema["schema"].clone();
    schema["components"] = document["components"].take();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&answer.json).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{method} {path} {}: {errors:?}\n{}", answer.status, answer.json);
}

const ROW: &str = "/v1/entries/row/api%2Fclients/acme";
const ENTRY: &str = "/v1/entries/{kind}/{collection}/{name}";

#[tokio::test]
async fn an_entry_is_created_read_changed_and_removed_by_its_etag() {
    let plane = start().await;
    let body = json!({"body": {"terms": "rate=500"}, "why": "contract", "until": "2027-06-01"});
    let blind = plane.call(&plane.admin, "PUT", ROW, &body).await;
    assert_eq!(blind.status, 428, "{}", blind.json);
    let create = [("if-none-match", "*")];
    let made = plane.call_with(&plane.admin, "PUT", ROW, &body, &create).await;
    assert_eq!((made.status, made.etag.as_deref()), (200, Some("\"v1\"")), "{}", made.json);
    assert_eq!(made.json["set_by"], "root");
    assert_eq!(made.json["until"], "2027-06-01T00:00:00Z");
    check_answer("PUT", ENTRY, &made);
    let again = plane.call_with(&plane.admin, "PUT", ROW, &body, &create).await;
    assert_eq!((again.status, again.etag.as_deref()), (200, Some("\"v1\"")), "one change");
    let other = json!({"body": {"terms": "rate=600"}});
    let stale = plane.call_with(&plane.admin, "PUT", ROW, &other, &[("if-match", "\"v9\"")]).await;
    assert_eq!((stale.status, &stale.json["current"]["version"]), (412, &json!(1)));
    check_answer("PUT", ENTRY, &stale);
    let changed =
        plane.call_with(&plane.admin, "PUT", ROW, &other, &[("if-match", "\"v1\"")]).await;
    assert_eq!((changed.status, changed.etag.as_deref()), (200, Some("\"v2\"")));
    let past = plane.call(&plane.admin, "GET", &format!("{ROW}?at=1"), &Value::Null).await;
    assert_eq!(past.json["body"]["terms"], "rate=500");
    let fields = [("if-match", "\"v2\""), ("x-why", "gone")];
    let removed = plane.call_with(&plane.admin, "DELETE", ROW, &Value::Null, &fields).await;
    assert_eq!((removed.status, &removed.json["version"]), (200, &json!(3)));
    check_answer("DELETE", ENTRY, &removed);
    let missing = plane.call(&plane.admin, "GET", ROW, &Value::Null).await;
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn every_answer_is_as_the_document_says() {
    let plane = start().await;
    let changes = json!({"why": "first", "changes": [
        {"kind": "document", "name": "api.yaml", "body": {"text": RULES}},
        {"kind": "row", "collection": "api/clients", "name": "acme", "body": {"terms": "gold"}},
    ]});
    let draft = json!({"why": "more", "changes": [
        {"kind": "row", "collection": "api/clients", "name": "globex", "body": {"terms": "gold"}},
    ]});
    let token =
        json!({"name": "ci", "roles": "read+change", "owner": "team-a", "expires": "2030-01-01"});
    let report = json!({"version": 1, "sequence": 3, "outcome": "new"});
    let none = Value::Null;
    for (method, pattern, path, body, status) in [
        ("GET", "/v1/status", "/v1/status", &none, 200),
        ("POST", "/v1/changes", "/v1/changes", &changes, 200),
        ("GET", "/v1/entries/{kind}", "/v1/entries/row?limit=1", &none, 200),
        ("GET", "/v1/entries/{kind}", "/v1/entries/cat", &none, 404),
        ("GET", "/v1/versions", "/v1/versions", &none, 200),
        ("GET", "/v1/versions/{version}", "/v1/versions/1", &none, 200),
        ("GET", "/v1/versions/{version}", "/v1/versions/7", &none, 404),
        ("GET", "/v1/diff", "/v1/diff?from=0&to=1", &none, 200),
        ("GET", "/v1/diff", "/v1/diff?from=x", &none, 400),
        ("PUT", "/v1/drafts/{draft}", "/v1/drafts/more", &draft, 200),
        ("GET", "/v1/drafts", "/v1/drafts", &none, 200),
        ("GET", "/v1/drafts/{draft}", "/v1/drafts/more", &none, 200),
        ("POST", "/v1/drafts/{draft}/check", "/v1/drafts/more/check", &none, 200),
        ("POST", "/v1/drafts/{draft}/publish", "/v1/drafts/more/publish", &none, 200),
        ("DELETE", "/v1/drafts/{draft}", "/v1/drafts/more", &none, 200),
        (
            "POST",
            "/v1/versions/{version}/restore",
            "/v1/versions/1/restore",
            &json!({"why": "w"}),
            200,
        ),
        ("POST", "/v1/tokens", "/v1/tokens", &token, 201),
        ("POST", "/v1/tokens", "/v1/tokens", &token, 409),
        ("GET", "/v1/tokens", "/v1/tokens", &none, 200),
        ("DELETE", "/v1/tokens/{token}", "/v1/tokens/ci", &none, 200),
        ("POST", "/v1/nodes/{node}/report", "/v1/nodes/n1/report", &report, 202),
        ("GET", "/v1/nodes", "/v1/nodes", &none, 200),
        ("GET", "/v1/audit", "/v1/audit?after=1&limit=5", &none, 200),
        ("GET", "/v1/audit/verify", "/v1/audit/verify", &none, 200),
        ("GET", "/v1/publisher", "/v1/publisher", &none, 200),
        (
            "POST",
            "/v1/publisher/allow",
            "/v1/publisher/allow",
            &json!({"guards": ["shrunk"], "why": "w"}),
            200,
        ),
        (
            "POST",
            "/v1/publisher/allow",
            "/v1/publisher/allow",
            &json!({"guards": ["invalid"], "why": "w"}),
            422,
        ),
        ("POST", "/v1/publisher/epoch", "/v1/publisher/epoch", &json!({"why": "restored"}), 200),
        ("GET", "/v1/snapshot/{ring}", "/v1/snapshot/all", &none, 404),
    ] {
        if pattern == "/v1/nodes" {
            plane.service.tick().await.unwrap();
        }
        let answer = plane.call(&plane.admin, method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.json);
        check_answer(method, pattern, &answer);
    }
    for path in ["/livez", "/readyz", "/openapi.json", "/metrics"] {
        assert_eq!(plane.call(&plane.admin, "GET", path, &none).await.status, 200, "{path}");
    }
    assert_eq!(plane.call(&plane.admin, "GET", "/v2", &none).await.status, 404);
    assert_eq!(plane.call(&plane.admin, "PUT", "/v1/status", &none).await.status, 405);
}

#[tokio::test]
async fn a_rejected_set_names_every_fault_and_changes_nothing() {
    let plane = start().await;
    let wrong = json!({"changes": [
        {"kind": "row", "collection": "api/clients", "name": "a", "body": {"terms": "gold"}, "until": "soon"},
        {"kind": "cat", "name": "a"},
        {"kind": "row", "collection": "clients", "name": "b", "body": {"terms": "gold"}},
        {"kind": "row", "collection": "api/clients", "name": "c"},
    ]});
    let answer = plane.call(&plane.admin, "POST", "/v1/changes", &wrong).await;
    assert_eq!(answer.status, 422);
    let places: Vec<&str> = answer.json["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["place"].as_str().unwrap())
        .collect();
    assert_eq!(
        places,
        ["changes[0].until", "changes[1].kind", "changes[2].collection", "changes[3]"]
    );
    let rules = json!({"changes": [
        {"kind": "document", "name": "api.yaml", "body": {"text": RULES.replace("unit: second", "unit: eon")}},
    ]});
    let answer = plane.call(&plane.admin, "POST", "/v1/changes", &rules).await;
    assert_eq!((answer.status, &answer.json["problems"][0]["line"]), (422, &json!(4)));
    check_answer("POST", "/v1/changes", &answer);
    let unknown = json!({"changes": [], "colour": 1});
    assert_eq!(plane.call(&plane.admin, "POST", "/v1/changes", &unknown).await.status, 400);
    assert_eq!(plane.database.version().await.unwrap(), 0);
    let refused = plane.database.audit(0, 100).await.unwrap();
    assert_eq!(refused.iter().filter(|row| row.action == "refused").count(), 3);
}

#[tokio::test]
async fn roles_and_owners_bound_what_a_token_may_do() {
    let plane = start().await;
    let viewer = plane.token("viewer", "read", "").await;
    let team = plane.token("team", "read+change", "team-a").await;
    let node = plane.token("node", "node", "").await;
    let set = |kind: &str, collection: &str, name: &str, body: Value| json!({"why": "w", "changes": [{"kind": kind, "collection": collection, "name": name, "body": body}]});
    let row = set("row", "api/clients", "acme", json!({"terms": "gold"}));
    let switch = set("switch", "", "all", json!({"target": "all", "mode": "off"}));
    let post = async |token: &str, body: &Value| {
        plane.call(token, "POST", "/v1/changes", body).await.status
    };
    assert_eq!(post("tgc_nobody-knows-this-token", &row).await, 401);
    assert_eq!(post(&viewer, &row).await, 403);
    assert_eq!(post(&team, &switch).await, 403, "a switch needs the role operate");
    assert_eq!(post(&team, &row).await, 200);
    assert_eq!(post(&plane.admin, &switch).await, 200);
    let other = plane.token("other", "change", "team-b").await;
    assert_eq!(post(&other, &set("row", "api/clients", "acme", json!({"terms": "x"}))).await, 403);
    for (token, path, status) in [
        (&viewer, "/v1/entries/row", 200),
        (&node, "/v1/entries/row", 403),
        (&viewer, "/v1/tokens", 403),
        (&viewer, "/v1/snapshot/all", 403),
        (&node, "/v1/snapshot/all", 404),
    ] {
        assert_eq!(plane.call(token, "GET", path, &Value::Null).await.status, status, "{path}");
    }
    let revoked = plane.call(&plane.admin, "DELETE", "/v1/tokens/viewer", &Value::Null).await;
    assert_eq!(revoked.status, 200);
    assert_eq!(plane.call(&viewer, "GET", "/v1/status", &Value::Null).await.status, 401);
}

#[tokio::test]
async fn where_approvals_are_needed_somebody_else_approves() {
    let plane = Plane::start(CellSettings { approvals: 1, ..CellSettings::default() }).await;
    let author = plane.token("author", "read+change+approve", "").await;
    let reviewer = plane.token("reviewer", "read+approve", "").await;
    let set = json!({"why": "w", "changes": [
        {"kind": "row", "collection": "api/clients", "name": "acme", "body": {"terms": "gold"}},
    ]});
    assert_eq!(plane.call(&author, "POST", "/v1/changes", &set).await.status, 403);
    assert_eq!(plane.call(&author, "PUT", "/v1/drafts/d", &set).await.status, 200);
    let publish =
        async || plane.call(&author, "POST", "/v1/drafts/d/publish", &Value::Null).await.status;
    assert_eq!(publish().await, 403);
    let approve = json!({"text": "fine", "approve": true});
    let own = plane.call(&author, "POST", "/v1/drafts/d/review", &approve).await;
    assert_eq!(own.status, 403, "{}", own.json);
    let reviewed = plane.call(&reviewer, "POST", "/v1/drafts/d/review", &approve).await;
    assert_eq!((reviewed.status, &reviewed.json["state"]), (200, &json!("approved")));
    assert_eq!(publish().await, 200);
    assert_eq!(publish().await, 409, "once");
    // A key that leaked is revoked without a draft.
    let key = format!("/v1/entries/key/-/{}", "ab".repeat(32));
    let body = json!({"body": {"owner": "acme", "plan": "gold"}});
    let made = plane.call_with(&author, "PUT", &key, &body, &[("if-none-match", "*")]).await;
    assert_eq!(made.status, 200, "{}", made.json);
}

#[tokio::test]
async fn a_draft_whose_entries_were_changed_meanwhile_is_stale() {
    let plane = start().await;
    let set = |terms: &str| {
        json!({"why": "w", "changes": [
            {"kind": "row", "collection": "api/clients", "name": "acme", "body": {"terms": terms}},
        ]})
    };
    assert_eq!(plane.call(&plane.admin, "PUT", "/v1/drafts/d", &set("a")).await.status, 200);
    assert_eq!(plane.call(&plane.admin, "POST", "/v1/changes", &set("b")).await.status, 200);
    let answer = plane.call(&plane.admin, "POST", "/v1/drafts/d/publish", &Value::Null).await;
    assert_eq!((answer.status, &answer.json["current"]["version"]), (412, &json!(1)));
}
