//! Which fields a verdict becomes.

mod support;

use proptest::prelude::*;
use sfv::{ListEntry, Parser};
use support::{check, engine, fields, user_limits};
use tidegate_answers::{HeaderFormat, HeaderSet, Notice, POLICIES_MAX, ResetAs};
use tidegate_engine::{Descriptor, Entry, Nanos, Retry, Timestamp};

const TWO_A_MINUTE: &str =
    "{name: burst, algorithm: token_bucket, unit: minute, requests_per_unit: 2}";

#[test]
fn the_default_set_is_the_books_and_the_drafts() {
    let engine = user_limits(TWO_A_MINUTE);
    let admitted = [
        "x-ratelimit-limit: 2",
        "x-ratelimit-remaining: 1",
        "ratelimit-policy: \"burst\";q=2;w=60",
        "ratelimit: \"burst\";r=1;t=30",
    ];
    assert_eq!(fields(HeaderSet::default(), &check(&engine, 1)), admitted);
    check(&engine, 1);
    let refused = [
        "retry-after: 30",
        "x-ratelimit-limit: 2",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-retry-after: 30",
        "ratelimit-policy: \"burst\";q=2;w=60",
        "ratelimit: \"burst\";r=0;t=30",
    ];
    assert_eq!(fields(HeaderSet::default(), &check(&engine, 1)), refused);
}

#[test]
fn a_reset_is_a_delta_or_an_instant() {
    let engine = user_limits("{unit: minute, requests_per_unit: 2}");
    engine.clock().advance(Nanos::from_millis(20_500));
    let verdict = check(&engine, 1);
    let now = Timestamp::from_secs(1_699_920_020).after(Nanos::from_millis(500));
    let reset = |format| {
        let set = HeaderSet::NONE.with(HeaderFormat::XReset(format));
        let fields = set.fields(&Notice::of(&verdict), now);
        let mut fields = fields.iter().filter(|(name, _)| name.as_str() == "x-ratelimit-reset");
        fields.next().unwrap().1.to_str().unwrap().to_owned()
    };
    assert_eq!(reset(ResetAs::DeltaSeconds), "40");
    assert_eq!(reset(ResetAs::EpochSeconds), "1699920060");
}

#[test]
fn formats_go_together_in_any_combination() {
    let engine = user_limits(TWO_A_MINUTE);
    let verdict = check(&engine, 1);
    let all = HeaderSet::default()
        .with(HeaderFormat::XReset(ResetAs::DeltaSeconds))
        .with(HeaderFormat::Legacy);
    let expected = [
        "x-ratelimit-limit: 2",
        "x-ratelimit-remaining: 1",
        "x-ratelimit-reset: 30",
        "ratelimit-limit: 2",
        "ratelimit-remaining: 1",
        "ratelimit-reset: 30",
        "ratelimit-policy: \"burst\";q=2;w=60",
        "ratelimit: \"burst\";r=1;t=30",
    ];
    assert_eq!(fields(all, &verdict), expected);
    assert_eq!(fields(HeaderSet::NONE, &verdict), [""; 0]);
    check(&engine, 1);
    assert_eq!(fields(HeaderSet::NONE, &check(&engine, 1)), ["retry-after: 30"]);
}

#[test]
fn retry_after_is_rounded_up_to_whole_seconds_and_at_least_one() {
    let cases = [
        ("per: 90s", "retry-after: 90"),
        ("per: 1500ms", "retry-after: 2"),
        ("per: 5ms", "retry-after: 1"),
    ];
    for (per, expected) in cases {
        let engine =
            user_limits(&format!("{{algorithm: token_bucket, {per}, requests_per_unit: 1}}"));
        check(&engine, 1);
        assert_eq!(fields(HeaderSet::NONE, &check(&engine, 1)), [expected], "{per}");
    }
}

#[test]
fn a_cost_that_can_never_fit_is_not_told_to_come_back() {
    let engine = user_limits(TWO_A_MINUTE);
    let verdict = check(&engine, 3);
    assert_eq!(Notice::of(&verdict).retry(), Retry::Never);
    let expected = [
        "x-ratelimit-limit: 2",
        "x-ratelimit-remaining: 2",
        "ratelimit-policy: \"burst\";q=2;w=60",
        "ratelimit: \"burst\";r=2;t=0",
    ];
    assert_eq!(fields(HeaderSet::default(), &verdict), expected);
}

#[test]
fn a_window_under_a_second_is_left_out_and_a_broken_one_rounded_up() {
    let set = HeaderSet::NONE.with(HeaderFormat::Draft11);
    let policy = |per: &str| {
        let engine = user_limits(&format!("{{name: a, {per}, requests_per_unit: 9}}"));
        fields(set, &check(&engine, 1)).swap_remove(0)
    };
    assert_eq!(policy("per: 500ms"), "ratelimit-policy: \"a\";q=9");
    assert_eq!(policy("per: 1500ms"), "ratelimit-policy: \"a\";q=9;w=2");
    assert_eq!(policy("unit: day"), "ratelimit-policy: \"a\";q=9;w=86400");
}

