//! The state in Redis: keys, types, encodings and times to live.
//!
//! Bytes that depend on the clock are masked; the rest is pinned as it is.

use super::Golden;
use super::shape;
use crate::process::{Folder, Serving, Start};
use crate::redis_wire::{Connection, Reply};
use crate::upstream::Upstream;
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::Server;

/// Every algorithm, in every consistency that it can have. Periods are so long that nothing changes
/// meanwhile.
const RULES: &str = "
domain: golden
descriptors:
  - key: fixed_window
    rate_limit: {unit: year, requests_per_unit: 10}
  - key: fixed_window_calendar
    rate_limit: {unit: year, requests_per_unit: 10, calendar: true}
  - key: fixed_window_soft
    rate_limit: {unit: year, requests_per_unit: 10, soft: {over: 20%, for: 30s}}
  - key: sliding_window
    rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 10}
  - key: sliding_window_of_slices
    rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 1000, buckets: 4}
  - key: sliding_log
    rate_limit: {algorithm: sliding_log, unit: year, requests_per_unit: 10}
  - key: token_bucket
    rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 10}
  - key: token_bucket_with_burst
    rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 10, burst: 20}
  - key: leaky_bucket
    rate_limit: {algorithm: leaky_bucket, unit: year, requests_per_unit: 10}
  - key: concurrency
    rate_limit: {algorithm: concurrency, requests_per_unit: 10, time_to_live: 1h}
  - key: leased_fixed_window
    rate_limit: {unit: year, requests_per_unit: 1000, consistency: leased}
  - key: leased_sliding_window
    rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 1000, consistency: leased}
  - key: leased_token_bucket
    rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 1000, consistency: leased}
  - key: eventual_fixed_window
    rate_limit: {unit: year, requests_per_unit: 1000, consistency: eventual}
  - key: eventual_sliding_window
    rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 1000, consistency: eventual}
  - key: eventual_token_bucket
    rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 1000, consistency: eventual}
  - key: several
    limits:
      - {name: one, unit: year, requests_per_unit: 10}
      - {name: two, algorithm: token_bucket, unit: year, requests_per_unit: 10}
";

/// The rules that are written as upstream has them, for upstream's layout.
const UPSTREAM_RULES: &str = "
domain: golden
descriptors:
  - key: fixed_window
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: nested
    value: one
    descriptors:
      - key: below
        rate_limit: {unit: year, requests_per_unit: 10}
  - key: token_bucket
    rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 10}
";

/// Keys of counters begin so; those of fleets do not.
const COUNTER: &[u8] = b"tg{";
/// Keys of records of reports end so.
const RECORDS: &[u8] = b":r";

pub(crate) fn capture() -> Vec<Golden> {
    vec![own_layout(), upstream_layout()]
}

