//! The gateway of `tidegate serve`, in front of a real server.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use serde_json::json;

use crate::process::{Answer, Folder, Serving, Start, exchange, is_open};
use crate::upstream::Upstream;
use tidegate_test_servers::server::Server;

const RULES: &str = "
domain: gateway
descriptors:
  - key: user
    limits:
      - {name: calls, requests_per_unit: 2, unit: year}
";

/// What lets one request in at a time.
const ONE: [&str; 2] = ["--set", "overload.capacity=1"];

pub(crate) fn folder(upstream: &Upstream) -> Folder {
    let folder = Folder::with_rules(RULES);
    folder.write("gateway.yaml", &upstream.document(""));
    folder
}

pub(crate) fn start(folder: &Folder) -> Start<'_> {
    Start::new(folder).args(["--gateway", "gateway.yaml", "--gateway-listen", "127.0.0.1:0"])
}

pub(crate) fn as_user(serving: &mut Serving, user: &str) -> Answer {
    serving.ask("gateway", "GET", "/x", &[("x-user", user)], "")
}

/// A request that is with the upstream by now, and its answer to come.
pub(crate) fn held(serving: &mut Serving, upstream: &Upstream) -> JoinHandle<Answer> {
    let address = serving.address("gateway");
    let asked = thread::spawn(move || {
        let stream = TcpStream::connect(address).expect("it accepts");
        exchange(stream, "GET", "/hold", &[], "")
    });
    // Others may have come before.
    while !upstream.next().starts_with("GET /hold") {}
    asked
}

fn switch(serving: &mut Serving, method: &str, body: &serde_json::Value) -> Answer {
    serving.ask("debug", method, "/switches/limiter", &[], &body.to_string())
}

#[test]
fn the_gateway_passes_requests_on_and_refuses_what_is_over_the_rate() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let mut serving = start(&folder).serving();
    let first = as_user(&mut serving, "ada");
    assert_eq!((first.status, first.body.as_str()), (200, "/x"));
    assert!(upstream.next().contains("x-forwarded-for: 127.0.0.1"));
    assert_eq!(as_user(&mut serving, "ada").status, 200);
    let refused = as_user(&mut serving, "ada");
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("rate_limited")));
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    assert_eq!(as_user(&mut serving, "bob").status, 200);

    let metrics = serving.get("debug", "/metrics").body;
    for line in [
        "tidegate_gateway_requests_total{route=\"all\",outcome=\"served\"} 3",
        "tidegate_gateway_requests_total{route=\"all\",outcome=\"rate_limited\"} 1",
        "tidegate_requests_total{door=\"gateway\",answer=\"refused\"} 1",
        "tidegate_limiter_mode{limiter=\"rate\",mode=\"enforce\"} 1",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line}:\n{metrics}");
    }
    let healthy =
        format!("tidegate_upstream_healthy{{upstreams=\"api\",host=\"{}\"}} 1", upstream.address);
    assert!(metrics.contains(&healthy), "{metrics}");
    assert!(!metrics.contains("tidegate_decisions_total{"), "nothing protects the node");
}

#[test]
fn paths_that_servers_read_differently_are_rejected_and_counted_once() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let mut serving = start(&folder).serving();
    for (path, code) in [("/x%2Fy", "escaped_slash"), ("/x/..;/y", "bad_target")] {
        let refused = serving.ask("gateway", "GET", path, &[("x-user", "ada")], "");
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!(code)), "{path}");
    }
    let passed = serving.ask("gateway", "GET", "/x;v=1", &[("x-user", "ada")], "");
    assert_eq!((passed.status, passed.body.as_str()), (200, "/x;v=1"));
    let metrics = serving.get("debug", "/metrics").body;
    for line in [
        "tidegate_requests_total{door=\"gateway\",answer=\"invalid\"} 2",
        "tidegate_requests_total{door=\"gateway\",answer=\"admitted\"} 1",
        "tidegate_gateway_requests_total{route=\"all\",outcome=\"served\"} 1",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line}:\n{metrics}");
    }
}

