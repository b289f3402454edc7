//! Servers that share their counters over a real Redis.

use serde_json::Value;

use crate::process::{Folder, RULES, Serving, Start, binary};
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::Server;

/// Long enough for a busy machine: the tests check who decides, not how fast.
const PATIENT: &str = "store.redis.deadline=2s";

fn on<'f>(folder: &'f Folder, redis: &Server) -> Start<'f> {
    Start::new(folder).args(["--redis", &redis.url(), "--set", PATIENT])
}

fn is_degraded(answer: &Value) -> bool {
    answer["degraded"] == true
}

fn metric(serving: &mut Serving, name: &str) -> Option<String> {
    let metrics = serving.get("debug", "/metrics").body;
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")))?;
    line.rsplit(' ').next().map(ToOwned::to_owned)
}

/// Until a check is answered by the shared store.
fn until_shared(serving: &mut Serving) {
    serving.until(|serving| (!is_degraded(&serving.check("nobody").json())).then_some(()));
}

#[test]
fn two_servers_share_one_limit() {
    let redis = Server::redis();
    let folder = Folder::with_rules(RULES);
    let (mut one, mut other) = (on(&folder, &redis).serving(), on(&folder, &redis).serving());
    until_shared(&mut one);
    until_shared(&mut other);
    assert_eq!(one.check("ada").status, 200);
    assert_eq!(other.check("ada").status, 200);
    assert_eq!(one.check("ada").status, 429);
    assert_eq!(other.check("ada").status, 429);
    assert_eq!(other.check("bob").status, 200);
}

#[test]
fn a_server_starts_without_redis_and_finds_it_when_it_comes() {
    let mut redis = Server::redis();
    redis.kill();
    let folder = Folder::with_rules(RULES);
    let mut serving = on(&folder, &redis).serving();
    let alone = serving.check("ada");
    assert_eq!(alone.status, 200);
    assert!(is_degraded(&alone.json()), "{}", alone.body);
    assert_eq!(alone.json()["decisions"][0]["basis"], "local");
    redis.restart();
    until_shared(&mut serving);
    assert_eq!(metric(&mut serving, "tidegate_remote_degraded").as_deref(), Some("0"));
}

#[test]
fn an_outage_is_shown_and_is_never_over_the_limit() {
    let rules = RULES.to_owned()
        + "  - key: payout\n    rate_limit: {unit: hour, requests_per_unit: 9, on_store_error: deny}\n";
    let mut redis = Server::redis();
    let folder = Folder::with_rules(&rules);
    let mut serving = on(&folder, &redis).args(["--set", "health.needs_store=true"]).serving();
    until_shared(&mut serving);
    serving.until(|serving| (serving.get("http", "/healthcheck").status == 200).then_some(()));
    redis.kill();
    serving.until(|serving| is_degraded(&serving.check("ada").json()).then_some(()));
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"payout","value":"1"}]}]}"#;
    let denied = serving.ask("http", "POST", "/v1/check", &[], body);
    assert_eq!(denied.status, 503, "{}", denied.body);
    assert!(denied.json().get("refused_by").is_none(), "{}", denied.body);
    serving.until(|serving| (serving.get("http", "/healthcheck").status == 500).then_some(()));
    // The breaker opens after a few failures.
    serving.until(|serving| {
        serving.check("nobody");
        (metric(serving, "tidegate_remote_degraded").as_deref() == Some("1")).then_some(())
    });
    redis.restart();
    until_shared(&mut serving);
    serving.until(|serving| (serving.get("http", "/healthcheck").status == 200).then_some(()));
}

#[test]
fn what_a_server_holds_is_given_back_when_it_stops() {
    let rules = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit:\n      {algorithm: token_bucket, unit: hour, requests_per_unit: 10000, consistency: leased}\n";
    let redis = Server::redis();
    let folder = Folder::with_rules(rules);
    let mut serving = on(&folder, &redis).serving();
    until_shared(&mut serving);
    // The first checks of a key are decided by Redis; a busy key is leased.
    serving.until(|serving| {
        let basis = &serving.check("ada").json()["decisions"][0]["basis"];
        (basis == "leased").then_some(())
    });
    assert_eq!(metric(&mut serving, "tidegate_nodes").as_deref(), Some("1"));
    serving.signal("TERM");
    let (status, _) = serving.ended();
    assert!(status.success());
    let mut next = on(&folder, &redis).serving();
    until_shared(&mut next);
    let left = next.check("ada").json()["decisions"][0]["remaining"].as_u64();
    assert!(left.is_some_and(|left| left > 0), "{left:?}");
}

#[test]
fn under_compat_counters_are_kept_as_upstream_keeps_them() {
    let redis = Server::redis();
    let folder = Folder::with_rules(
        "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: day, requests_per_unit: 3}\n",
    );
    let mut serving = Start::new(&folder)
        .args(["--compat", "--log-level", "info", "--set", PATIENT])
        .env("REDIS_SOCKET_TYPE", "tcp")
        .env("REDIS_URL", format!("127.0.0.1:{}", redis.port()))
        .env("CACHE_KEY_PREFIX", "up:")
        .serving();
    until_shared(&mut serving);
    serving.check("ada");
    let key = eventually("the key of ada", || {
        redis.ask(&["KEYS", "up:shop_user_ada_*"]).list().first()?.text()
    });
    // Upstream counts two more in the same key.
    redis.ask(&["INCRBY", &key, "2"]);
    assert_eq!(serving.check("ada").status, 429);
    assert_eq!(redis.ask(&["GET", &key]).text().as_deref(), Some("4"));
}

#[test]
fn nodes_of_a_fleet_see_each_other_until_one_stops() {
    let redis = Server::redis();
    let folder = Folder::with_rules(RULES);
    let other_rules =
        Folder::with_rules(&RULES.replace("requests_per_unit: 2", "requests_per_unit: 3"));
    let node = |folder, name: &str| {
        on(folder, &redis).args([
            "--set",
            &format!("debug.name={name}"),
            "--set",
            "shutdown.delay=0s",
        ])
    };
    let mut one = node(&folder, "one").serving();
    let mut two = node(&other_rules, "two").serving();
    let names = |serving: &mut Serving| {
        let page = serving.get("debug", "/api/fleet").json();
        let names = page["nodes"].as_array()?.iter();
        Some(names.map(|node| node["name"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>())
    };
    for serving in [&mut one, &mut two] {
        serving.until(|serving| names(serving).filter(|names| names == &["one", "two"]).map(drop));
    }
    let page = one.get("debug", "/api/fleet").json();
    assert_eq!(
        page["rules_versions"].as_object().map(|versions| versions.len()),
        Some(2),
        "{page}"
    );
    let address = one.address("debug");
    let top = std::process::Command::new(binary()).args(["top", "--once", &address]).output();
    let printed = String::from_utf8_lossy(&top.expect("it runs").stdout).into_owned();
    for part in ["two", "all 2 nodes", "2 versions of the rules", "OTHER RULES"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    two.signal("TERM");
    two.ended();
    one.until(|one| names(one).filter(|names| names == &["one"]).map(drop));
}
