//! The service with the demo's gateway, and traffic that it refuses.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tidegate_history::{Counts, History, HistorySettings, LimitReading};

use crate::process::{Folder, Serving, Start, exchange};

const RULES: &str = "
domain: gateway
descriptors:
- key: user
  limits:
  - {name: per_minute, algorithm: token_bucket, requests_per_unit: 5, unit: minute}
- key: address
  limits:
  - {name: trial, algorithm: sliding_window, requests_per_unit: 20, unit: minute, mode: shadow}
";

const SHOP: &str = "
domain: shop
descriptors:
- key: user
  limits:
  - {name: rate, algorithm: token_bucket, unit: second, requests_per_unit: 5, burst: 10}
  - {name: daily, unit: day, requests_per_unit: 1000}
- key: mail
  rate_limit: {algorithm: leaky_bucket, unit: second, requests_per_unit: 2, queue: 4}
";

const GATEWAY: &str = "
domain: gateway
routes:
- name: health
  path: /health
  upstreams: api
- name: api
  upstreams: api
  descriptors:
  - entries: [{key: user, from: header, name: X-User}]
  - entries: [{key: address, from: address}]
upstreams:
- name: api
  hosts: [http://127.0.0.1:9]
";

/// A service with callers that were refused, and one change.
pub(crate) fn demo() -> (Folder, Serving) {
    let folder = Folder::with_rules(RULES);
    folder.write("gateway.yaml", GATEWAY);
    let gateway = folder.path("gateway.yaml");
    let start = Start::new(&folder).args(["--gateway".as_ref(), gateway.as_os_str()]);
    let mut serving =
        start.args(["--gateway-listen", "127.0.0.1:0", "--set", "overload.capacity=8"]).serving();
    for user in ["ada", "ada", "ada", "bob", "=cmd()"] {
        for _ in 0..7 {
            get(&mut serving, user);
        }
    }
    let switch = json!({"limiter": "fleet", "mode": "off", "reason": "a test of switches"});
    let body = switch.to_string();
    assert_eq!(serving.ask("debug", "PUT", "/switches/limiter", &[], &body).status, 200);
    (folder, serving)
}

/// Nodes that share a Redis, with these names.
pub(crate) fn fleet(redis: &str, names: &[&str]) -> (Vec<Folder>, Vec<Serving>) {
    let start = |name: &&str| {
        let folder = Folder::with_rules(RULES);
        let name = format!("debug.name={name}");
        let serving = Start::new(&folder).args(["--redis", redis, "--set", &name]).serving();
        (folder, serving)
    };
    names.iter().map(start).unzip()
}

/// A service that has a history of more than a week, in which one limit was met and the others were not.
pub(crate) fn with_a_week_of_history() -> (Folder, Serving) {
    let folder = Folder::with_rules(SHOP);
    let file = folder.path("history");
    let setting = format!("debug.history.file={}", file.display());
    let start = |folder| Start::new(folder).args(["--set", &setting, "--set", "shutdown.delay=0s"]);
    let mut serving = start(&folder).serving();
    let state = serving.get("debug", "/api/state").json();
    let limits = serving.get("debug", "/api/limits?sort=name").json();
    serving.signal("TERM");
    serving.ended();
    let now = state["now_ms"].as_u64().unwrap() / 1_000;
    let mut history = History::new(HistorySettings::new(Vec::new()));
    for hour in 0..24 * 9_u64 {
        let readings = limits["limits"].as_array().unwrap().iter().map(|limit| {
            let identity = u64::from_str_radix(limit["id"].as_str().unwrap(), 16).unwrap();
            let hits = if limit["limit"] == "rate" { hour * 50 } else { 0 };
            let total = Counts { admitted: hits, ..Counts::default() };
            LimitReading { identity, total, in_shadow: false }
        });
        history.record(now - (24 * 9 - hour) * 3_600, &[], readings);
    }
    std::fs::write(&file, history.encode()).unwrap();
    let serving = start(&folder).serving();
    (folder, serving)
}

/// A service whose debug port has a token.
pub(crate) fn with_token() -> (Folder, Serving, String) {
    let folder = Folder::with_rules(RULES);
    let token = "a-token-for-the-dashboard".to_owned();
    let setting = format!("debug.token={token}");
    let serving = Start::new(&folder).args(["--set", &setting]).serving();
    (folder, serving, token)
}

/// One request through the gateway.
pub(crate) fn get(serving: &mut Serving, user: &str) {
    serving.ask("gateway", "GET", "/orders", &[("x-user", user)], "");
}

/// A few refusals.
pub(crate) fn refuse(serving: &mut Serving) {
    for _ in 0..8 {
        get(serving, "ada");
    }
}

/// Traffic of several callers for a minute, for screenshots.
#[expect(clippy::disallowed_methods, reason = "charts need real seconds")]
pub(crate) fn run_for_a_minute(serving: &mut Serving) {
    let (gateway, http) = (serving.address("gateway"), serving.address("http"));
    for tick in 0_u32..600 {
        let wave = (tick / 60) % 4 + 1;
        for caller in 0..wave {
            let user = format!("user-{}", (tick + caller * 7) % 12);
            let stream = TcpStream::connect(&gateway).unwrap();
            exchange(stream, "GET", "/orders", &[("x-user", &user)], "");
            let entries = json!([{"key": "user", "value": format!("shop-{}", caller * 3)}]);
            let body = json!({"domain": "gateway", "descriptors": [{"entries": entries}]});
            let headers = [("content-type", "application/json")];
            let stream = TcpStream::connect(&http).unwrap();
            exchange(stream, "POST", "/v1/check", &headers, &body.to_string());
        }
        thread::sleep(Duration::from_millis(80));
    }
}
