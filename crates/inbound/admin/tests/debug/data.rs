//! The data pages: state, series, limits, callers, changes, try.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tidegate_access::{AccessPolicy, AccessToken, AccessTokens};
use tidegate_admin::{
    DebugParts, DebugSettings, Observations, ObservationsConfig, TriedHead, TriedRoute,
};
use tidegate_engine::Nanos;
use tidegate_metrics::{AnswerKind, Meter};
use tidegate_overload::Category;

use super::support::Stage;

pub(crate) const RULES: &str = "
- key: user
  limits:
  - {name: daily, unit: day, requests_per_unit: 2}
- key: address
  limits:
  - {name: trial, unit: hour, requests_per_unit: 1, mode: shadow}
- key: quiet
  rate_limit: {unit: day, requests_per_unit: 9}
";

pub(crate) fn local() -> DebugSettings {
    DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() }
}

pub(crate) fn stage() -> Stage {
    Stage::new(RULES, DebugParts { settings: local(), ..DebugParts::default() })
}

/// Takes a reading, and a second passes.
pub(crate) fn second(stage: &Stage) {
    stage.door.record();
    stage.engine.clock().advance(Nanos::from_secs(1));
}

async fn limits(stage: &Stage, query: &str) -> Vec<Value> {
    let page = stage.get(&format!("/api/limits?{query}")).await.json();
    page["limits"].as_array().unwrap().clone()
}