#[test]
fn without_a_document_there_is_no_gateway() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    assert!(!serving.get("debug", "/metrics").body.contains("tidegate_gateway_requests_total"));
    assert!(!serving.seen.iter().any(|line| line["door"] == "gateway"));
}

#[test]
fn a_full_node_refuses_until_its_gate_is_switched() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let mut serving = start(&folder).args(ONE).serving();
    let first = held(&mut serving, &upstream);
    let refused = serving.get("gateway", "/x");
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("queue_timeout")));
    assert!(refused.head.contains("x-tidegate-shed: get"), "{}", refused.head);

    let body = json!({"limiter": "gate", "mode": "shadow"});
    assert_eq!(switch(&mut serving, "PUT", &body).status, 200);
    assert_eq!(serving.get("gateway", "/x").status, 200);
    let metrics = serving.get("debug", "/metrics").body;
    for part in [
        "limiter=\"gate\",mode=\"enforce\",category=\"get\",outcome=\"reject\"} 1",
        "limiter=\"gate\",mode=\"shadow\",category=\"get\",outcome=\"allow\"} 1",
        "tidegate_limiter_mode{limiter=\"gate\",mode=\"shadow\"} 1",
        "tidegate_gate_limit 1",
    ] {
        assert!(metrics.contains(part), "{part}:\n{metrics}");
    }
    assert_eq!(switch(&mut serving, "DELETE", &json!({"limiter": "gate"})).status, 200);
    assert_eq!(serving.get("gateway", "/x").status, 503);

    let off = json!({"off": true}).to_string();
    assert_eq!(serving.ask("debug", "PUT", "/switches/kill", &[], &off).status, 200);
    assert_eq!(serving.get("gateway", "/x").status, 200);
    upstream.let_go();
    assert_eq!(first.join().expect("answered").status, 200);
}

#[test]
fn a_file_switches_limiters_while_it_is_there() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let mut serving = start(&folder).args(["--set", "switches.file=switches.yaml"]).serving();
    for _ in 0..2 {
        assert_eq!(as_user(&mut serving, "ada").status, 200);
    }
    assert_eq!(as_user(&mut serving, "ada").status, 429);
    folder.write("switches.yaml", "rate: dark\n");
    // Waits at the debug port: a loop of requests through the gateway would flood the upstream until the file is read.
    let wait_for_mode = |serving: &mut Serving, mode: &str| {
        serving.until(|serving| {
            let switches = serving.get("debug", "/switches").json();
            (switches["limiters"]["rate"] == mode).then_some(())
        });
    };
    wait_for_mode(&mut serving, "shadow");
    assert_eq!(as_user(&mut serving, "ada").status, 200);

    folder.write("switches.yaml", "rate: nonsense\n");
    serving.wait_for(|line| {
        line["problems"].as_str().is_some_and(|problems| problems.contains("switches.yaml:1:7"))
    });
    assert_eq!(as_user(&mut serving, "ada").status, 200, "a wrong file changes nothing");
    fs::remove_file(folder.path("switches.yaml")).expect("removed");
    wait_for_mode(&mut serving, "enforce");
    assert_eq!(as_user(&mut serving, "ada").status, 429);
}

#[test]
fn variables_switch_limiters_from_the_start() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let mut serving = start(&folder).env("TIDEGATE_SWITCHES_KILL", "true").serving();
    for _ in 0..4 {
        assert_eq!(as_user(&mut serving, "ada").status, 200);
    }
    assert_eq!(serving.get("debug", "/switches").json()["off"], true);
    drop(serving);

    let mut serving = start(&folder)
        .args(ONE)
        .env("TIDEGATE_SWITCHES_RATE", "off")
        .env("TIDEGATE_SWITCHES_GATE", "enforce 10%")
        .serving();
    let limiters = serving.get("debug", "/switches").json()["limiters"].clone();
    assert_eq!((&limiters["rate"], &limiters["gate"]), (&json!("off"), &json!("enforce 10%")));
    assert_eq!((&limiters["worker"], &limiters["fleet"]), (&json!("enforce"), &json!("shadow")));
    for _ in 0..4 {
        assert_eq!(as_user(&mut serving, "ada").status, 200);
    }
}

