//! Prometheus names as envoyproxy/ratelimit shows them, with its own mapping file and with others.

use std::time::Duration;

use tidegate_document::Source;
use tidegate_statsd::{NameMapping, StatsReading, Timer, UpstreamMetrics};

fn reading(counts: &[(&str, u64)]) -> StatsReading {
    let mut reading = StatsReading::default();
    for (name, count) in counts {
        reading.add((*name).to_owned(), *count);
    }
    reading
}

fn timer(name: &str) -> Timer {
    let buckets = vec![(Some(1_000), 3), (Some(25_000), 1), (None, 1)];
    Timer { name: name.to_owned(), buckets, sum: Duration::from_millis(2_003) }
}

/// The samples of a page, without help and type.
fn samples(page: &str) -> Vec<&str> {
    page.lines().filter(|line| !line.starts_with('#')).collect()
}

fn mapping(text: &str) -> NameMapping {
    NameMapping::parse(&Source::new("mapping.yaml", text))
        .unwrap_or_else(|report| panic!("{report}"))
}

#[test]
fn the_default_mapping_gives_the_names_of_upstream() {
    let page = UpstreamMetrics::new(NameMapping::default(), &[], false);
    let text = page.render(&reading(&[
        ("ratelimit.service.rate_limit.shop.user.total_hits", 5),
        ("ratelimit.service.rate_limit.shop.user.shadow_mode", 0),
        ("ratelimit.service.rate_limit.shop.a.b.total_hits", 1),
        ("ratelimit.service.rate_limit.shop.a.b.c_x.y.total_hits", 1),
        ("ratelimit.service.rate_limit.nope.domain_not_found", 1),
        ("ratelimit.service.call.should_rate_limit.service_error", 1),
        ("ratelimit.service.config_load_success", 1),
        ("ratelimit_server.ShouldRateLimit.total_requests", 14),
    ]));
    // What the real envoyproxy/ratelimit shows after the same requests.
    let expected = [
        "ratelimit_service_config_load_success 1",
        "ratelimit_service_rate_limit_nope_domain_not_found 1",
        r#"ratelimit_service_rate_limit_total_hits{domain="shop",key1="a",key2="b"} 2"#,
        r#"ratelimit_service_rate_limit_total_hits{domain="shop",key1="user"} 5"#,
        r#"ratelimit_service_should_rate_limit_error{err_type="service_error"} 1"#,
        r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 14"#,
    ];
    assert_eq!(samples(&text), expected);
    assert!(text.contains("# TYPE ratelimit_service_rate_limit_total_hits counter\n"), "{text}");
}

#[test]
fn durations_are_a_histogram_in_seconds_or_milliseconds() {
    let timers = vec![timer("ratelimit_server.ShouldRateLimit.response_time")];
    let reading = StatsReading { timers, ..StatsReading::default() };
    let seconds = UpstreamMetrics::new(NameMapping::default(), &[], false).render(&reading);
    let family = "ratelimit_service_response_time_seconds";
    let method = r#"grpc_method="ShouldRateLimit""#;
    for line in [
        format!(r#"{family}_bucket{{{method},le="0.005"}} 3"#),
        format!(r#"{family}_bucket{{{method},le="0.025"}} 4"#),
        format!(r#"{family}_bucket{{{method},le="10"}} 4"#),
        format!(r#"{family}_bucket{{{method},le="+Inf"}} 5"#),
        format!("{family}_sum{{{method}}} 2.003"),
        format!("{family}_count{{{method}}} 5"),
    ] {
        assert!(samples(&seconds).contains(&line.as_str()), "{line}: {seconds}");
    }
    let millis = UpstreamMetrics::new(NameMapping::default(), &[], true).render(&reading);
    let line = format!(r#"{family}_bucket{{{method},le="1"}} 3"#);
    assert!(samples(&millis).contains(&line.as_str()), "{millis}");
}

#[test]
fn globs_win_over_regular_expressions_and_the_first_of_each_kind_wins() {
    let own = mapping(
        r#"
mappings:
  - {match: 'a\.(.*)', match_type: regex, name: by_regex, labels: {rest: "$1"}}
  - {match: "a.*", name: first_glob, labels: {field: "$1"}, match_metric_type: gauge}
  - {match: "a.b", name: second_glob, help: Mine., scale: 10}
  - {match: "gone.*", name: dropped, action: drop}
"#,
    );
    let mut stats = reading(&[("a.b", 2), ("a.b.c", 1), ("gone.x", 1), ("other-name", 1)]);
    stats.gauges.insert("a.g".to_owned(), 7);
    let text = UpstreamMetrics::new(own, &[], false).render(&stats);
    let expected = [
        r#"by_regex{rest="b.c"} 1"#,
        r#"first_glob{field="g"} 7"#,
        "other_name 1",
        "second_glob 20",
    ];
    assert_eq!(samples(&text), expected);
    assert!(text.contains("# HELP second_glob Mine.\n"), "{text}");
}

#[test]
fn without_ordering_the_most_literal_glob_wins() {
    let text = "
defaults: {glob_disable_ordering: true}
mappings:
  - {match: 'a.*', name: any_field}
  - {match: 'a.b', name: literal}
";
    let text = UpstreamMetrics::new(mapping(text), &[], false).render(&reading(&[("a.b", 1)]));
    assert_eq!(samples(&text), ["literal 1"]);
}

#[test]
fn a_timer_without_a_mapping_is_a_summary() {
    let reading = StatsReading { timers: vec![timer("t")], ..StatsReading::default() };
    let text = UpstreamMetrics::new(mapping("mappings: []"), &[], false).render(&reading);
    let expected = [
        r#"t{quantile="0.5"} 0.0005"#,
        r#"t{quantile="0.9"} 0.025"#,
        r#"t{quantile="0.99"} 0.025"#,
        "t_sum 2.003",
        "t_count 5",
    ];
    assert_eq!(samples(&text), expected);
}

#[test]
fn tags_are_part_of_the_name_that_is_mapped() {
    let tags = [("zone".to_owned(), "a".to_owned())];
    let name = "ratelimit.service.config_load_success";
    let text =
        UpstreamMetrics::new(NameMapping::default(), &tags, false).render(&reading(&[(name, 1)]));
    assert_eq!(samples(&text), ["ratelimit_service_config_load_success___zone_a 1"]);
}

#[test]
fn problems_of_a_file_are_reported_all_at_once_and_unknown_keys_are_accepted() {
    let text = r#"
mappings:
  - {match: "a b", name: fine, ttl: 5m}
  - {match: "a.b", name: "not fine"}
  - {match: "(", match_type: regex, name: fine}
  - {match: "a", name: fine, labels: {k: v}, action: keep}
  - {match: "a"}
"#;
    let report = NameMapping::parse(&Source::new("mapping.yaml", text)).unwrap_err().to_string();
    for wanted in
        ["`a b` is not a pattern", "`not fine`", "`(` is not", "`k`", "`keep`", "needs `name`"]
    {
        assert!(report.contains(wanted), "{wanted}: {report}");
    }
    assert!(!report.contains("unknown key"), "{report}");
}
