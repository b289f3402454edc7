//! Limits that an old node and a new one share, and the traffic of an old node as a file.
#![allow(dead_code, reason = "each program uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Answer, Folder, Serving, Start};
use crate::redis_wire::Words;

/// How much every limit admits.
pub(crate) const LIMIT: usize = 6;

/// How many checks of an old node are recorded for each limit: half of what is admitted, and one more.
pub(crate) const OLD_CHECKS: usize = LIMIT / 2 + 1;

/// One limit for each algorithm, by the key that meets it. Periods are so long that nothing comes
/// back during a test.
pub(crate) const RULES: &str = "
domain: upgrade
descriptors:
  - key: fixed_window
    rate_limit: {unit: year, requests_per_unit: 6}
  - key: sliding_window
    rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 6}
  - key: sliding_window_of_slices
    rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 6, buckets: 4}
  - key: sliding_log
    rate_limit: {algorithm: sliding_log, unit: year, requests_per_unit: 6}
  - key: token_bucket
    rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 6}
  - key: leaky_bucket
    rate_limit: {algorithm: leaky_bucket, unit: year, requests_per_unit: 6, queue: 5}
  - key: concurrency
    rate_limit: {algorithm: concurrency, requests_per_unit: 6, time_to_live: 1h}
  - key: calendar
    rate_limit: {unit: year, requests_per_unit: 6, calendar: true}
  - key: leased
    rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 400, consistency: leased}
  - key: eventual
    rate_limit: {unit: year, requests_per_unit: 1000, consistency: eventual}
";

/// Limits whose traffic is recorded, in our own layout. That of `calendar` names its year, so it
/// would not last.
pub(crate) const RECORDED: &[&str] = &[
    "fixed_window",
    "sliding_window",
    "sliding_window_of_slices",
    "sliding_log",
    "token_bucket",
    "leaky_bucket",
    "concurrency",
];

/// The recording of a fixed window in the layout of envoyproxy/ratelimit.
pub(crate) const UPSTREAM: &str = "upstream_fixed_window";

/// In place of the start of the year's window in keys of that layout.
const WINDOW: &str = "{window}";

/// How long such a year is: 365 days.
const YEAR_SECONDS: u64 = 31_536_000;

/// Starts a binary on the Redis at this port.
pub(crate) fn start<'f>(binary: &Path, folder: &'f Folder, port: u16) -> Start<'f> {
    let rules = folder.path("rules.yaml");
    Start::of(binary, folder)
        .args(["--rules".as_ref(), rules.as_os_str()])
        .args(["--redis", &format!("redis://127.0.0.1:{port}")])
        .args(["--set", "store.redis.deadline=10s"])
}

/// The same in the layout of envoyproxy/ratelimit.
pub(crate) fn start_upstream<'f>(binary: &Path, folder: &'f Folder, port: u16) -> Start<'f> {
    start(binary, folder, port)
        .args(["--set", "store.redis.layout=envoy-ratelimit"])
        .args(["--set", "store.redis.upstream.key_prefix=up:"])
}

/// Until Redis decides.
pub(crate) fn until_shared(serving: &mut Serving) {
    serving.until(|serving| {
        let metrics = serving.get("debug", "/metrics").body;
        let connected = metrics.contains("tidegate_remote_connections 1\n");
        (connected && metrics.contains("tidegate_remote_degraded 0\n")).then_some(())
    });
}

/// Asks about one caller of a limit; Redis has to answer.
#[track_caller]
pub(crate) fn ask(serving: &mut Serving, verb: &str, key: &str, caller: &str) -> Answer {
    let entries = format!(r#"[{{"key":"{key}","value":"{caller}"}}]"#);
    let body = format!(r#"{{"domain":"upgrade","descriptors":[{{"entries":{entries}}}]}}"#);
    let answer = serving.ask("http", "POST", &format!("/v1/{verb}"), &[], &body);
    assert!(answer.json().get("degraded").is_none(), "{}", answer.body);
    answer
}

/// What an old node sent for one request, in order.
#[derive(Debug)]
pub(crate) struct Step {
    /// `check` or `release`.
    pub(crate) about: String,
    pub(crate) commands: Vec<Words>,
}

/// Where the traffic is kept.
pub(crate) fn traffic_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/redis_traffic")
}

/// The start of the year's window at this second.
pub(crate) fn window(now_seconds: u64) -> String {
    (now_seconds / YEAR_SECONDS * YEAR_SECONDS).to_string()
}

/// Writes steps as text: a heading for each, then a line for each command.
pub(crate) fn write_steps(name: &str, steps: &[Step], window: &str) {
    let mut text = String::new();
    for step in steps {
        text += &format!("# {}\n", step.about);
        for command in &step.commands {
            let words: Vec<String> = command.iter().map(|word| escape(word)).collect();
            text += &words.join(" ").replace(&format!("_{window}"), &format!("_{WINDOW}"));
            text.push('\n');
        }
    }
    fs::write(traffic_folder().join(format!("{name}.txt")), text).expect("written");
}

/// Reads them again.
pub(crate) fn read_steps(name: &str, window: &str) -> Vec<Step> {
    let path = traffic_folder().join(format!("{name}.txt"));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        if let Some(about) = line.strip_prefix("# ") {
            steps.push(Step { about: about.to_owned(), commands: Vec::new() });
        } else {
            let step = steps.last_mut().expect("a heading comes first");
            step.commands.push(line.replace(WINDOW, window).split(' ').map(unescape).collect());
        }
    }
    steps
}

/// The scripts that the old node called, which have to be loaded first.
pub(crate) fn scripts() -> Vec<Vec<u8>> {
    let listing = fs::read_dir(traffic_folder().join("scripts")).expect("scripts were recorded");
    let script = |entry: Result<fs::DirEntry, _>| {
        fs::read(entry.expect("the folder can be listed").path()).expect("a script")
    };
    listing.map(script).collect()
}

/// A word without spaces: bytes that are not letters, digits or punctuation as `\xNN`.
fn escape(word: &[u8]) -> String {
    if word.is_empty() {
        return "\\e".to_owned();
    }
    let byte = |&byte: &u8| {
        if byte.is_ascii_graphic() && byte != b'\\' {
            char::from(byte).to_string()
        } else {
            format!("\\x{byte:02x}")
        }
    };
    word.iter().map(byte).collect()
}

fn unescape(word: &str) -> Vec<u8> {
    if word == "\\e" {
        return Vec::new();
    }
    let mut parts = word.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).expect("two digits"));
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}
