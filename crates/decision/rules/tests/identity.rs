//! The identities of counters: they never change, and no two limits share one.

mod support;

use std::collections::HashSet;

use support::compiled;

fn identities(descriptors: &str) -> Vec<u64> {
    let snapshot = compiled(&format!("domain: d\ndescriptors: {descriptors}\n"));
    snapshot.limits().iter().map(|limit| limit.identity).collect()
}

/// Deployed stores hold these numbers. If this test fails, every stored counter is lost.
#[test]
fn identities_never_change() {
    let rules = "[{key: user, value: 'a*', limits: [
        {unit: second, requests_per_unit: 1},
        {name: daily, algorithm: token_bucket, unit: day, requests_per_unit: 1}]},
      {key: ip, cidr: 10.0.0.0/8, rate_limit: {unit: second, requests_per_unit: 1}},
      {key: path, descriptors: [{key: m, value: GET, rate_limit: {unit: second, requests_per_unit: 1}}]}]";
    assert_eq!(
        identities(rules),
        [17275501827473150358, 4980997120121272214, 6494069184439172657, 2454965557248918849]
    );
}

/// The same for each algorithm, and for every other part of an identity.
#[test]
fn identities_of_every_algorithm_and_kind_of_rule_never_change() {
    let limits = "limits: [
        {algorithm: fixed_window, unit: day, requests_per_unit: 1},
        {algorithm: sliding_window, unit: day, requests_per_unit: 1},
        {algorithm: sliding_log, unit: day, requests_per_unit: 1},
        {algorithm: token_bucket, unit: day, requests_per_unit: 1},
        {algorithm: leaky_bucket, unit: day, requests_per_unit: 1},
        {algorithm: concurrency, requests_per_unit: 1}]";
    let by_algorithm = identities(&format!("[{{key: k, {limits}}}]"));
    assert_eq!(
        by_algorithm,
        [
            380820253673541159,
            11327679409966806588,
            3893832793179753738,
            13619701585052542042,
            14003400484553450473,
            5656419722180864958
        ]
    );

    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let by_kind = identities(&format!(
        "[{{key: value, value: v, {limit}}},
          {{key: pattern, value: 'v*', share_threshold: true, {limit}}},
          {{key: address, address: true, {limit}}},
          {{key: networks, address: {{v4: 24, v6: 48}}, {limit}}},
          {{key: ranges, cidr: [10.0.0.0/8, '2001:db8::/32'], {limit}}},
          {{key: calendar, rate_limit: {{unit: day, requests_per_unit: 1, calendar: true}}}},
          {{key: leased, rate_limit: {{unit: day, requests_per_unit: 1, consistency: leased}}}},
          {{key: eventual, rate_limit: {{unit: day, requests_per_unit: 1, consistency: eventual}}}},
          {{key: soft, rate_limit: {{unit: day, requests_per_unit: 1, soft: {{over: 20%, for: 30s}}}}}},
          {{key: quota, quota_mode: true, {limit}}}]"
    ));
    assert_eq!(
        by_kind,
        [
            4972643729895710333,
            6834233770417285624,
            12062138375814121032,
            2996244211533622859,
            13011499888325493043,
            15627675039034682111,
            4794760172984304691,
            11081726068069412550,
            2343582507967364102,
            14246951151545008979
        ]
    );

    let planned = compiled(
        "domain: d
plans:
  free: {limits: [{name: rate, unit: day, requests_per_unit: 1}]}
  paid: {limits: [{name: rate, unit: day, requests_per_unit: 9}, {unit: second, requests_per_unit: 9}]}
descriptors:
  - {key: plan, plan: {from: value, default: free}}
  - {key: partner, plan: paid}
",
    );
    let by_plan: Vec<u64> = planned.limits().iter().map(|limit| limit.identity).collect();
    assert_eq!(
        by_plan,
        [
            3244578558440788359,
            3244578558440788359,
            16846023694254844495,
            1997956101814546129,
            7389431323952516249
        ]
    );
}

#[test]
fn changed_numbers_modes_and_units_keep_the_identity() {
    let before = identities("[{key: k, rate_limit: {unit: second, requests_per_unit: 1}}]");
    let after = identities(
        "[{key: k, mode: shadow, limits: [{per: 5m, requests_per_unit: 9, cost: 2, count_refused: true}]}]",
    );
    assert_eq!(before, after);
}

#[test]
fn a_named_limit_keeps_its_identity_when_the_list_changes() {
    let limit = "{name: daily, unit: day, requests_per_unit: 1}";
    let before = identities(&format!("[{{key: k, limits: [{limit}]}}]"));
    let after = identities(&format!(
        "[{{key: k, limits: [{{unit: second, requests_per_unit: 1}}, {limit}]}}]"
    ));
    assert_eq!(before[0], after[1]);
}

#[test]
fn the_order_of_ranges_does_not_matter() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let one = identities(&format!("[{{key: k, cidr: [10.0.0.0/8, 11.0.0.0/8], {limit}}}]"));
    let other = identities(&format!("[{{key: k, cidr: [11.0.0.0/8, 10.0.0.0/8], {limit}}}]"));
    assert_eq!(one, other);
}

#[test]
fn another_place_kind_or_algorithm_is_another_identity() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let variants = [
        format!("[{{key: a, {limit}}}]"),
        format!("[{{key: b, {limit}}}]"),
        format!("[{{key: a, value: b, {limit}}}]"),
        format!("[{{key: ab, {limit}}}]"),
        format!("[{{key: a, value: 'b*', {limit}}}]"),
        format!("[{{key: a, value: b_c, {limit}}}]"),
        format!("[{{key: a_b, value: c, {limit}}}]"),
        format!("[{{key: a, value: 10.0.0.0/8, {limit}}}]"),
        format!("[{{key: a, cidr: 10.0.0.0/8, {limit}}}]"),
        format!("[{{key: a, descriptors: [{{key: a, {limit}}}]}}]"),
        "[{key: a, rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 1}}]"
            .into(),
        "[{key: a, rate_limit: {name: '0', unit: second, requests_per_unit: 1}}]".into(),
    ];
    let all: HashSet<u64> = variants.iter().flat_map(|rules| identities(rules)).collect();
    assert_eq!(all.len(), variants.len());
}

#[test]
fn two_domains_do_not_share_counters() {
    let of = |domain: &str| {
        let rules = format!(
            "domain: {domain}\ndescriptors: [{{key: k, rate_limit: {{unit: second, requests_per_unit: 1}}}}]\n"
        );
        compiled(&rules).limits()[0].identity
    };
    assert_ne!(of("a"), of("b"));
}
