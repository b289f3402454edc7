//! Requests and their answers.

use std::os::unix::net::UnixStream;

use crate::process::{Folder, RULES, Start, exchange};

#[test]
fn requests_over_the_limit_get_a_429_that_names_the_rule() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    assert_eq!(serving.check("ada").status, 200);
    assert_eq!(serving.check("ada").status, 200);
    let refused = serving.check("ada");
    assert_eq!(refused.status, 429);
    assert!(refused.head.to_lowercase().contains("retry-after: "), "{}", refused.head);
    assert_eq!(refused.json()["refused_by"]["path"], "user");
    assert_eq!(serving.check("bob").status, 200);
}

#[test]
fn the_json_of_upstream_is_answered_on_the_same_port() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#;
    let answer = serving.ask("http", "POST", "/json", &[], body);
    assert_eq!((answer.status, &answer.json()["overallCode"]), (200, &"OK".into()));
    serving.ask("http", "POST", "/json", &[], body);
    let answer = serving.ask("http", "POST", "/json", &[], body);
    assert_eq!((answer.status, &answer.json()["overallCode"]), (429, &"OVER_LIMIT".into()));
}

#[test]
fn what_was_decided_is_in_the_metrics() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    for _ in 0..3 {
        serving.check("ada");
    }
    let metrics = serving.get("debug", "/metrics").body;
    let counted = |outcome: &str, hits: u32| {
        metrics.lines().any(|line| {
            line.starts_with("tidegate_rule_hits_total{")
                && line.contains(&format!("outcome=\"{outcome}\""))
                && line.ends_with(&format!(" {hits}"))
        })
    };
    assert!(counted("within", 2) && counted("over", 1), "{metrics}");
}

#[test]
fn metrics_can_have_a_port_of_their_own() {
    let folder = Folder::with_rules(RULES);
    let settings = ["--set", "debug.metrics_listen=127.0.0.1:0", "--set", "debug.metrics_path=/m"];
    let mut serving = Start::new(&folder).args(settings).serving();
    assert_eq!(serving.get("metrics", "/m").status, 200);
    assert_eq!(serving.get("metrics", "/switches").status, 404);
}

#[test]
fn a_door_listens_on_a_unix_socket_too() {
    let folder = Folder::with_rules(RULES);
    let socket = folder.path("http.sock");
    let listen = format!("http.listen=127.0.0.1:0,unix:{}", socket.display());
    let _serving = Start::new(&folder).args(["--set", &listen]).serving();
    let stream = UnixStream::connect(&socket).expect("it accepts");
    assert_eq!(exchange(stream, "GET", "/healthcheck", &[], "").body, "OK");
}

#[test]
fn the_welcome_gives_a_command_that_gets_a_429() {
    let folder = Folder::with_rules(RULES);
    let serving = Start::new(&folder).args(["--welcome"]).serving();
    let headers = [("content-type", "application/json")];
    serving.signal("TERM");
    let (_, printed) = serving.ended();
    let line = printed.lines().find(|line| line.contains("seq 4")).expect("a loop of four");
    let body = line.split('\'').nth(1).expect("a body in quotes");
    let mut again = Start::new(&folder).serving();
    let statuses: Vec<u16> =
        (0..4).map(|_| again.ask("http", "POST", "/v1/check", &headers, body).status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
}