#[test]
fn limits_and_switches_work_on_redis_and_without_it() {
    let mut redis = Server::redis();
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let on_redis = ["--redis", &redis.url(), "--set", "store.redis.deadline=2s"];
    let mut serving = start(&folder).args(on_redis).args(ONE).serving();
    serving.until(|serving| {
        let metrics = serving.get("debug", "/metrics").body;
        metrics.contains("tidegate_remote_connections 1").then_some(())
    });
    assert_eq!(as_user(&mut serving, "ada").status, 200);
    redis.kill();
    let first = held(&mut serving, &upstream);
    assert_eq!(serving.get("gateway", "/x").status, 503, "the gate needs no Redis");
    assert_eq!(switch(&mut serving, "PUT", &json!({"limiter": "gate", "mode": "off"})).status, 200);
    assert_eq!(serving.get("gateway", "/x").status, 200);
    for _ in 0..3 {
        // This node's share holds, or the store is still thought to be there: never an error.
        let status = as_user(&mut serving, "bob").status;
        assert!([200, 429].contains(&status), "{status}");
    }
    let body = json!({"limiter": "rate", "mode": "off"});
    assert_eq!(switch(&mut serving, "PUT", &body).status, 200);
    for _ in 0..4 {
        assert_eq!(as_user(&mut serving, "bob").status, 200);
    }
    upstream.let_go();
    assert_eq!(first.join().expect("answered").status, 200);
}

#[test]
fn decisions_of_limits_that_redis_keeps_are_in_the_metrics_of_the_gateway() {
    let redis = Server::redis();
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let on_redis = ["--redis", &redis.url(), "--set", "store.redis.deadline=10s"];
    let protected = ["--set", "overload.capacity=100"];
    let mut serving = start(&folder).args(on_redis).args(protected).serving();
    serving.until(|serving| {
        let metrics = serving.get("debug", "/metrics").body;
        let connected = metrics.contains("tidegate_remote_connections 1");
        (connected && metrics.contains("tidegate_remote_degraded 0")).then_some(())
    });
    for status in [200, 200, 429] {
        assert_eq!(as_user(&mut serving, "ada").status, status);
    }
    let metrics = serving.get("debug", "/metrics").body;
    for line in [
        "tidegate_gateway_requests_total{route=\"all\",outcome=\"rate_limited\"} 1",
        "tidegate_requests_total{door=\"gateway\",answer=\"admitted\"} 2",
        "tidegate_requests_total{door=\"gateway\",answer=\"refused\"} 1",
        "tidegate_rule_hits_total{domain=\"gateway\",rule=\"user\",limit=\"calls\",outcome=\"within\"} 2",
        "tidegate_rule_hits_total{domain=\"gateway\",rule=\"user\",limit=\"calls\",outcome=\"over\"} 1",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line}:\n{metrics}");
    }
    // What protects the node decides for itself, wherever counters are kept.
    let own = "tidegate_decisions_total{limiter=\"gate\",mode=\"enforce\",category=\"get\",outcome=\"allow\"} 2";
    assert!(metrics.lines().any(|line| line == own), "{metrics}");
    assert!(!metrics.contains("tidegate_decisions_total{limiter=\"rate\""), "{metrics}");
}

