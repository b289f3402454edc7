//! What counters are kept under: the same for ever, and never shared.

mod support;

use std::collections::HashSet;

use support::compiled;

fn identities(descriptors: &str) -> Vec<u64> {
    let snapshot = compiled(&format!("domain: d\ndescriptors: {descriptors}\n"));
    snapshot.limits().iter().map(|limit| limit.identity).collect()
}

/// These numbers are in stores out there. If this fails, every counter is lost.
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
