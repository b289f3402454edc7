//! What is switched at run time.

use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use tidegate_admin::{DebugParts, DebugSettings, LogLevel};
use tidegate_requests::AccessPolicy;

use tidegate_engine::{Clock, Nanos};
use tidegate_overload::{Limiter, Mode, Percent};

use super::support::{Stage, bare_engine, protected};

/// A stage where changes are allowed, and what was said of them.
fn stage(rules: &str) -> (Stage, Arc<Mutex<Vec<String>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let parts = DebugParts {
        settings: DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() },
        on_change: Some(Box::new(move |change| heard.lock().push(change.to_string()))),
        ..DebugParts::default()
    };
    (Stage::new(rules, parts), said)
}

const TWO_LIMITS: &str = "
- key: user
  limits:
  - {name: daily, unit: day, requests_per_unit: 1}
  - {name: yearly, unit: year, requests_per_unit: 1, mode: shadow}
";

#[tokio::test]
async fn the_kill_switch_lets_everything_pass_until_it_is_taken_back() {
    let (stage, said) = stage("- {key: user, rate_limit: {unit: day, requests_per_unit: 0}}");
    assert!(!stage.check("user", "7"));
    let answer = stage.send(Method::PUT, "/switches/kill", &[], r#"{"off": true}"#).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"off": true})));
    assert!(stage.check("user", "7"));
    assert_eq!(stage.get("/switches").await.json()["off"], json!(true));
    assert!(stage.get("/metrics").await.body.contains("\ntidegate_kill_switch 1\n"));
    assert_eq!(stage.send(Method::DELETE, "/switches/kill", &[], "").await.status, 200);
    assert!(!stage.check("user", "7"));
    assert_eq!(*said.lock(), ["everything was switched off", "everything was switched on"]);
}

#[tokio::test]
async fn a_limit_is_switched_and_taken_back() {
    let (stage, said) = stage(TWO_LIMITS);
    assert!(stage.check("user", "7"));
    assert!(!stage.check("user", "7"));

    let body = r#"{"domain": "api", "path": "user", "limit": "daily", "mode": "shadow"}"#;
    let answer = stage.send(Method::PUT, "/switches/limit", &[], body).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"limits": 1})));
    assert!(stage.check("user", "7"));
    let limiters = json!({"rate": "enforce", "concurrency": "enforce"});
    let listed = json!({"off": false, "limiters": limiters, "ends_in": {}, "limits": [{
        "domain": "api", "path": "user", "limit": "daily", "mode": "shadow",
        "enforce_percent": 100, "written": {"mode": "enforce", "enforce_percent": 100},
    }]});
    assert_eq!(stage.get("/switches").await.json(), listed);
    let page = stage.get("/metrics").await.body;
    assert!(page.contains("\ntidegate_switches{mode=\"shadow\"} 1\n"), "{page}");
    assert!(page.contains("\ntidegate_debug_changes_total{change=\"limit\"} 1\n"), "{page}");

    let body = r#"{"domain": "api", "path": "user"}"#;
    let answer = stage.send(Method::DELETE, "/switches/limit", &[], body).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"limits": 2})));
    assert!(!stage.check("user", "7"));
    assert_eq!(
        *said.lock(),
        [
            r#"limit "daily" of rule "user" of domain "api" was switched to shadow, 100 % enforced"#,
            r#"rule "user" of domain "api" is as its rule file says again"#,
        ]
    );
}