/// The value of a metric without labels.
pub(crate) fn metric(serving: &mut Serving, name: &str) -> Option<f64> {
    let metrics = serving.get("debug", "/metrics").body;
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn nodes_on_one_redis_are_one_fleet() {
    let redis = Server::redis();
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    // A long lease, so that nothing depends on how busy the machine is.
    let settings = [
        "--redis",
        &redis.url(),
        "--set",
        "store.redis.deadline=10s",
        "--set",
        "overload.capacity=10",
        "--set",
        "overload.fleet.lease=30s",
        "--set",
        "overload.fleet.beat=1s",
    ];
    let mut one = start(&folder).args(settings).serving();
    let mut other = start(&folder).args(settings).serving();
    let pool = |serving: &mut Serving, pool: f64| {
        (metric(serving, "tidegate_fleet_pool") == Some(pool)).then_some(())
    };
    one.until(|serving| pool(serving, 16.0));
    other.until(|serving| pool(serving, 16.0));
    assert!(metric(&mut one, "tidegate_fleet_lease_age_seconds").is_some());
    let elsewhere = [&settings[..], &["--set", "overload.fleet.name=elsewhere"]].concat();
    let mut stranger = start(&folder).args(elsewhere).serving();
    stranger.until(|serving| {
        metric(serving, "tidegate_fleet_lease_age_seconds").and(pool(serving, 8.0))
    });
}

#[test]
fn a_request_that_is_with_its_upstream_is_finished_before_it_stops() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let mut serving = start(&folder).args(["--set", "shutdown.grace=1h"]).serving();
    let address = serving.address("gateway");
    let first = held(&mut serving, &upstream);
    serving.signal("TERM");
    serving.wait_for(|line| line["message"] == "stopping");
    upstream.let_go();
    let answer = first.join().expect("answered");
    assert_eq!((answer.status, answer.body.as_str()), (200, "/hold"));
    assert_eq!(serving.ended().0.code(), Some(0));
    assert!(!is_open(&address));
}

#[test]
fn a_proxy_header_names_the_client_and_the_access_log_has_it() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let settings = [
        "--set",
        "gateway.proxy_protocol_from=127.0.0.1",
        "--set",
        "gateway.access_log.to=access.log",
    ];
    let mut serving = start(&folder).args(settings).serving();
    let mut stream = TcpStream::connect(serving.address("gateway")).expect("it accepts");
    let proxied = "PROXY TCP4 203.0.113.7 127.0.0.1 4711 8000\r\n";
    stream.write_all(proxied.as_bytes()).expect("sent");
    assert_eq!(exchange(stream, "GET", "/y", &[], "").status, 200);
    assert!(upstream.next().contains("x-forwarded-for: 203.0.113.7"));
    serving.until(|_| {
        let log = fs::read_to_string(folder.path("access.log")).unwrap_or_default();
        let line: serde_json::Value = serde_json::from_str(log.lines().next()?).ok()?;
        assert_eq!((&line["client"], &line["outcome"]), (&json!("203.0.113.7"), &json!("served")));
        Some(())
    });
    let mut bare = TcpStream::connect(serving.address("gateway")).expect("it accepts");
    bare.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
    // Closed, cleanly or not, without an answer.
    let mut said = String::new();
    let _ = bare.read_to_string(&mut said);
    assert_eq!(said, "", "the header is demanded");
}

#[test]
fn it_is_ready_only_with_upstreams_if_it_needs_them() {
    let folder = Folder::with_rules(RULES);
    let upstream = Upstream::start();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("an address");
    drop(nobody);
    let health = "health: {interval: 50ms, unhealthy_after: 1}";
    let more = format!("- {{name: gone, hosts: ['http://{address}'], {health}}}");
    folder.write("gateway.yaml", &upstream.document(&more));
    let mut serving = start(&folder).args(["--set", "health.needs_upstreams=true"]).serving();
    serving.until(|serving| {
        let ready = serving.get("http", "/readyz");
        let told = ready.body.contains("no server of `gone` is healthy");
        (ready.status == 503 && told).then_some(())
    });
}

#[test]
fn a_document_with_problems_stops_the_start_and_all_are_told() {
    let folder = Folder::with_rules(RULES);
    folder.write("gateway.yaml", "routes:\n- {name: a, upstream: api}\nupstreams: 5\n");
    let (status, said) = start(&folder).failing();
    assert_eq!(status.code(), Some(1), "{said}");
    for part in ["gateway.yaml:2:13", "did you mean `upstreams`?", "gateway.yaml:3:12", "problems"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    folder.write(
        "gateway.yaml",
        "routes:\n- {name: a, upstreams: apo}\nupstreams:\n- {name: api, hosts: [ftp://x]}\n",
    );
    let (status, said) = start(&folder).failing();
    assert_eq!(status.code(), Some(1), "{said}");
    for part in ["gateway.yaml:2:24", "did you mean `api`?", "gateway.yaml:4:23"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (status, said) = Start::new(&folder).args(["--gateway", "gone.yaml"]).failing();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("`gone.yaml` does not exist"), "{said}");
}
