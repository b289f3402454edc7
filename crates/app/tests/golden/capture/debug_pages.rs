//! The pages of the debug port: routes, status, content type and the shape of JSON.

use super::Golden;
use super::shape;
use crate::process::{Folder, Serving, Start};
use crate::upstream::Upstream;

const RULES: &str = "
domain: gateway
descriptors:
  - key: user
    limits:
      - {name: calls, requests_per_unit: 1, unit: year}
";

/// Each page with a body, where it takes one. The order matters: later ones show what is switched.
const ASKED: &[(&str, &str, &str)] = &[
    ("GET", "/", ""),
    ("GET", "/gateway", ""),
    ("GET", "/log-level", ""),
    ("PUT", "/log-level", r#"{"level":"info"}"#),
    ("PUT", "/log-level", "nonsense"),
    ("GET", "/metrics", ""),
    ("POST", "/reload", ""),
    ("GET", "/rlconfig", ""),
    ("GET", "/stats", ""),
    ("GET", "/stats?format=json", ""),
    ("GET", "/switches", ""),
    (
        "PUT",
        "/switches/limit",
        r#"{"domain":"gateway","path":"user","mode":"shadow","enforce_percent":50}"#,
    ),
    ("PUT", "/switches/limit", r#"{"domain":"gateway","path":"nothing","mode":"shadow"}"#),
    ("PUT", "/switches/limiter", r#"{"limiter":"worker","mode":"dark","for_seconds":600}"#),
    ("PUT", "/switches/limiter", r#"{"limiter":"nothing","mode":"dark"}"#),
    ("PUT", "/switches/kill", r#"{"off":true,"for_seconds":600}"#),
    ("PUT", "/switches/kill", "nonsense"),
    ("GET", "/switches", ""),
    ("DELETE", "/switches/kill", ""),
    ("DELETE", "/switches/limit", r#"{"domain":"gateway","path":"user"}"#),
    ("DELETE", "/switches/limiter", r#"{"limiter":"worker"}"#),
    ("GET", "/top", ""),
    ("GET", "/top?format=json", ""),
    ("DELETE", "/top", ""),
    ("POST", "/metrics", ""),
    ("GET", "/nowhere", ""),
];

pub(crate) fn capture() -> Vec<Golden> {
    let upstream = Upstream::start();
    let folder = Folder::with_rules(RULES);
    let health = "health: {interval: 1h}, ejection: {}";
    let document = upstream.document("").replace("']}", &format!("'], {health}}}"));
    folder.write("gateway.yaml", &document);
    let gateway = ["--gateway", "gateway.yaml", "--gateway-listen", "127.0.0.1:0"];
    let start = || Start::new(&folder).args(gateway).args(["--set", "overload.capacity=9"]);
    let mut serving = start().serving();
    for status in [200, 429] {
        assert_eq!(serving.ask("gateway", "GET", "/x", &[("x-user", "ada")], "").status, status);
    }
    let mut lines = vec!["# every route".to_owned()];
    lines.extend(routes(&mut serving));
    lines.push(String::new());
    for (method, path, body) in ASKED {
        let answer = serving.ask("debug", method, path, &[], body);
        lines.push(format!("## {method} {path} {body}").trim_end().to_owned());
        lines.extend(shape::answer(&answer));
        lines.push(String::new());
    }
    drop(serving);
    lines.push("# with a token, asked without".to_owned());
    let mut serving = start().env("TIDEGATE_DEBUG_TOKEN", "open-sesame-please").serving();
    for route in routes(&mut serving) {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let status = serving.ask("debug", method, path, &[], "").status;
        lines.push(format!("{method} {path}: {status}"));
    }
    vec![Golden::lines("debug/pages.txt", &lines)]
}

/// Method and path of every page, as the index lists them.
fn routes(serving: &mut Serving) -> Vec<String> {
    let index = serving.get("debug", "/").body;
    let route = |line: &str| -> Option<String> {
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?, words.next()?);
        path.starts_with('/').then(|| format!("{method} {path}"))
    };
    index.lines().filter_map(route).collect()
}
