//! Which rule a request matches, and which values select its counter.

mod support;

use support::{compiled, entries, find, found};
use tidegate_rules::{KeyValue, Timestamp};

const LAYERED: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10}
    descriptors:
      - key: path
        value: /login
        rate_limit: {unit: second, requests_per_unit: 1}
  - key: user
    value: admin
    rate_limit: {unlimited: true}
  - key: open
  - key: file
    value: img_*
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: file
    value: '*'
    share_threshold: true
    rate_limit: {unit: second, requests_per_unit: 6}
";

#[test]
fn a_bare_key_takes_every_value_and_counts_each_on_its_own() {
    assert_eq!(found(LAYERED, &[("user", "7")]), "user [7]");
    assert_eq!(found(LAYERED, &[("user", "")]), "user []");
}

#[test]
fn an_exact_value_comes_before_the_bare_key() {
    let rule = found(LAYERED, &[("user", "admin")]);
    assert_eq!(rule, "user_admin");
}

#[test]
fn only_the_node_of_the_last_entry_applies() {
    let login = [("user", "7"), ("path", "/login")];
    assert_eq!(found(LAYERED, &login), "user.path_/login [7]");
    let deeper = [("user", "7"), ("path", "/login"), ("method", "POST")];
    assert_eq!(found(LAYERED, &deeper), "none");
    assert_eq!(found(LAYERED, &[("user", "7"), ("path", "/")]), "none");
}

#[test]
fn a_specific_branch_that_ends_is_not_left_for_a_general_one() {
    let login = [("user", "admin"), ("path", "/login")];
    assert_eq!(found(LAYERED, &login), "none");
}

#[test]
fn a_node_without_a_limit_limits_nothing() {
    assert_eq!(found(LAYERED, &[("open", "x")]), "none");
    assert_eq!(found(LAYERED, &[]), "none");
    assert_eq!(found(LAYERED, &[("unknown", "x")]), "none");
}

#[test]
fn the_first_declared_pattern_wins_and_a_shared_one_counts_together() {
    assert_eq!(found(LAYERED, &[("file", "img_1")]), "file_img_* [img_1]");
    assert_eq!(found(LAYERED, &[("file", "doc")]), "file_*");
    assert_eq!(found(LAYERED, &[("file", "")]), "file_*");
}

#[test]
fn a_value_that_is_a_patterns_own_text_is_that_patterns() {
    let rules = "
domain: d
descriptors:
  - {key: k, value: 'a*', rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: k, value: 'ab*', rate_limit: {unit: second, requests_per_unit: 1}}
";
    assert_eq!(found(rules, &[("k", "abc")]), "k_a* [abc]");
    assert_eq!(found(rules, &[("k", "ab*")]), "k_ab* [ab*]");
}

#[test]
fn keys_and_values_are_compared_apart_and_not_as_one_joined_text() {
    let rules = "
domain: d
descriptors:
  - {key: a, value: b_c, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: a_b, value: c, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: 'x*', rate_limit: {unit: second, requests_per_unit: 3}}
";
    let snapshot = compiled(rules);
    let limit_of = |key, value| {
        let found = find(&snapshot, &[(key, value)]);
        found.map(|found| snapshot.limits_of(found.rule)[0].limit.algorithm().quota())
    };
    assert_eq!(limit_of("a", "b_c"), Some(1));
    assert_eq!(limit_of("a_b", "c"), Some(2));
    assert_eq!(limit_of("a_b", "b_c"), None);
    assert_eq!(limit_of("xy", "1"), None, "a star in a key is a star");
    assert_eq!(limit_of("x*", "1"), Some(3));
}

const ADDRESSES: &str = "
domain: net
descriptors:
  - key: ip
    address: true
    rate_limit: {unit: minute, requests_per_unit: 60}
  - key: ip
    cidr: 10.0.0.0/8
    rate_limit: {unit: minute, requests_per_unit: 600}
  - key: ip
    cidr: [10.1.0.0/16, 2001:db8::/32]
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 6000}
  - key: office
    address: {v4: 24, v6: 48}
    rate_limit: {unit: minute, requests_per_unit: 60}
";

#[test]
fn the_longest_range_wins_and_other_addresses_go_to_the_bare_key() {
    assert_eq!(found(ADDRESSES, &[("ip", "10.2.3.4")]), "ip_10.0.0.0/8 [10.2.3.4/32]");
    assert_eq!(found(ADDRESSES, &[("ip", "10.1.3.4")]), "ip_10.1.0.0/16,2001:db8::/32");
    assert_eq!(found(ADDRESSES, &[("ip", "2001:db8::1")]), "ip_10.1.0.0/16,2001:db8::/32");
    assert_eq!(found(ADDRESSES, &[("ip", "192.0.2.1")]), "ip [192.0.2.1/32]");
}

