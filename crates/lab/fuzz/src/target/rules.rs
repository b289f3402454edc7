//! The rule parser: any text compiles or is rejected at existing locations, with the same result
//! each time.

use tidegate_rules::{Entry, Options, Report, Snapshot, Source, Timestamp, compile};

use super::{Target, Trail, locations};

pub(super) const WORDS: &[&str] = &[
    "domain",
    "descriptors",
    "key",
    "value",
    "rate_limit",
    "limits",
    "unit",
    "requests_per_unit",
    "per",
    "plan",
    "plans",
    "from",
    "cidr",
    "address",
    "ipv6_prefix",
    "metadata",
    "soft",
    "over",
    "for",
    "replaces",
    "name",
    "unlimited",
    "shadow_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "quota_mode",
    "algorithm",
    "token_bucket",
    "leaky_bucket",
    "sliding_log",
    "sliding_window",
    "fixed_window",
    "concurrency",
    "burst",
    "queue",
    "buckets",
    "time_to_live",
    "mode",
    "enforce_percent",
    "on_store_error",
    "consistency",
    "when_over",
    "refusal_status",
    "charge",
    "cost",
    "calendar",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "year",
    "Europe/Berlin",
    "true",
    "null",
    "~",
    "'*'",
    "*",
    "&a ",
    "*a",
    "<<: *a",
    "!!int ",
    "!x ",
    "10.0.0.0/8",
    "::/0",
    "5m",
    "20%",
    "[",
    "]",
    "{",
    "}",
    ",",
    ": ",
    "- ",
    "\n",
    "\n  ",
    "\n    ",
    "'",
    "\"",
    "|\n",
    ">-\n",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "? ",
    "\t",
    "\0",
    "\u{feff}",
    "é",
    "\u{2028}",
    "\u{85}",
    "\r",
    "\r\n",
];

/// Requests for the rules of damaged examples.
const ASKED: &[&[(&str, &str)]] = &[
    &[("user", "1")],
    &[("user", "1"), ("path", "/login")],
    &[("remote_address", "10.1.2.3")],
    &[("remote_address", "::1"), ("user", "")],
    &[("plan", "free")],
    &[],
];

pub(super) struct RulesTarget;

impl Target for RulesTarget {
    fn give(&mut self, input: &[u8]) -> Result<Trail, String> {
        let text = String::from_utf8_lossy(input);
        let compat = text.len() % 2 == 1;
        let options = Options {
            compat,
            calendar_months: compat,
            merge_domains: !compat,
            ..Options::default()
        };
        let sources = [Source::new("rules.yaml", text)];
        match (compile(&sources, &options), compile(&sources, &options)) {
            (Ok(one), Ok(two)) => usable(&one, &two, &sources),
            (Err(one), Err(two)) => refused(&one, &two, &sources),
            (one, _) => Err(format!("only one of two compilers accepts it: {one:?}")),
        }
    }
}

fn refused(one: &Report, two: &Report, sources: &[Source]) -> Result<Trail, String> {
    if one != two {
        return Err(format!("two compilers differ:\n{one}\n{two}"));
    }
    if one.problems().is_empty() || one.to_string().is_empty() {
        return Err("it is refused without a reason".to_owned());
    }
    locations::check(one.problems(), sources)?;
    let codes: Vec<&str> = one.problems().iter().map(|problem| problem.code).take(3).collect();
    Ok(Trail::of(codes))
}

fn usable(one: &Snapshot, two: &Snapshot, sources: &[Source]) -> Result<Trail, String> {
    if one.version() != two.version() {
        return Err("two compilers give two versions".to_owned());
    }
    let counts = |snapshot: &Snapshot| (snapshot.rules().len(), snapshot.limits().len());
    if counts(one) != counts(two) {
        return Err("two compilers give different rules".to_owned());
    }
    locations::check(one.warnings(), sources)?;
    let mut met = Vec::new();
    for domain in one.domains() {
        for asked in ASKED {
            let entries: Vec<Entry<'_>> =
                asked.iter().map(|(key, value)| Entry { key, value }).collect();
            let found = domain.find(&entries, Timestamp::EPOCH).is_some();
            let explained = domain.explain(&entries, Timestamp::EPOCH).to_string();
            if found != explained.contains(" applies") {
                return Err(format!("found: {found}, but explained so: {explained}"));
            }
            met.push(found);
        }
    }
    let codes: Vec<&str> = one.warnings().iter().map(|problem| problem.code).take(3).collect();
    Ok(Trail::of((codes, met, one.rules().len().min(8), one.limits().len().min(8))))
}