fn names(limits: &[Value]) -> Vec<&str> {
    limits.iter().map(|limit| limit["rule"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_state_is_one_small_object() {
    let meter = Arc::new(Meter::new("http"));
    let parts = DebugParts { meters: vec![Arc::clone(&meter)], ..DebugParts::default() };
    let stage = Stage::new(RULES, parts);
    second(&stage);
    for _ in 0..7 {
        meter.count(AnswerKind::Admitted, std::time::Duration::from_micros(20));
    }
    second(&stage);
    let answer = stage.get("/api/state").await;
    assert!(answer.body.len() <= 4 * 1024, "{} bytes", answer.body.len());
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    let state = answer.json();
    assert_eq!(state["rates"]["admitted"], json!(7.0));
    assert_eq!(state["rates"]["latency_p99_us"], json!(25.0));
    assert_eq!((&state["rules"]["limits"], &state["overload"]), (&json!(3), &Value::Null));
    assert_eq!(
        state["limiters"][0],
        json!({
            "name": "rate", "mode": "enforce", "configured": "enforce", "ends_in_s": null
        })
    );
}

#[tokio::test]
async fn series_are_columns_of_equal_length() {
    let stage = stage();
    for _ in 0..5 {
        stage.check("address", "1");
        second(&stage);
    }
    let page = stage.get("/api/series?names=shadow,admitted,nonsense&step=1").await.json();
    assert_eq!(page["names"], json!(["shadow", "admitted"]));
    assert_eq!(page["times"].as_array().unwrap().len(), 5);
    assert_eq!(page["values"][0], json!([null, 1.0, 1.0, 1.0, 1.0]));
    for wrong in ["since=x", "step=-1", "name=a", "step=1&step=2"] {
        assert_eq!(stage.get(&format!("/api/series?{wrong}")).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn limits_are_sorted_by_the_share_that_they_refuse_and_found_by_name() {
    let stage = stage();
    stage.door.record();
    for _ in 0..8 {
        stage.check("user", "7");
    }
    for caller in ["a", "b", "b"] {
        stage.check("address", caller);
    }
    second(&stage);
    second(&stage);
    let all = limits(&stage, "").await;
    assert_eq!(names(&all), ["user", "address", "quiet"]);
    assert_eq!(
        all[0]["last_hour"],
        json!({
            "admitted": 2, "soft": 0, "near": 1, "refused": 6, "shadow": 0
        })
    );
    assert_eq!((&all[1]["mode"], &all[1]["last_hour"]["shadow"]), (&json!("shadow"), &json!(1)));
    assert_eq!(all[0]["spark"].as_array().unwrap().len(), 30);
    assert_eq!(names(&limits(&stage, "sort=name").await), ["address", "quiet", "user"]);
    assert_eq!(names(&limits(&stage, "find=DAI").await), ["user"]);
    assert_eq!(names(&limits(&stage, "after=2").await), ["quiet"]);
    assert_eq!(stage.get("/api/limits?sort=colour").await.status, 400);
}

#[tokio::test]
async fn a_limit_has_its_history_and_its_callers_and_says_when_it_is_gone() {
    let stage = stage();
    stage.door.record();
    for _ in 0..5 {
        stage.check("user", "7");
    }
    second(&stage);
    second(&stage);
    let id = limits(&stage, "").await[0]["id"].as_str().unwrap().to_owned();
    let page = stage.get(&format!("/api/limits/{id}")).await.json();
    assert_eq!(page["history"]["days"][0]["refused"], json!(3));
    assert_eq!(page["history"]["refused"].as_array().unwrap().last(), Some(&json!(3)));
    assert_eq!(page["callers"][0]["caller"], json!(r#"user="7""#));
    for gone in ["0000000000000000", "nonsense"] {
        let answer = stage.get(&format!("/api/limits/{gone}")).await;
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains("the rules may have changed"), "{}", answer.body);
    }
}

#[tokio::test]
async fn callers_come_with_what_they_have_left_and_looking_charges_nothing() {
    let stage = stage();
    for _ in 0..4 {
        stage.check("user", "7");
    }
    for _ in 0..3 {
        let page = stage.get("/api/callers").await.json();
        let caller = &page["callers"][0];
        assert_eq!((&caller["refusals"], &caller["remaining"]), (&json!(2), &json!(0)));
        assert_eq!((&caller["quota"], &caller["entries"]), (&json!(2), &json!([["user", "7"]])));
    }
    assert_eq!(stage.get("/api/callers?find=nothing").await.json()["callers"], json!([]));
}

#[tokio::test]
async fn hashed_callers_show_no_value_on_any_page() {
    let hash = |caller: &str| Some(format!("#{}", caller.len()));
    let parts = DebugParts {
        settings: local(),
        show_caller: Some(Box::new(hash)),
        ..DebugParts::default()
    };
    let stage = Stage::new(RULES, parts);
    stage.door.record();
    for _ in 0..4 {
        stage.check("user", "secret-name");
    }
    second(&stage);
    second(&stage);
    let id = limits(&stage, "").await[0]["id"].as_str().unwrap().to_owned();
    let one = format!("/api/limits/{id}");
    let pages = ["/top", "/top?format=json", "/api/callers", "/api/callers?format=csv", &one];
    for path in pages {
        let body = stage.get(path).await.body;
        assert!(!body.contains("secret-name"), "{path}: {body}");
        assert!(body.contains("#18"), "{path}: {body}");
    }
}

#[tokio::test]
async fn hostile_values_are_escaped_in_json_and_in_tables() {
    let stage = stage();
    let long = "x".repeat(1 << 20);
    for value in ["=1+2\"", "<script>alert(1)</script>", "\u{202e}abc\0", long.as_str()] {
        for _ in 0..3 {
            stage.check("user", value);
        }
    }
    let page = stage.get("/api/callers").await.json();
    let callers: Vec<&str> =
        page["callers"].as_array().unwrap().iter().map(|c| c["caller"].as_str().unwrap()).collect();
    assert!(callers.contains(&r#"user="\u{202e}abc\0""#), "{callers:?}");
    assert!(callers.iter().all(|caller| caller.len() < 300));
    let answer = stage.get("/api/callers?format=csv").await;
    assert_eq!(answer.field("content-type"), Some("text/csv; charset=utf-8"));
    assert!(answer.field("content-disposition").unwrap().contains("callers.csv"));
    let formula = |line: &&str| line.starts_with(['=', '+', '-', '@']) || line.starts_with("\"=");
    assert_eq!(answer.body.lines().find(formula), None);
}

#[tokio::test]
async fn the_most_refused_are_counted_by_the_hour_and_the_last_hour_is_kept() {
    let stage = stage();
    let refusals = |page: Value| page["callers"][0]["refusals"].as_u64();
    second(&stage);
    for _ in 0..4 {
        stage.check("user", "7");
    }
    stage.engine.clock().advance(Nanos::from_secs(3_600));
    second(&stage);
    stage.check("user", "7");
    assert_eq!(refusals(stage.get("/api/callers").await.json()), Some(3));
    stage.engine.clock().advance(Nanos::from_secs(3_600));
    second(&stage);
    assert_eq!(refusals(stage.get("/api/callers").await.json()), Some(1));
    stage.engine.clock().advance(Nanos::from_secs(3_600));
    second(&stage);
    assert_eq!(stage.get("/api/callers").await.json()["callers"], json!([]));
}

#[tokio::test]
async fn a_change_is_recorded_with_its_reason_and_its_end_and_can_be_undone() {
    let tokens = AccessTokens::new([AccessToken::of_secret("ops", "a-secret-for-tests").unwrap()]);
    let access = AccessPolicy { tokens, changes_without_token: false };
    let settings = DebugSettings { access, ..DebugSettings::default() };
    let stage = Stage::new(RULES, DebugParts { settings, ..DebugParts::default() });
    let token = [("authorization", "Bearer a-secret-for-tests")];
    let body = r#"{"domain": "api", "path": "user", "limit": "daily", "mode": "shadow",
        "for_seconds": 60, "reason": " incident 12 "}"#;
    let put = stage.send(Method::PUT, "/switches/limit", &token, body).await;
    assert_eq!(put.status, 200, "{put:?}");
    let page = stage.send(Method::GET, "/api/changes", &token, "").await.json();
    let change = &page["changes"][0];
    assert_eq!((&change["by"], &change["reason"]), (&json!("ops"), &json!("incident 12")));
    assert_eq!((&change["before"], &change["after"]), (&json!("enforce"), &json!("shadow")));
    assert_eq!(change["until_ms"], json!(change["at_ms"].as_u64().unwrap() + 60_000));
    let switches = stage.send(Method::GET, "/switches", &token, "").await.json();
    assert_eq!(switches["limits"][0]["ends_in"], json!(60));

    let undo = &change["undo"];
    let method: Method = undo["method"].as_str().unwrap().parse().unwrap();
    let path = undo["path"].as_str().unwrap().to_owned();
    let undone = stage.send(method, &path, &token, &undo["body"].to_string()).await;
    assert_eq!(undone.status, 200, "{undone:?}");
    let switches = stage.send(Method::GET, "/switches", &token, "").await.json();
    assert_eq!(switches["limits"], json!([]));
    let csv = stage.send(Method::GET, "/api/changes?format=csv", &token, "").await.body;
    assert_eq!(csv.lines().count(), 3, "{csv}");
}

#[tokio::test]
async fn undo_restores_the_switch_before_and_not_only_the_file() {
    let stage = stage();
    let switch = |mode: &str| json!({"limiter": "rate", "mode": mode}).to_string();
    let undo = || async {
        let page = stage.get("/api/changes").await.json();
        page["changes"][0]["undo"].clone()
    };
    stage.send(Method::PUT, "/switches/limiter", &[], &switch("shadow")).await;
    assert_eq!(undo().await["method"], json!("DELETE"));
    stage.send(Method::PUT, "/switches/limiter", &[], &switch("enforce 10%")).await;
    assert_eq!(undo().await["body"], json!({"limiter": "rate", "mode": "shadow"}));
    let long = json!({"limiter": "rate", "mode": "off", "reason": "x".repeat(501)}).to_string();
    assert_eq!(stage.send(Method::PUT, "/switches/limiter", &[], &long).await.status, 400);
}

async fn try_it(stage: &Stage, body: Value) -> Value {
    let answer = stage.send(Method::POST, "/api/try", &[], &body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[tokio::test]
async fn descriptors_are_tried_without_being_charged() {
    let stage = stage();
    let user = json!({"domain": "api", "descriptors": [[{"key": "user", "value": "7"}]]});
    for _ in 0..5 {
        let page = try_it(&stage, user.clone()).await;
        assert_eq!((&page["passes"], &page["refused_by"]), (&json!(true), &Value::Null));
        assert_eq!(page["descriptors"][0]["limits"][0]["remaining"], json!(2));
    }
    assert!(stage.check("user", "7") && stage.check("user", "7"));
    let page = try_it(&stage, user).await;
    assert_eq!((&page["passes"], &page["refused_by"]), (&json!(false), &json!("user (daily)")));
    let limit = &page["descriptors"][0]["limits"][0];
    assert_eq!((&limit["passes"], &limit["role"]), (&json!(false), &json!("enforced")));
    assert!(limit["retry_after_ms"].as_u64().unwrap() > 0);
    assert!(!stage.get("/top").await.body.contains("user=\"7\""), "trying is no refusal");

    let unknown = json!({"domain": "nope", "descriptors": [[{"key": "user", "value": "7"}]]});
    let page = try_it(&stage, unknown).await;
    assert_eq!((&page["passes"], &page["domain_known"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn a_request_is_tried_as_the_gateway_describes_it() {
    let describe = |head: &TriedHead| {
        let user = head.headers.get("x-user").map(|user| user.to_str().unwrap().to_owned());
        let fault = head
            .uri
            .path()
            .starts_with("/none")
            .then(|| (404, "no_route", "no route serves this request".to_owned()));
        TriedRoute {
            route: Some("all".to_owned()),
            category: Some(Category::Get),
            domain: "api".to_owned(),
            descriptors: user
                .map(|user| (vec![("user".to_owned(), user)], Some(2)))
                .into_iter()
                .collect(),
            fault,
            ..TriedRoute::default()
        }
    };
    let parts = DebugParts { try_request: Some(Box::new(describe)), ..DebugParts::default() };
    let stage = Stage::new(RULES, parts);
    let request = |path: &str| json!({"request": {"path": path, "headers": [["X-User", "7"]]}});
    let page = try_it(&stage, request("/orders")).await;
    assert_eq!((&page["route"], &page["category"]), (&json!("all"), &json!("get")));
    assert_eq!(page["descriptors"][0]["entries"], json!([["user", "7"]]));
    assert_eq!((&page["passes"], &page["shed_now"]), (&json!(true), &json!("no")));
    let page = try_it(&stage, request("/none")).await;
    assert_eq!((&page["passes"], &page["fault"]["status"]), (&json!(false), &json!(404)));
}

#[tokio::test]
async fn a_malformed_trial_is_rejected_with_a_reason() {
    let stage = stage();
    for (body, part) in [
        ("", "EOF"),
        ("{}", "either `request`"),
        (r#"{"request": {"path": "/"}}"#, "there is no gateway"),
        (r#"{"request": {"path": "/"}, "domain": "api"}"#, "either `request`"),
        (r#"{"domain": "api", "descriptors": [[{"key": 5}]]}"#, "expected a string"),
    ] {
        let answer = stage.send(Method::POST, "/api/try", &[], body).await;
        assert!((400..500).contains(&answer.status) && answer.body.contains(part), "{answer:?}");
    }
}

#[tokio::test]
async fn a_browser_is_sent_to_the_dashboard_and_a_terminal_gets_the_list() {
    let stage = stage();
    let browser = [("accept", "text/html,application/xhtml+xml")];
    let answer = stage.send(Method::GET, "/", &browser, "").await;
    assert_eq!((answer.status, answer.field("location")), (303, Some("/ui/")));
    let page = stage.get("/ui/").await;
    assert!(page.field("content-security-policy").unwrap().contains("default-src 'none'"));
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    let tag = page.field("etag").unwrap().to_owned();
    let known = stage.send(Method::GET, "/ui/", &[("if-none-match", &tag)], "").await;
    assert_eq!((known.status, known.body.len()), (304, 0));
    assert_eq!(stage.get("/ui/nothing.js").await.status, 404);
}

#[tokio::test]
async fn history_goes_on_from_its_bytes_and_damaged_ones_change_nothing() {
    let first = stage();
    first.door.record();
    for _ in 0..5 {
        first.check("user", "7");
    }
    first.engine.clock().advance(Nanos::from_secs(1));
    first.door.record();
    let mut bytes = first.door.encode_history();

    let second = stage();
    second.door.restore_history(&bytes).unwrap();
    second.door.record();
    assert_eq!(limits(&second, "").await[0]["today"]["refused"], json!(3));
    bytes.pop();
    assert!(second.door.restore_history(&bytes).is_err());
    assert_eq!(limits(&second, "").await[0]["today"]["refused"], json!(3));
}

#[tokio::test]
async fn ten_thousand_limits_are_read_within_the_budget() {
    let rules: String = (0..10_000)
        .map(|rule| {
            format!("- {{key: k{rule}, rate_limit: {{unit: day, requests_per_unit: 2}}}}\n")
        })
        .collect();
    let observations = Arc::new(Observations::new(ObservationsConfig::default()));
    let stage = Stage::new(&rules, DebugParts { observations, ..DebugParts::default() });
    for rule in (0..10_000).step_by(7) {
        for _ in 0..3 {
            stage.check(&format!("k{rule}"), "a");
        }
    }
    second(&stage);
    second(&stage);
    let page = stage.get("/api/limits").await.json();
    assert_eq!(
        (&page["total"], &page["next"], &page["summed"]),
        (&json!(10_000), &json!(50), &json!(0))
    );
}

#[tokio::test]
async fn a_limit_that_most_callers_exceed_is_found_and_its_callers_are_counted() {
    let stage = stage();
    stage.door.record();
    for caller in 0..300 {
        for _ in 0..6 {
            stage.check("user", &caller.to_string());
        }
    }
    stage.engine.clock().advance(Nanos::from_secs(2 * 86_400));
    stage.door.record();
    let page = stage.get("/api/evidence").await.json();
    let limits = page["limits"].as_array().unwrap();
    let user = limits.iter().find(|limit| limit["limit"]["rule"] == "user").unwrap();
    assert_eq!((&user["whole"]["within"], &user["whole"]["over"]), (&json!(600), &json!(1_200)));
    assert_eq!(user["demand"]["sampled"], json!(256));
    assert_eq!(user["demand"]["peaks"]["max"], json!(6));
    let page = stage.get("/api/findings").await.json();
    let findings = page["findings"].as_array().unwrap();
    let kinds: Vec<&str> = findings
        .iter()
        .filter(|found| found["limit"]["rule"] == "user")
        .map(|found| found["kind"].as_str().unwrap())
        .collect();
    // Six at once against two a day: above the limit in one window, far below it on average.
    assert_eq!(kinds, ["bursty"], "{page}");
    let id = limits_id(&stage, "user").await;
    let one = stage.get(&format!("/api/limits/{id}")).await.json();
    assert_eq!(one["findings"][0]["kind"], json!("bursty"));
    assert_eq!(one["demand"]["sampled"], json!(256));
}

async fn limits_id(stage: &Stage, rule: &str) -> String {
    let all = limits(stage, "").await;
    let found = all.iter().find(|limit| limit["rule"] == rule).unwrap();
    found["id"].as_str().unwrap().to_owned()
}