#[test]
fn addresses_are_counted_by_network_in_one_form() {
    assert_eq!(found(ADDRESSES, &[("ip", "2001:DB9:0:1::5")]), "ip [2001:db9:0:1::/64]");
    assert_eq!(found(ADDRESSES, &[("ip", "::ffff:10.2.3.4")]), "ip_10.0.0.0/8 [10.2.3.4/32]");
    assert_eq!(found(ADDRESSES, &[("office", "192.0.2.77")]), "office [192.0.2.0/24]");
    assert_eq!(found(ADDRESSES, &[("office", "2001:db8:1:2::3")]), "office [2001:db8:1::/48]");
}

#[test]
fn a_value_that_is_no_address_is_still_limited_under_its_text() {
    assert_eq!(found(ADDRESSES, &[("ip", "localhost")]), "ip [localhost]");
}

const PLANS: &str = "
domain: shop
plans:
  free: {limits: [{name: rate, unit: minute, requests_per_unit: 10}]}
  pro: {limits: [{name: rate, unit: minute, requests_per_unit: 100}, {unit: day, requests_per_unit: 9}]}
  staff: {limits: [{unlimited: true}]}
descriptors:
  - key: user
    descriptors:
      - key: plan
        plan: {from: value, default: free}
  - key: team
    descriptors:
      - key: plan
        plan: {from: value}
  - key: partner
    plan: pro
";

#[test]
fn the_value_chooses_the_plan_and_not_the_counter() {
    let snapshot = compiled(PLANS);
    let of = |plan| {
        let found = find(&snapshot, &[("user", "7"), ("plan", plan)]).unwrap();
        let limits = snapshot.limits_of(found.rule);
        let identity = limits.first().map(|limit| limit.identity);
        (found.rule.plan().unwrap().to_owned(), limits.len(), identity, found.values.to_vec())
    };
    let (free, pro) = (of("free"), of("pro"));
    assert_eq!((free.0.as_str(), free.1), ("free", 1));
    assert_eq!((pro.0.as_str(), pro.1), ("pro", 2));
    assert_eq!(free.2, pro.2, "usage survives a change of plan");
    assert_eq!(pro.3, [KeyValue::Text("7")]);
    assert_eq!(of("no such plan").0, "free");
    assert_eq!((of("staff").0.as_str(), of("staff").1), ("staff", 0));
}

#[test]
fn a_value_that_names_no_plan_is_not_limited_without_a_default() {
    assert_eq!(found(PLANS, &[("team", "7"), ("plan", "gold")]), "none");
    assert_eq!(found(PLANS, &[("team", "7"), ("plan", "free")]), "team.plan [7]");
    assert_eq!(found(PLANS, &[("partner", "x")]), "partner [x]");
}

#[test]
fn explains_what_was_tried_at_each_level_and_why_it_ended_so() {
    let text = |rules, request: &[(&str, &str)]| {
        let snapshot = compiled(rules);
        let domain = snapshot.domains().next().unwrap();
        domain.explain(&entries(request), Timestamp::EPOCH).to_string()
    };
    let login = text(LAYERED, &[("user", "7"), ("path", "/login")]);
    assert_eq!(
        login,
        "domain api\n\
         1. (user, 7)\n   exact value: no match\n   bare key: matches user\n   counted apart by 7\n\
         2. (path, /login)\n   exact value: matches path_/login\n\
         rule user.path_/login applies: 1 limit\n"
    );
    let stuck = text(LAYERED, &[("user", "admin"), ("path", "/login")]);
    assert!(stuck.ends_with("a less specific rule is not tried\n"), "{stuck}");
    let unknown = text(LAYERED, &[("usr", "7")]);
    assert!(unknown.contains("known are: file, open, user"), "{unknown}");
    let range = text(ADDRESSES, &[("ip", "10.1.9.9")]);
    assert!(
        range.contains("address ranges: 10.1.0.0/16 matches ip_10.1.0.0/16,2001:db8::/32"),
        "{range}"
    );
    let plan = text(PLANS, &[("team", "7"), ("plan", "gold")]);
    assert!(plan.contains("names no plan"), "{plan}");
    assert!(text(LAYERED, &[("open", "1")]).contains("which has none"));
    assert!(text(LAYERED, &[]).contains("without entries"));
}