#[test]
fn concurrency_has_a_unit_instead_of_a_window_and_a_short_wait() {
    let engine = user_limits("{name: flight, algorithm: concurrency, requests_per_unit: 1}");
    let set = HeaderSet::default().with(HeaderFormat::Legacy);
    let held = check(&engine, 1);
    let admitted = [
        "x-ratelimit-limit: 1",
        "x-ratelimit-remaining: 0",
        "ratelimit-limit: 1",
        "ratelimit-remaining: 0",
        "ratelimit-policy: \"flight\";q=1;qu=\"concurrent-requests\"",
        "ratelimit: \"flight\";r=0",
    ];
    assert_eq!(fields(set, &held), admitted);
    let refused = fields(set, &check(&engine, 1));
    assert!(refused.contains(&"retry-after: 1".to_owned()), "{refused:?}");
    assert!(refused.contains(&"ratelimit: \"flight\";r=0;t=1".to_owned()), "{refused:?}");
}

#[test]
fn slots_in_flight_are_told_in_plain_numbers_only_when_they_refuse_or_stand_alone() {
    let engine = user_limits(
        "{algorithm: concurrency, requests_per_unit: 1}, {unit: day, requests_per_unit: 9}",
    );
    assert_eq!(fields(HeaderSet::default(), &check(&engine, 1))[1], "x-ratelimit-remaining: 8");
    let refused = fields(HeaderSet::default(), &check(&engine, 1));
    assert_eq!(refused[1..3], ["x-ratelimit-limit: 1", "x-ratelimit-remaining: 0"]);
}

#[test]
fn several_limits_are_listed_and_the_tightest_is_told_in_plain_numbers() {
    let engine = user_limits(
        "{name: second, unit: second, requests_per_unit: 3}, {unit: hour, requests_per_unit: 2}, \
         {unit: day, requests_per_unit: 9}",
    );
    let expected = [
        "x-ratelimit-limit: 2",
        "x-ratelimit-remaining: 1",
        "ratelimit-policy: \"second\";q=3;w=1, \"user#2\";q=2;w=3600, \"user#3\";q=9;w=86400",
        "ratelimit: \"second\";r=2;t=1, \"user#2\";r=1;t=3600, \"user#3\";r=8;t=86400",
    ];
    assert_eq!(fields(HeaderSet::default(), &check(&engine, 1)), expected);
}

#[test]
fn a_refusal_lists_what_refused_so_that_no_window_outlasts_retry_after() {
    let engine = user_limits(
        "{name: second, unit: second, requests_per_unit: 1}, \
         {name: hour, unit: hour, requests_per_unit: 9}",
    );
    check(&engine, 1);
    let refused = fields(HeaderSet::NONE.with(HeaderFormat::Draft11), &check(&engine, 1));
    let expected = [
        "retry-after: 1",
        "ratelimit-policy: \"second\";q=1;w=1, \"hour\";q=9;w=3600",
        "ratelimit: \"second\";r=0;t=1",
    ];
    assert_eq!(refused, expected);
}

#[test]
fn a_limit_in_shadow_is_never_shown() {
    let engine = user_limits(
        "{name: dark, unit: minute, requests_per_unit: 1, mode: shadow}, \
         {name: lit, unit: minute, requests_per_unit: 5}",
    );
    check(&engine, 1);
    let verdict = check(&engine, 1);
    assert!(verdict.refused_in_shadow());
    let shown = fields(HeaderSet::default(), &verdict).join("\n");
    assert!(shown.contains("x-ratelimit-limit: 5") && !shown.contains("dark"), "{shown}");

    let engine = user_limits("{name: dark, unit: minute, requests_per_unit: 0, mode: shadow}");
    assert_eq!(fields(HeaderSet::default(), &check(&engine, 1)), [""; 0]);
}

#[test]
fn nothing_is_told_when_switched_off_or_unmatched() {
    let engine = user_limits(TWO_A_MINUTE);
    engine.switch_off(true);
    assert_eq!(fields(HeaderSet::default(), &check(&engine, 1)), [""; 0]);
    let engine = self::engine("- {key: other, limits: [{unit: day, requests_per_unit: 1}]}");
    assert_eq!(fields(HeaderSet::default(), &check(&engine, 1)), [""; 0]);
}