#[tokio::test]
async fn what_cannot_be_switched_changes_nothing_and_says_why() {
    let (stage, said) = stage(TWO_LIMITS);
    let cases = [
        (r#"{"domain": "api", "path": "nobody", "mode": "off"}"#, 404, "at `nobody`"),
        (r#"{"domain": "api", "path": "user", "limit": "x", "mode": "off"}"#, 404, "name `x`"),
        (r#"{"domain": "api", "path": "user", "mode": "on"}"#, 400, "enforce, shadow, off"),
        (r#"{"domain": "api", "path": "user"}"#, 400, "missing field `mode`"),
        (
            r#"{"domain": "api", "path": "user", "mode": "off", "enforce_percent": 101}"#,
            400,
            "0 to 100",
        ),
        (r#"{"domain": "api", "path": "user", "mode": "off", "who": 1}"#, 400, "unknown field"),
        ("{\n\"domain\": 7}", 400, "line 2"),
        ("", 400, "EOF"),
    ];
    for (body, status, detail) in cases {
        let answer = stage.send(Method::PUT, "/switches/limit", &[], body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert_eq!(answer.field("content-type"), Some("application/problem+json"));
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{answer:?}");
    }
    assert_eq!(stage.get("/switches").await.json()["limits"], json!([]));
    assert!(said.lock().is_empty());
}

#[tokio::test]
async fn a_body_of_the_wrong_kind_is_told_in_words_of_its_writer() {
    let (stage, _) = stage(TWO_LIMITS);
    for path in ["/switches/kill", "/switches/limit", "/switches/limiter"] {
        let answer = stage.send(Method::PUT, path, &[], "7").await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.body.contains("expected an object"), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read_to_its_end() {
    let (stage, _) = stage(TWO_LIMITS);
    let body = " ".repeat(100_000);
    assert_eq!(stage.send(Method::PUT, "/switches/kill", &[], &body).await.status, 413);
}

/// Takes two words.
#[derive(Default)]
struct TwoLevels(Mutex<String>);

impl LogLevel for TwoLevels {
    fn get(&self) -> String {
        self.0.lock().clone()
    }

    fn set(&self, level: &str) -> Result<(), String> {
        if !matches!(level, "info" | "debug") {
            return Err("a level is info or debug".to_owned());
        }
        level.clone_into(&mut self.0.lock());
        Ok(())
    }
}

#[tokio::test]
async fn the_log_level_is_shown_and_changed() {
    let parts = DebugParts {
        settings: DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() },
        log_level: Some(Box::new(TwoLevels(Mutex::new("info".to_owned())))),
        ..DebugParts::default()
    };
    let stage = Stage::new(TWO_LIMITS, parts);
    assert_eq!(stage.get("/log-level").await.json(), json!({"level": "info"}));
    let answer = stage.send(Method::PUT, "/log-level", &[], r#"{"level": "debug"}"#).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"level": "debug"})));
    let answer = stage.send(Method::PUT, "/log-level", &[], r#"{"level": "loud"}"#).await;
    assert_eq!(
        (answer.status, &answer.json()["detail"]),
        (400, &json!("a level is info or debug"))
    );
    assert_eq!(stage.get("/log-level").await.json(), json!({"level": "debug"}));
}

#[tokio::test]
async fn rules_are_read_again_on_request() {
    let asked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&asked);
    let parts = DebugParts {
        settings: DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() },
        reload: Some(Box::new(move || *counted.lock() += 1)),
        ..DebugParts::default()
    };
    let stage = Stage::new(TWO_LIMITS, parts);
    assert_eq!(stage.send(Method::POST, "/reload", &[], "").await.status, 202);
    assert_eq!(*asked.lock(), 1);
}

#[tokio::test]
async fn what_the_program_does_not_offer_is_not_there() {
    let (stage, said) = stage(TWO_LIMITS);
    assert_eq!(stage.send(Method::POST, "/reload", &[], "").await.status, 404);
    assert_eq!(stage.get("/log-level").await.status, 404);
    assert!(said.lock().is_empty());
}

#[tokio::test]
async fn a_limiter_is_switched_and_goes_back_to_what_is_configured() {
    let (stage, said) = stage("- {key: user, rate_limit: {unit: day, requests_per_unit: 0}}");
    assert!(!stage.check("user", "7"));
    let body = r#"{"limiter": "rate", "mode": "dark"}"#;
    let answer = stage.send(Method::PUT, "/switches/limiter", &[], body).await;
    let now = json!({"limiter": "rate", "mode": "shadow"});
    assert_eq!((answer.status, answer.json()), (200, now));
    assert!(stage.check("user", "7"));
    assert_eq!(stage.get("/switches").await.json()["limiters"]["rate"], "shadow");
    let answer =
        stage.send(Method::DELETE, "/switches/limiter", &[], r#"{"limiter": "rate"}"#).await;
    assert_eq!((answer.status, &answer.json()["mode"]), (200, &json!("enforce")));
    assert!(!stage.check("user", "7"));
    let changes =
        ["limiter rate was switched to shadow", "limiter rate is as configured again: enforce"];
    assert_eq!(*said.lock(), changes);
}

#[tokio::test]
async fn what_protects_the_node_is_switched_and_killed_with_the_rest() {
    let (protection, switchboard) = protected(&bare_engine());
    let settings = DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() };
    let parts = DebugParts { settings, switchboard: Some(switchboard), ..DebugParts::default() };
    let stage = Stage::new(TWO_LIMITS, parts);
    let body = r#"{"limiter": "gate", "mode": "enforce 25%"}"#;
    assert_eq!(stage.send(Method::PUT, "/switches/limiter", &[], body).await.status, 200);
    assert_eq!(protection.mode(Limiter::Gate), Mode::Enforce(Percent::new(25)));
    let shown = stage.get("/switches").await.json();
    assert_eq!(shown["limiters"]["gate"], "enforce 25%");
    stage.send(Method::PUT, "/switches/kill", &[], r#"{"off": true}"#).await;
    assert!(Limiter::ALL.into_iter().all(|limiter| protection.is_killed(limiter)));
    stage.send(Method::DELETE, "/switches/kill", &[], "").await;
    assert!(!protection.is_killed(Limiter::Worker));
}

#[tokio::test]
async fn a_limiter_that_is_not_there_or_a_mode_that_is_none_is_told() {
    let (stage, _) = stage(TWO_LIMITS);
    for (status, body) in [
        (404, r#"{"limiter": "worker", "mode": "off"}"#),
        (404, r#"{"limiter": "workers", "mode": "off"}"#),
        (400, r#"{"limiter": "rate", "mode": "on"}"#),
        (400, r#"{"limiter": "rate", "mode": "enforce 101%"}"#),
        (400, r#"{"limiter": "rate"}"#),
    ] {
        let answer = stage.send(Method::PUT, "/switches/limiter", &[], body).await;
        assert_eq!(answer.status, status, "{body}");
    }
}

#[tokio::test]
async fn a_switch_for_a_while_says_how_long_it_lasts() {
    let (protection, switchboard) = protected(&bare_engine());
    let settings = DebugSettings { access: AccessPolicy::local(), ..DebugSettings::default() };
    let board = Arc::clone(&switchboard);
    let parts = DebugParts { settings, switchboard: Some(switchboard), ..DebugParts::default() };
    let stage = Stage::new(TWO_LIMITS, parts);
    let body = r#"{"limiter": "gate", "mode": "off", "for_seconds": 60}"#;
    assert_eq!(stage.send(Method::PUT, "/switches/limiter", &[], body).await.status, 200);
    let body = r#"{"off": true, "for_seconds": 5}"#;
    assert_eq!(stage.send(Method::PUT, "/switches/kill", &[], body).await.status, 200);
    let shown = stage.get("/switches").await.json();
    assert_eq!(shown["ends_in"], json!({"off": 5, "gate": 60}));

    stage.engine.clock().advance(Nanos::from_secs(5));
    board.expire(stage.engine.clock().now());
    let shown = stage.get("/switches").await.json();
    assert_eq!((&shown["off"], &shown["ends_in"]), (&json!(false), &json!({"gate": 55})));
    assert!(!protection.is_killed(Limiter::Gate));
    stage.engine.clock().advance(Nanos::from_secs(55));
    board.expire(stage.engine.clock().now());
    assert_eq!(protection.mode(Limiter::Gate), Mode::ENFORCE);
}