/// A check that Redis admits.
fn check(serving: &mut Serving, entries: &[(&str, &str)], cost: u32) {
    let entry = |(key, value): &(&str, &str)| format!(r#"{{"key":"{key}","value":"{value}"}}"#);
    let entries = entries.iter().map(entry).collect::<Vec<_>>().join(",");
    let body =
        format!(r#"{{"domain":"golden","cost":{cost},"descriptors":[{{"entries":[{entries}]}}]}}"#);
    let answer = serving.ask("http", "POST", "/v1/check", &[], &body);
    assert_eq!((answer.status, answer.json().get("degraded")), (200, None), "{}", answer.body);
}

/// Until checks are answered by Redis.
fn until_shared(serving: &mut Serving) {
    serving.until(|serving| {
        let metrics = serving.get("debug", "/metrics").body;
        let connected = metrics.contains("tidegate_remote_connections 1");
        (connected && metrics.contains("tidegate_remote_degraded 0")).then_some(())
    });
}

fn keys(redis: &mut Connection) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> =
        redis.ask(&["KEYS", "*"]).list().iter().map(Reply::bytes).collect();
    keys.sort();
    keys
}

fn names(rules: &str) -> impl Iterator<Item = &str> {
    rules.lines().filter_map(|line| line.strip_prefix("  - key: "))
}

fn own_layout() -> Golden {
    let server = Server::redis();
    let mut redis = Connection::open(server.port());
    let upstream = Upstream::start();
    let folder = Folder::with_rules(RULES);
    folder.write("gateway.yaml", &upstream.document(""));
    let mut serving = Start::new(&folder)
        .args(["--redis", &server.url(), "--set", "store.redis.deadline=10s"])
        .args(["--gateway", "gateway.yaml", "--gateway-listen", "127.0.0.1:0"])
        .args(["--set", "overload.capacity=10", "--set", "overload.fleet.lease=30s"])
        .serving();
    until_shared(&mut serving);
    let mut lines = Vec::new();
    lines.push("## nodes".to_owned());
    let mut known = eventually("the key that nodes are counted by", || {
        let counters = keys(&mut redis).into_iter().filter(|key| key.starts_with(COUNTER));
        Some(counters.collect::<Vec<_>>()).filter(|counters| !counters.is_empty())
    });
    for key in &known {
        lines.extend(describe(&mut redis, key));
    }
    for name in names(RULES) {
        lines.push(format!("## {name}"));
        check(&mut serving, &[(name, "ada")], 1);
        let fresh = eventually("a key of the limit", || {
            let counters = keys(&mut redis).into_iter().filter(|key| key.starts_with(COUNTER));
            let fresh: Vec<Vec<u8>> = counters.filter(|key| !known.contains(key)).collect();
            (!fresh.is_empty()).then_some(fresh)
        });
        for key in &fresh {
            lines.extend(describe(&mut redis, key));
        }
        known.extend(fresh);
    }
    lines.push("## fleets".to_owned());
    let others = eventually("the key of the fleet", || {
        let others: Vec<Vec<u8>> =
            keys(&mut redis).into_iter().filter(|key| !key.starts_with(COUNTER)).collect();
        others.iter().any(|key| key.starts_with(b"tg:fleet:")).then_some(others)
    });
    for key in others {
        lines.extend(describe(&mut redis, &key));
    }
    Golden::lines("redis/own-layout.txt", &lines)
}

fn upstream_layout() -> Golden {
    let server = Server::redis();
    let mut redis = Connection::open(server.port());
    let folder = Folder::with_rules(UPSTREAM_RULES);
    let mut serving = Start::new(&folder)
        .args(["--compat", "--log-level", "info", "--set", "store.redis.deadline=10s"])
        .env("REDIS_SOCKET_TYPE", "tcp")
        .env("REDIS_URL", format!("127.0.0.1:{}", server.port()))
        .env("CACHE_KEY_PREFIX", "up:")
        .serving();
    until_shared(&mut serving);
    let mut lines = Vec::new();
    check(&mut serving, &[("fixed_window", "ada")], 3);
    check(&mut serving, &[("nested", "one"), ("below", "ada")], 1);
    check(&mut serving, &[("token_bucket", "ada")], 1);
    for key in eventually("four keys", || Some(keys(&mut redis)).filter(|keys| keys.len() >= 4)) {
        if key.starts_with(b"up:") || key.starts_with(COUNTER) {
            lines.extend(describe(&mut redis, &key));
        }
    }
    Golden::lines("redis/upstream-layout.txt", &lines)
}

/// A key, its type, its time to live and its value.
fn describe(redis: &mut Connection, key: &[u8]) -> Vec<String> {
    let kind = String::from_utf8(redis.ask(&[b"TYPE", key]).bytes()).expect("text");
    let life = match redis.ask(&[b"PTTL", key]) {
        Reply::Number(..=-1) => "for ever",
        Reply::Number(0..=120_000) => "for two minutes or less",
        Reply::Number(120_001..=7_200_000) => "for two hours or less",
        _ => "for longer",
    };
    let shown = text(key);
    // Upstream's keys end with the start of their window.
    let shown = if key.starts_with(COUNTER) { shown } else { shape::digits(&shown) };
    let mut lines = vec![format!("{shown}: {kind}, lives {life}")];
    match kind.as_str() {
        "string" if key.ends_with(RECORDS) => {
            lines.extend(redis.ask(&[b"GET", key]).bytes().chunks(26).map(record));
        }
        "string" => lines.push(format!("  {}", value(&redis.ask(&[b"GET", key]).bytes()))),
        "zset" => {
            let all = redis.ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]);
            for pair in all.list().chunks(2) {
                let (member, score) = (pair[0].bytes(), text(&pair[1].bytes()));
                // Entries are scored by an instant, everything else by less than zero.
                let is_entry = !score.starts_with('-');
                let member =
                    if is_entry { format!("{} bytes", member.len()) } else { text(&member) };
                let score = if is_entry { "<instant>".to_owned() } else { score };
                lines.push(format!("  {member}, score {score}"));
            }
        }
        "hash" => {
            let all = redis.ask(&[b"HGETALL", key]);
            for pair in all.list().chunks(2) {
                let (field, value) = (pair[0].bytes(), pair[1].bytes());
                let field = if field.is_ascii()
                    && field.iter().all(u8::is_ascii_alphanumeric)
                    && field.len() < 8
                {
                    text(&field)
                } else {
                    format!("{} bytes", field.len())
                };
                // A description is an expiry of seven bytes, and JSON with the name of the machine.
                let is_description = value.get(7) == Some(&b'{');
                let length = value.len().to_string();
                let length = if is_description { "<description>, some" } else { &length };
                lines.push(format!("  {field}: {length} bytes"));
            }
        }
        _ => {}
    }
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A node's record of its reports: its id, the number of the count, the total, when it was written.
fn record(bytes: &[u8]) -> String {
    match bytes.get(8..14).zip(bytes.get(14..21)) {
        Some((count, total)) if bytes.len() == 26 => {
            format!("  <node> {} {} <written>", hex(count), hex(total))
        }
        _ => format!("  {} bytes", bytes.len()),
    }
}

/// A string, with what depends on the clock masked.
fn value(bytes: &[u8]) -> String {
    const INSTANT: usize = 7;
    match bytes {
        [b'W', rest @ ..] if rest.len() == 2 * INSTANT => {
            format!("W <end> {}", hex(&rest[INSTANT..]))
        }
        [b'L', rest @ ..] if rest.len() > INSTANT => {
            let (slice, rest) = rest[INSTANT..].split_at(INSTANT);
            format!("L <start> {} {}", hex(slice), hex(rest))
        }
        [b'S', rest @ ..] if rest.len() > 2 * INSTANT => {
            format!("S <closes> <rested> {}", value(&rest[2 * INSTANT..]))
        }
        // 34 bits of seconds, 44 of ticks, 18 of the scale.
        [.., high, middle, low] if bytes.len() == 12 => {
            format!("<instant> {}", hex(&[high & 0x03, *middle, *low]))
        }
        digits if digits.iter().all(u8::is_ascii_digit) => text(digits),
        other => format!("{} bytes", other.len()),
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