#[test]
fn of_alternatives_that_all_refuse_the_shortest_wait_is_told() {
    let engine = engine(
        "- {key: user, quota_mode: true, limits: [{name: hourly, unit: hour, requests_per_unit: 1}]}\n\
         - {key: team, quota_mode: true, limits: [{name: minutely, unit: minute, requests_per_unit: 1}]}",
    );
    let user = [Entry { key: "user", value: "7" }];
    let team = [Entry { key: "team", value: "1" }];
    let descriptors = [Descriptor::new(&user), Descriptor::new(&team)];
    let request = tidegate_engine::Request::new("api", &descriptors);
    engine.check_now(&request);
    let verdict = engine.check_now(&request);
    assert!(!verdict.is_admitted());
    let notice = Notice::of(&verdict);
    assert_eq!(notice.retry_after_seconds(), Some(60));
    let violated: Vec<String> = notice.violated().map(|policy| policy.name().to_string()).collect();
    assert_eq!(violated, ["hourly", "minutely"]);
}

#[test]
fn a_limit_met_twice_is_told_once_and_as_its_tightest() {
    let engine = user_limits(TWO_A_MINUTE);
    check(&engine, 1);
    let seven = [Entry { key: "user", value: "7" }];
    let eight = [Entry { key: "user", value: "8" }];
    let descriptors = [Descriptor::new(&eight), Descriptor::new(&seven)];
    let verdict = engine.check_now(&tidegate_engine::Request::new("api", &descriptors));
    let shown = fields(HeaderSet::NONE.with(HeaderFormat::Draft11), &verdict);
    assert_eq!(shown[1], "ratelimit: \"burst\";r=0;t=60");
}

#[test]
fn of_very_many_limits_the_tightest_are_told() {
    let limits: Vec<String> = (1..=40)
        .map(|place| {
            let amount = 41 - place;
            format!("{{name: l{place}, unit: day, requests_per_unit: {amount}}}")
        })
        .collect();
    let engine = user_limits(&limits.join(", "));
    let verdict = check(&engine, 1);
    let notice = Notice::of(&verdict);
    assert_eq!(notice.policies().len(), POLICIES_MAX);
    let most = notice.policies().iter().map(|policy| policy.quota()).max();
    assert_eq!(most, Some(16));
    assert_eq!(notice.tightest().unwrap().name().to_string(), "l40");
}

proptest! {
    #[test]
    fn the_drafts_fields_are_valid_for_any_rule(
        name in "[ -~\u{a0}-\u{fff}]{1,60}",
        amount in 0..=u64::from(u32::MAX),
        seconds in 1..=31_622_400_u64,
        cost in 0..5_u64,
        calls in 1..4_usize,
    ) {
        let name = serde_json::Value::from(name);
        let engine = user_limits(&format!(
            "{{name: {name}, per: {seconds}s, requests_per_unit: {amount}}}",
        ));
        for _ in 0..calls {
            let verdict = check(&engine, cost);
            let notice = Notice::of(&verdict);
            let shown = notice.policies()[0].name().to_string();
            for line in fields(HeaderSet::NONE.with(HeaderFormat::Draft11), &verdict) {
                let (field, value) = line.split_once(": ").unwrap();
                if field == "retry-after" {
                    prop_assert!(value.parse::<u64>().unwrap() >= 1);
                    continue;
                }
                let list: sfv::List = Parser::new(value).parse().unwrap();
                prop_assert_eq!(list.len(), 1);
                let ListEntry::Item(item) = &list[0] else { panic!("{value} has no item") };
                prop_assert_eq!(item.bare_item.as_string().unwrap().as_str(), shown.as_str());
                let required = if field == "ratelimit" { "r" } else { "q" };
                prop_assert!(item.params.get(required).unwrap().as_integer().is_some());
            }
        }
    }
}

#[test]
fn limits_that_change_under_the_same_name_are_told_as_they_are_now() {
    let policy = |limit: &str| {
        let lines = fields(HeaderSet::default(), &check(&user_limits(limit), 1));
        lines.into_iter().find(|line| line.starts_with("ratelimit-policy")).unwrap()
    };
    let limits = [
        ("{name: a, unit: minute, requests_per_unit: 2}", "\"a\";q=2;w=60"),
        ("{name: a, unit: minute, requests_per_unit: 3}", "\"a\";q=3;w=60"),
        ("{name: a, unit: hour, requests_per_unit: 3}", "\"a\";q=3;w=3600"),
        ("{name: b, unit: hour, requests_per_unit: 3}", "\"b\";q=3;w=3600"),
        (
            "{name: b, algorithm: concurrency, requests_per_unit: 3, time_to_live: 1h}",
            "\"b\";q=3;qu=\"concurrent-requests\"",
        ),
        ("{unit: hour, requests_per_unit: 3}", "\"user\";q=3;w=3600"),
        (
            "{unit: hour, requests_per_unit: 3}, {unit: day, requests_per_unit: 4}",
            "\"user\";q=3;w=3600, \"user#2\";q=4;w=86400",
        ),
    ];
    // Twice, so that each policy also follows another one.
    for (limit, expected) in limits.iter().chain(&limits) {
        assert_eq!(policy(limit), format!("ratelimit-policy: {expected}"));
    }
}
