//! Tokens, roles and host names, from outside.

use crate::process::{Answer, Folder, RULES, Serving, Start};

const TOKEN: &str = "correct-horse-battery-staple";
/// Its SHA-256.
const HASH: &str = "87cbebfeebc05f7c54ac9336c4b4bbec831227a641951a4bde7edd56020f8590";
const ADA: &str = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#;

fn post(serving: &mut Serving, path: &str, token: Option<&str>) -> Answer {
    let bearer = token.map(|token| format!("Bearer {token}")).unwrap_or_default();
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    let count = if token.is_some() { 2 } else { 1 };
    serving.ask("http", "POST", path, &headers[..count], ADA)
}

/// A service with these settings; the later of two `--http` counts.
fn serving(folder: &Folder, http: &str, tokens: &str) -> Serving {
    let tokens = format!("http.tokens={tokens}");
    Start::new(folder).args(["--http", http, "--set", &tokens]).serving()
}

#[test]
fn a_reset_needs_a_token_unless_only_this_machine_reaches_the_port() {
    let folder = Folder::with_rules(RULES);
    let mut local = serving(&folder, "127.0.0.1:0", "");
    assert_eq!(post(&mut local, "/v1/reset", None).status, 200);
    let mut open = Start::new(&folder).args(["--set", "http.listen=0.0.0.0:0"]).serving();
    for path in ["/v1/reset", "/v1/refund"] {
        let answer = post(&mut open, path, None);
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.body.contains("`http.tokens`"), "{}", answer.body);
    }
    assert_eq!(post(&mut open, "/v1/check", None).status, 200);
}

#[test]
fn each_role_opens_its_routes_and_an_expired_token_none() {
    let folder = Folder::with_rules(RULES);
    for (roles, check, peek, reset) in [
        ("check", 200, 403, 403),
        ("read", 403, 200, 403),
        ("change", 403, 403, 200),
        ("read+check+change", 200, 200, 200),
        ("read+check+change 2020-01-01", 401, 401, 401),
    ] {
        let mut serving = serving(&folder, "0.0.0.0:0", &format!("{HASH} ci {roles}"));
        for (path, status) in [("/v1/check", check), ("/v1/peek", peek), ("/v1/reset", reset)] {
            assert_eq!(post(&mut serving, path, Some(TOKEN)).status, status, "{path} with {roles}");
            assert_eq!(post(&mut serving, path, None).status, 401, "{path} without a token");
            let other = Some("another-token-altogether");
            assert_eq!(post(&mut serving, path, other).status, 401, "{path} with another token");
        }
        assert_eq!(serving.get("http", "/livez").status, 200);
    }
}

#[test]
fn the_debug_port_answers_to_known_names_only() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).args(["--set", "debug.hosts=debug.internal"]).serving();
    let mut status =
        |host: &str| serving.ask("debug", "GET", "/stats", &[("host", host)], "").status;
    for host in ["127.0.0.1:6070", "localhost", "debug.internal"] {
        assert_eq!(status(host), 200, "{host}");
    }
    assert_eq!(status("evil.example"), 421);
}

#[test]
fn a_token_in_place_of_its_hash_stops_the_start_and_is_not_repeated() {
    let folder = Folder::with_rules(RULES);
    let tokens = format!("http.tokens={TOKEN} ci check");
    let (status, said) = Start::new(&folder).args(["--set", &tokens]).failing();
    assert!(!status.success());
    assert!(said.contains("SHA-256") && !said.contains(TOKEN), "{said}");
}

#[test]
fn changed_tokens_take_effect_without_a_restart() {
    let folder = Folder::with_rules(RULES);
    let configuration = |http: &str, token: &str| {
        folder.write("token", token);
        format!("http: {{tokens: [{http}]}}\ndebug: {{token_file: token}}\n")
    };
    let first = configuration("", "first-token-of-all");
    folder.write("tidegate.yaml", &first);
    let mut serving = Start::new(&folder).serving();
    let change = |serving: &mut Serving, token: &str| {
        let bearer = format!("Bearer {token}");
        serving.ask("debug", "PUT", "/log-level", &[("authorization", &bearer)], "{}").status
    };
    assert_eq!(post(&mut serving, "/v1/check", None).status, 200);
    assert_ne!(change(&mut serving, "first-token-of-all"), 401);

    let second = configuration(&format!("{HASH} ci check"), "second-token-of-all");
    folder.write("tidegate.yaml", &second);
    let activated = "activated other access tokens";
    for door in ["http", "debug"] {
        serving.wait_for(|line| line["message"] == activated && line["door"] == door);
    }
    assert_eq!(post(&mut serving, "/v1/check", None).status, 401);
    assert_eq!(post(&mut serving, "/v1/check", Some(TOKEN)).status, 200);
    assert_eq!(change(&mut serving, "first-token-of-all"), 401);
    assert_ne!(change(&mut serving, "second-token-of-all"), 401);

    // An empty list would open the door.
    folder.write("tidegate.yaml", &configuration("", "third-token-of-all"));
    let kept = "no access tokens in the configuration: it takes a restart";
    serving.wait_for(|line| line["message"] == kept && line["door"] == "http");
    assert_eq!(post(&mut serving, "/v1/check", None).status, 401);
    let shown = serving.seen.iter().any(|line| line.to_string().contains("token-of-all"));
    assert!(!shown, "{:?}", serving.seen);
}
