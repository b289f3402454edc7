//! Environment variables, flags and fields: which sets which, and the defaults.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{Golden, printed, run};

/// Tried in turn for variables of envoyproxy/ratelimit: what a value does shows what is taken.
const SAMPLES: &[&str] = &[
    "true",
    "false",
    "7",
    "0.5",
    "5s",
    "debug",
    "json",
    "TLS",
    "tcp",
    "127.0.0.1",
    "127.0.0.1:7",
    "some/text",
];

/// Flags for the configuration, each with a value.
const FLAGS: &[&[&str]] = &[
    &["--rules", "a.yaml", "b.yaml"],
    &["--grpc", "127.0.0.1:1"],
    &["--http", "127.0.0.1:2"],
    &["--gateway", "gateway.yaml"],
    &["--gateway-listen", "127.0.0.1:3"],
    &["--forward", "forward.yaml"],
    &["--forward-listen", "127.0.0.1:6"],
    &["--debug-listen", "127.0.0.1:4"],
    &["--redis", "redis://127.0.0.1:5"],
    &["--log-level", "trace"],
    &["--log-format", "json"],
    &["--workers", "7"],
    &["--compat"],
    &["--compat=none"],
    &["--compat=envoy-ratelimit"],
    &["--set", "shutdown.grace=7s", "--set", "log.level=warn"],
];

/// Variables of envoyproxy/ratelimit that work only beside others.
const COMBINED: &[&[(&str, &str)]] = &[
    &[
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "cert.pem"),
        ("GRPC_SERVER_TLS_KEY", "key.pem"),
        ("GRPC_CLIENT_TLS_CACERT", "ca.pem"),
        ("GRPC_CLIENT_TLS_SAN", "client"),
    ],
    &[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "redis:1"), ("REDIS_AUTH", "user:secret")],
    &[("REDIS_SOCKET_TYPE", "unix"), ("REDIS_URL", "/run/redis")],
    &[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "redis:1"), ("REDIS_TLS", "true")],
    &[("REDIS_TYPE", "CLUSTER"), ("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "a:1,b:2")],
    &[("REDIS_TYPE", "SENTINEL"), ("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "main,a:1,b:2")],
    &[
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis:1"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_SOCKET_TYPE", "tcp"),
        ("REDIS_PERSECOND_URL", "seconds:2"),
        ("REDIS_PERSECOND_AUTH", "user:secret"),
    ],
    &[("TRACING_ENABLED", "true"), ("TRACING_EXPORTER_PROTOCOL", "grpc")],
    &[("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("LIMIT_LIMIT_HEADER", "X-Limit")],
];

type Fields = BTreeMap<String, Value>;

pub(crate) fn capture() -> Vec<Golden> {
    let folder = tempfile::tempdir().expect("a folder");
    vec![own(folder.path()), flags(folder.path()), compat(folder.path())]
}

/// The fields in force; the exit code when there are none.
fn show(folder: &Path, variables: &[(&str, &str)], words: &[&str]) -> Result<Fields, i32> {
    let words = [&["config", "show", "--format", "json"], words].concat();
    let output = run(folder, variables, &words);
    if !output.status.success() {
        return Err(output.status.code().expect("it ended by itself"));
    }
    let fields: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list of fields");
    let entry = |field: &Value| {
        let key = field["key"].as_str().expect("a key").to_owned();
        (key, field["value"].clone())
    };
    Ok(fields.iter().map(entry).collect())
}

/// The fields that differ.
fn changed(before: &Fields, after: &Result<Fields, i32>) -> String {
    let after = match after {
        Ok(after) => after,
        Err(code) => return format!("exit code {code}"),
    };
    let differing = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
    let shown: Vec<String> = differing.map(|(key, value)| format!("{key} = {value}")).collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}

/// Our own variables with their fields and defaults.
fn own(folder: &Path) -> Golden {
    let defaults = show(folder, &[], &[]).expect("the defaults are right");
    let table = printed(&["config", "env"]);
    let rows = table.lines().skip(1).filter(|line| line.starts_with("TIDEGATE_"));
    let mut lines: Vec<String> = rows
        .map(|row| {
            let mut words = row.split_whitespace();
            let (variable, field) =
                (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let default = defaults.get(field).map_or("none".to_owned(), Value::to_string);
            format!("{variable} {field} = {default}")
        })
        .collect();
    lines.sort();
    lines.push(String::new());
    lines.push("every field".to_owned());
    lines.extend(defaults.iter().map(|(field, default)| format!("{field} = {default}")));
    Golden::lines("variables/own.txt", &lines)
}

/// What each flag sets.
fn flags(folder: &Path) -> Golden {
    let defaults = show(folder, &[], &[]).expect("the defaults are right");
    let line = |flag: &&[&str]| {
        format!("{}: {}", flag.join(" "), changed(&defaults, &show(folder, &[], flag)))
    };
    let lines: Vec<String> = FLAGS.iter().map(line).collect();
    Golden::lines("variables/flags.txt", &lines)
}

/// What each variable of envoyproxy/ratelimit sets, by trying.
fn compat(folder: &Path) -> Golden {
    let plain = show(folder, &[], &[]).expect("the defaults are right");
    let defaults = show(folder, &[], &["--compat"]).expect("the defaults are right");
    let mut lines = vec![format!("--compat: {}", changed(&plain, &Ok(defaults.clone())))];
    let table = printed(&["config", "reference", "compat"]);
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    for (variable, rest) in rows {
        let default = rest.split(" | ").nth(1).unwrap_or_default();
        lines.push(format!("{variable}, by default {default}"));
        let mut changes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for sample in SAMPLES {
            let shown = show(folder, &[(variable, sample)], &["--compat"]);
            changes.entry(changed(&defaults, &shown)).or_default().push(sample);
        }
        let line =
            |(change, samples): (String, Vec<&str>)| format!("  {}: {change}", samples.join(" "));
        lines.extend(changes.into_iter().map(line));
    }
    for variables in COMBINED {
        let names: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        lines.push(names.join(" "));
        lines.push(format!("  {}", changed(&defaults, &show(folder, variables, &["--compat"]))));
    }
    Golden::lines("variables/compat.txt", &lines)
}
