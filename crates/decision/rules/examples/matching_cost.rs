//! What rules cost: compiling many of them, and finding one among few and many.
//!
//! `cargo run --release -p tidegate-rules --example matching_cost`

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use tidegate_rules::{Domain, Entry, Options, Snapshot, Source, Timestamp, compile};

/// How many different requests are asked in turn. With few, what they touch
/// stays in the caches nearest to the processor, as for callers that come often;
/// with many, much of it does not.
const WARM: usize = 64;
const COLD: usize = 16 * 1024;
/// How many finds are timed in one run.
const FINDS: usize = 1 << 20;

fn main() {
    println!("three entries, by number of rules");
    for rules in [10, 1_000, 10_000, 100_000] {
        let text = nested(rules);
        let (snapshot, took) = compiled(&text);
        let domain = snapshot.domain("d").expect("the domain is there");
        let exact = |tenant| {
            let (tenant, path, user) = (format!("t{tenant}"), "/a".to_owned(), "u42".to_owned());
            [("tenant", tenant), ("path", path), ("user", user)]
        };
        let bare = |user| {
            let (region, user, path) = ("eu".to_owned(), format!("u{user}"), "/a".to_owned());
            [("region", region), ("user", user), ("path", path)]
        };
        let megabytes = text.len() as f64 / 1e6;
        let descriptors = 3 * tenants(rules);
        println!(
            "{rules:>7} rules ({descriptors} descriptors, {megabytes:.2} MB) compile in {took:.1?}"
        );
        for (kind, asked) in [("warm", WARM), ("cold", COLD)] {
            let exact = cost(domain, &requests(asked, tenants(rules), exact));
            let bare = cost(domain, &requests(asked, tenants(rules), bare));
            println!(
                "        {kind}: exact, exact, any {exact:.1} ns; any, any, exact {bare:.1} ns"
            );
        }
    }
    println!("one entry, by number of patterns");
    for patterns in [1, 10, 1_000, 10_000] {
        let (snapshot, _) = compiled(&prefixes(patterns));
        let domain = snapshot.domain("d").expect("the domain is there");
        let asked = requests(WARM, patterns, |at| [("path", format!("/service{at}/items"))]);
        println!("{patterns:>7}: {:.1} ns", cost(domain, &asked));
    }
    println!("one entry, by number of address ranges");
    for ranges in [1, 100, 10_000] {
        let (snapshot, _) = compiled(&ranges_of(ranges));
        let domain = snapshot.domain("d").expect("the domain is there");
        let address = |at| format!("10.{}.{}.7", at / 256, at % 256);
        let asked = requests(WARM, ranges, |at| [("ip", address(at))]);
        println!("{ranges:>7}: {:.1} ns", cost(domain, &asked));
    }
}

#[expect(clippy::disallowed_methods, reason = "an example that measures needs the real clock")]
fn compiled(text: &str) -> (Snapshot, Duration) {
    let source = [Source::new("rules.yaml", text)];
    let start = Instant::now();
    let snapshot = compile(&source, &Options::default()).expect("the rules are right");
    (snapshot, start.elapsed())
}

/// Nanoseconds for one find, the best of a few runs.
#[expect(clippy::disallowed_methods, reason = "an example that measures needs the real clock")]
fn cost<const N: usize>(domain: &Domain, requests: &[[(&'static str, String); N]]) -> f64 {
    // Side by side, so that the cost of fetching the requests is not measured.
    let texts: String = requests.iter().flatten().map(|(_, value)| &**value).collect();
    let mut rest = texts.as_str();
    let mut asked = Vec::new();
    for (key, value) in requests.iter().flatten() {
        let (value, after) = rest.split_at(value.len());
        asked.push(Entry { key, value });
        rest = after;
    }
    let all_match =
        asked.chunks_exact(N).all(|entries| domain.find(entries, Timestamp::EPOCH).is_some());
    assert!(all_match, "there is a rule for every request");
    let run = || {
        let start = Instant::now();
        for entries in asked.chunks_exact(N).cycle().take(FINDS) {
            black_box(&domain.find(black_box(entries), Timestamp::EPOCH));
        }
        start.elapsed()
    };
    let best = (0..5).map(|_| run()).min().unwrap_or_default();
    best.as_nanos() as f64 / FINDS as f64
}

fn requests<const N: usize>(
    count: usize,
    things: usize,
    make: impl Fn(usize) -> [(&'static str, String); N],
) -> Vec<[(&'static str, String); N]> {
    // A stride that is prime to the sizes walks all over the tables.
    (0..count).map(|at| make(at * 7919 % things)).collect()
}

const fn tenants(rules: usize) -> usize {
    rules / 2
}

/// About this many rules: tenants with a path and a user each, and some for everyone.
fn nested(rules: usize) -> String {
    let limit = "rate_limit: {unit: minute, requests_per_unit: 100}";
    let mut text = format!(
        "domain: d
descriptors:
  - key: region
    {limit}
    descriptors:
      - key: user
        {limit}
        descriptors:
          - key: path
            value: /a
            {limit}
"
    );
    // Two rules and three descriptors for each tenant.
    for tenant in 0..tenants(rules) {
        let _ = writeln!(
            text,
            "  - {{key: tenant, value: t{tenant}, {limit}, descriptors: [{{key: path, value: /a, \
             descriptors: [{{key: user, {limit}}}]}}]}}"
        );
    }
    text
}

fn prefixes(patterns: usize) -> String {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for at in 0..patterns {
        let _ = writeln!(
            text,
            "  - {{key: path, value: '/service{at}/*', rate_limit: {{unit: second, requests_per_unit: 1}}}}"
        );
    }
    text
}

fn ranges_of(ranges: usize) -> String {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for at in 0..ranges {
        let _ = writeln!(
            text,
            "  - {{key: ip, cidr: 10.{}.{}.0/24, rate_limit: {{unit: second, requests_per_unit: 1}}}}",
            at / 256,
            at % 256
        );
    }
    text
}
