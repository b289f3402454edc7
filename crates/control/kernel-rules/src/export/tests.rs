use tidegate_rules::{Options, Source, compile};

use super::*;
use crate::{IpFamily, iptables, nftables};

fn settings() -> ExportSettings {
    ExportSettings {
        port: 443,
        connections_per_request: 1_000,
        overflow_per_second: 5_000,
        domain: None,
        key: None,
    }
}

fn export_with(rules: &str, settings: ExportSettings) -> Result<Export, ExportError> {
    let snapshot = compile(&[Source::new("r.yaml", rules)], &Options::default()).unwrap();
    Export::of(&snapshot, settings)
}

fn export(rules: &str) -> Export {
    export_with(rules, settings()).unwrap()
}

const ADDRESSES: &str = "
domain: edge
descriptors:
- key: address
  address: {v4: 24, v6: 48}
  limits:
  - {algorithm: token_bucket, unit: second, requests_per_unit: 20, burst: 100}
  - {name: slots, algorithm: concurrency, requests_per_unit: 64}
- {key: address, cidr: 10.0.0.0/8, rate_limit: {unlimited: true}}
- {key: address, cidr: [10.1.0.0/16, \"2001:db8::/32\"], rate_limit: {unit: minute, requests_per_unit: 90}}
- {key: address, cidr: 192.0.2.0/24, share_threshold: true, mode: shadow, limits: [{algorithm: token_bucket, unit: second, requests_per_unit: 5}]}
";

#[test]
fn what_can_be_expressed_is_exported_and_the_longest_prefix_comes_first() {
    let export = export(ADDRESSES);
    let scopes: Vec<_> = export.rules.iter().map(|rule| rule.scope.clone()).collect();
    let ranges = |list: &[&str]| {
        AddressScope::Ranges(list.iter().map(|text| text.parse().unwrap()).collect())
    };
    assert_eq!(
        scopes,
        [
            ranges(&["10.1.0.0/16", "2001:db8::/32"]),
            ranges(&["192.0.2.0/24"]),
            ranges(&["10.0.0.0/8"]),
            AddressScope::Everyone,
        ]
    );
    let everyone = &export.rules[3];
    assert_eq!(
        everyone.limits[0].limit,
        KernelLimit::Rate { amount: 20, unit: "second", burst: 100, idle_seconds: 60 }
    );
    assert_eq!(everyone.limits[0].prefixes, Some((24, 48)));
    assert_eq!(everyone.limits[1].limit, KernelLimit::Open { most: 64 });
    assert!(export.rules[1].limits[0].is_shadow && export.rules[1].limits[0].prefixes.is_none());
    assert!(export.rules[2].is_unlimited);
    assert_eq!(export.left_out, []);
}

#[test]
fn a_rate_is_a_whole_number_of_the_shortest_unit_that_has_one() {
    let rate = |text: &str| {
        let rules = format!(
            "
domain: d
descriptors:
- {{key: a, address: true, limits: [{{algorithm: token_bucket, {text}}}]}}
"
        );
        match export(&rules).rules[0].limits[0].limit {
            KernelLimit::Rate { amount, unit, burst, .. } => (amount, unit, burst),
            KernelLimit::Open { .. } => panic!("not a rate"),
        }
    };
    assert_eq!(rate("unit: second, requests_per_unit: 20, burst: 5"), (20, "second", 5));
    assert_eq!(rate("unit: minute, requests_per_unit: 120"), (2, "second", 120));
    assert_eq!(rate("unit: minute, requests_per_unit: 90"), (90, "minute", 90));
    assert_eq!(rate("unit: day, requests_per_unit: 10"), (10, "day", 10));
    // 1/7 of a request a day: rounded up, never stricter than the rule.
    assert_eq!(rate("per: 7d, requests_per_unit: 1"), (1, "day", 1));
}

#[test]
fn connections_per_request_scale_every_limit_and_round_up() {
    let settings = ExportSettings { connections_per_request: 1_500, ..settings() };
    let export = export_with(ADDRESSES, settings).unwrap();
    let limits = &export.rules[3].limits;
    assert_eq!(
        limits[0].limit,
        KernelLimit::Rate { amount: 30, unit: "second", burst: 150, idle_seconds: 60 }
    );
    assert_eq!(limits[1].limit, KernelLimit::Open { most: 96 });
}

#[test]
fn everything_else_is_named_with_its_reason() {
    let export = export(
        "
domain: d
descriptors:
- {key: user, rate_limit: {unit: second, requests_per_unit: 1}}
- key: address
  address: true
  limits:
  - {name: window, algorithm: sliding_window, unit: second, requests_per_unit: 1}
  - {name: log, algorithm: sliding_log, unit: second, requests_per_unit: 1}
  - {name: leaky, algorithm: leaky_bucket, unit: second, requests_per_unit: 1}
  - {name: some, mode: enforce, enforce_percent: 10, unit: second, requests_per_unit: 1}
  - {name: silent, mode: off, unit: second, requests_per_unit: 1}
  - {name: dear, cost: 5, unit: second, requests_per_unit: 10}
  descriptors:
  - {key: path, rate_limit: {unit: second, requests_per_unit: 1}}
",
    );
    let names: Vec<&str> = export.left_out.iter().map(|one| one.name.as_str()).collect();
    for part in [
        "d: user",
        "limit window",
        "limit log",
        "limit leaky",
        "limit some",
        "limit silent",
        "limit dear",
        "address.path",
    ] {
        assert!(names.iter().any(|name| name.contains(part)), "{part}: {names:?}");
    }
    assert_eq!(names.len(), 8);
    let text = nftables(&export);
    assert!(export.left_out.iter().all(|one| text.contains(&one.reason)), "{text}");
    assert!(text.contains("\t\tjump overflow\n"), "the overflow limit is always there");
}

#[test]
fn without_any_rule_the_overflow_limit_is_still_there() {
    let export = export(
        "domain: d\ndescriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 1}}]\n",
    );
    assert!(nftables(&export).contains("\t\tjump overflow\n"));
    let text = iptables(&export, IpFamily::V4);
    assert!(text.contains("-A TIDEGATE-ARRIVALS -g TIDEGATE-OVERFLOW\n"), "{text}");
}

#[test]
fn the_domain_and_the_key_must_be_clear() {
    let two = "domain: d\ndescriptors:\n- {key: a, address: true, rate_limit: {unit: second, requests_per_unit: 1}}\n- {key: b, address: true, rate_limit: {unit: second, requests_per_unit: 1}}\n";
    let keys = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(export_with(two, settings()), Err(ExportError::WhichKey { keys }));
    let chosen = ExportSettings { key: Some("b".to_owned()), ..settings() };
    assert_eq!(export_with(two, chosen).unwrap().left_out.len(), 1);
    let unknown = ExportSettings { domain: Some("x".to_owned()), ..settings() };
    assert!(matches!(export_with(two, unknown), Err(ExportError::NoDomain { .. })));
}

#[test]
fn no_name_leaves_its_comment() {
    let export = export("
domain: \"d\\n}; flush ruleset #\"
descriptors:
- {key: a, address: true, limits: [{name: \"x\\\"; drop\\n\", algorithm: token_bucket, unit: second, requests_per_unit: 1}]}
- {key: \"k\\n-F\", rate_limit: {unit: second, requests_per_unit: 1}}
");
    for text in
        [nftables(&export), iptables(&export, IpFamily::V4), iptables(&export, IpFamily::V6)]
    {
        let outside: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .map(|line| line.split(" --comment \"").next().unwrap_or_default())
            .collect();
        assert!(!outside.contains("flush") && !outside.contains("-F"), "{text}");
        let quotes = text.lines().map(|line| line.matches('"').count());
        assert!(quotes.into_iter().all(|count| count == 0 || count == 2), "{text}");
    }
}
