//! What each kind of rule and request is answered, over a real connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tidegate_engine::{DESCRIPTORS_MAX, Engine, FailureMode, Nanos, Options};
use tidegate_rls::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tidegate_rls::{HeaderNames, RlsSettings};
use tonic::Code;

use crate::support::{
    Door, Down, Later, costing, descriptor, door, door_of, door_to, door_with, limited, memory,
    request, rules, rules_with, user,
};

const PER_MINUTE: &str = "- {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}";

fn settings(change: impl FnOnce(&mut RlsSettings)) -> RlsSettings {
    let mut settings = RlsSettings::default();
    change(&mut settings);
    settings
}

fn compat() -> Options {
    Options { compat: true, ..Options::default() }
}

#[tokio::test]
async fn a_limit_counts_down_and_then_refuses_until_its_window_ends() {
    let door = door(PER_MINUTE);
    door.clock.advance(Nanos::from_millis(20_500));
    let ask = || door.ask(request([user()]));
    assert_eq!(ask().await, ["OK", "OK 3/MINUTE, 2 left, 40s"]);
    assert_eq!(ask().await, ["OK", "OK 3/MINUTE, 1 left, 40s"]);
    assert_eq!(ask().await, ["OK", "OK 3/MINUTE, 0 left, 40s"]);
    assert_eq!(ask().await, ["OVER_LIMIT", "OVER_LIMIT 3/MINUTE, 0 left, 40s"]);
    door.clock.advance(Nanos::from_millis(39_499));
    assert_eq!(ask().await, ["OVER_LIMIT", "OVER_LIMIT 3/MINUTE, 0 left, 1s"]);
    door.clock.advance(Nanos::from_millis(1));
    assert_eq!(ask().await, ["OK", "OK 3/MINUTE, 2 left, 60s"]);
}

#[tokio::test]
async fn each_descriptor_has_a_status_in_order() {
    let door = door(
        "- {key: user, rate_limit: {unit: day, requests_per_unit: 3, name: daily}}
- {key: plan, value: gold}
- {key: plan, value: team, rate_limit: {unlimited: true}}",
    );
    let answer = door
        .ask(request([
            descriptor(&[("nobody", "x")]),
            user(),
            descriptor(&[("plan", "gold")]),
            descriptor(&[("plan", "team")]),
            descriptor(&[]),
            descriptor(&[("user", "7"), ("path", "/")]),
        ]))
        .await;
    let expected = [
        "OK",
        "OK, 0 left",
        "OK 3/DAY \"daily\", 2 left, 86400s",
        "OK, 0 left",
        "OK, 4294967295 left",
        "OK, 0 left",
        "OK, 0 left",
    ];
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn an_unknown_domain_limits_nothing_not_even_by_the_requests_own_limit() {
    let door = door(PER_MINUTE);
    let mut asked = request([user(), limited(0, 1, user())]);
    asked.domain = "other".to_owned();
    assert_eq!(door.ask(asked).await, ["OK", "OK, 0 left", "OK, 0 left"]);
}

#[tokio::test]
async fn hits_are_those_of_the_descriptor_or_the_request_or_one() {
    let door = door("- {key: user, rate_limit: {unit: hour, requests_per_unit: 20}}");
    let mut asked = request([user(), costing(5, descriptor(&[("user", "8")]))]);
    asked.hits_addend = 3;
    let first = ["OK", "OK 20/HOUR, 17 left, 3600s", "OK 20/HOUR, 15 left, 3600s"];
    assert_eq!(door.ask(asked).await, first);
    let zero_means_one = door.ask(request([user()])).await;
    assert_eq!(zero_means_one, ["OK", "OK 20/HOUR, 16 left, 3600s"]);
    for _ in 0..2 {
        let probe = door.ask(request([costing(0, user())])).await;
        assert_eq!(probe, ["OK", "OK 20/HOUR, 16 left, 3600s"]);
    }
}

#[tokio::test]
async fn a_probe_at_exactly_the_limit_is_ok() {
    for options in [Options::default(), compat()] {
        let door = door_with(rules_with(PER_MINUTE, options), RlsSettings::default());
        door.ask(request([costing(3, user())])).await;
        let probe = || door.ask(request([costing(0, user())]));
        assert_eq!(probe().await, ["OK", "OK 3/MINUTE, 0 left, 60s"]);
        assert_eq!(door.ask(request([user()])).await[0], "OVER_LIMIT");
        // Upstream counts the refused hit, and a probe then sees the excess.
        let excess = if options.compat { "OVER_LIMIT" } else { "OK" };
        assert_eq!(probe().await[0], excess);
    }
}

#[tokio::test]
async fn huge_costs_are_refused_and_break_nothing() {
    let door =
        door("- {key: user, limits: [{requests_per_unit: 5000000000, unit: year, cost: 7}]}");
    let refused = door.ask(request([costing(u64::MAX, user())])).await;
    assert_eq!(refused[0], "OVER_LIMIT");
    let mut asked = request([user()]);
    asked.hits_addend = u32::MAX;
    assert_eq!(door.ask(asked).await[0], "OVER_LIMIT");
    // More than the field holds is shown as the most that it holds.
    let answer = door.answer(request([user()])).await;
    let status = &answer.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, status.limit_remaining), (u32::MAX, u32::MAX));
}

#[tokio::test]
async fn negative_hits_give_back_and_are_always_ok() {
    let door = door(PER_MINUTE);
    door.ask(request([costing(3, user())])).await;
    assert_eq!(door.ask(request([user()])).await[0], "OVER_LIMIT");
    let refund = RateLimitDescriptor { is_negative_hits: true, ..costing(2, user()) };
    let answer = door.ask(request([refund.clone()])).await;
    assert_eq!(answer, ["OK", "OK 3/MINUTE, 2 left, 60s"]);
    let answer = door.ask(request([RateLimitDescriptor { hits_addend: Some(99), ..refund }])).await;
    assert_eq!(answer, ["OK", "OK 3/MINUTE, 3 left, 60s"], "never below nothing used");
    assert_eq!(door.ask(request([user()])).await, ["OK", "OK 3/MINUTE, 2 left, 60s"]);
}

#[tokio::test]
async fn a_limit_of_the_request_replaces_that_of_the_rules() {
    let door = door(PER_MINUTE);
    let ask = || door.ask(request([limited(1, 4, user())]));
    assert_eq!(ask().await, ["OK", "OK 1/DAY, 0 left, 86400s"]);
    assert_eq!(ask().await, ["OVER_LIMIT", "OVER_LIMIT 1/DAY, 0 left, 86400s"]);
    // The rule's own counter is untouched, and so is that of another period.
    assert_eq!(door.ask(request([user()])).await, ["OK", "OK 3/MINUTE, 2 left, 60s"]);
    let hourly = door.ask(request([limited(1, 3, user())])).await;
    assert_eq!(hourly, ["OK", "OK 1/HOUR, 0 left, 3600s"]);
}

#[tokio::test]
async fn every_unit_of_the_requests_limit_is_known() {
    let door = door(PER_MINUTE);
    // Weeks begin on Thursday, years and months are counted from the epoch.
    let expected = [
        (1, "OK 9/SECOND, 8 left, 1s"),
        (2, "OK 9/MINUTE, 8 left, 60s"),
        (3, "OK 9/HOUR, 8 left, 3600s"),
        (4, "OK 9/DAY, 8 left, 86400s"),
        (5, "OK 9/MONTH, 8 left, 432000s"),
        (6, "OK 9/YEAR, 8 left, 3024000s"),
        (7, "OK 9/WEEK, 8 left, 172800s"),
    ];
    for (unit, status) in expected {
        assert_eq!(door.ask(request([limited(9, unit, user())])).await, ["OK", status]);
    }
}

#[tokio::test]
async fn an_unknown_unit_is_an_error_of_the_call_and_the_door_goes_on() {
    for upstream_errors in [false, true] {
        let settings = settings(|settings| settings.upstream_errors = upstream_errors);
        let door = door_with(rules(PER_MINUTE), settings);
        for unit in [0, 8, -1, i32::MAX] {
            let (code, message) = door.error(request([limited(1, unit, user())])).await;
            assert_eq!(code, Code::InvalidArgument);
            assert!(message.contains(&format!("unknown unit {unit}")), "{message}");
        }
        assert_eq!(door.ask(request([user()])).await[0], "OK");
    }
}

#[tokio::test]
async fn a_rule_in_shadow_is_ok_with_nothing_left() {
    let door =
        door("- {key: user, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}");
    assert_eq!(door.ask(request([user()])).await, ["OK", "OK 1/MINUTE, 0 left, 60s"]);
    assert_eq!(door.ask(request([user()])).await, ["OK", "OK 1/MINUTE, 0 left, 60s"]);
}

#[tokio::test]
async fn a_door_in_shadow_turns_only_the_whole_answer() {
    let settings = settings(|settings| {
        settings.shadow = true;
        settings.response_headers = Some(HeaderNames::default());
    });
    let door = door_with(rules(PER_MINUTE), settings);
    door.ask(request([costing(3, user())])).await;
    let answer = door.answer(request([user()])).await;
    let words = crate::support::shown(&answer);
    assert_eq!(words, ["OK", "OVER_LIMIT 3/MINUTE, 0 left, 60s"]);
    assert_eq!(door.rls.shadowed(), 1, "the first request was within its limit");
    assert_eq!(
        headers(&answer),
        ["RateLimit-Limit: 3", "RateLimit-Remaining: 0", "RateLimit-Reset: 60"]
    );
}

const QUOTAS: &str = "- {key: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: c, rate_limit: {unit: hour, requests_per_unit: 4}}";

#[tokio::test]
async fn one_quota_left_is_enough() {
    let door = door_with(rules_with(QUOTAS, compat()), RlsSettings::default());
    let ask = || {
        let keys = ["a", "b", "c"].map(|key| descriptor(&[(key, "x")]));
        door.ask(request(keys))
    };
    assert_eq!(ask().await[0], "OK");
    let second = ask().await;
    assert_eq!(second[0], "OK");
    assert!(second[1].starts_with("OVER_LIMIT") && second[2].starts_with("OK"), "{second:?}");
    assert_eq!(ask().await[0], "OVER_LIMIT", "both quotas are used up");
}

#[tokio::test]
async fn in_quota_mode_every_matched_descriptor_counts_and_no_other() {
    let door = door_with(
        rules_with(&QUOTAS.replace("quota_mode: true, ", ""), compat()),
        settings(|settings| settings.quota = true),
    );
    let ask = |keys: &[&str]| {
        let keys: Vec<_> = keys.iter().map(|key| descriptor(&[(key, "x")])).collect();
        door.ask(request(keys))
    };
    assert_eq!(ask(&["a", "b"]).await[0], "OK");
    assert_eq!(ask(&["a", "b"]).await[0], "OK", "b is left");
    assert_eq!(ask(&["a", "b", "nobody"]).await[0], "OVER_LIMIT");
    assert_eq!(ask(&["nobody"]).await[0], "OK");
}

#[tokio::test]
async fn a_replaced_limit_is_neither_counted_nor_shown() {
    let door = door(
        "- {key: user, rate_limit: {unit: hour, requests_per_unit: 2, name: base}}
- {key: vip, rate_limit: {unit: hour, requests_per_unit: 9, name: more, replaces: [{name: base}]}}
- {key: free, rate_limit: {unlimited: true, name: free}}
- {key: none, rate_limit: {unit: hour, requests_per_unit: 9, replaces: [{name: free}]}}",
    );
    let vip = || descriptor(&[("vip", "x")]);
    let answer = door.ask(request([user(), vip()])).await;
    assert_eq!(answer, ["OK", "OK, 0 left", "OK 9/HOUR \"more\", 8 left, 3600s"]);
    assert_eq!(door.ask(request([user()])).await[1], "OK 2/HOUR \"base\", 1 left, 3600s");
    let free = || descriptor(&[("free", "x")]);
    let answer = door.ask(request([free(), descriptor(&[("none", "x")])])).await;
    assert_eq!(answer, ["OK", "OK, 0 left", "OK 9/HOUR, 8 left, 3600s"]);
    assert_eq!(door.ask(request([free()])).await, ["OK", "OK, 4294967295 left"]);
}

#[tokio::test]
async fn of_several_limits_the_refusing_one_is_shown_or_else_the_tightest() {
    let door = door(
        "- key: user
  limits:
  - {requests_per_unit: 2, unit: second, name: fast}
  - {requests_per_unit: 3, per: 5m, name: slow}",
    );
    let ask = || door.ask(request([user()]));
    assert_eq!(ask().await, ["OK", "OK 2/SECOND \"fast\", 1 left, 1s"]);
    assert_eq!(ask().await, ["OK", "OK 2/SECOND \"fast\", 0 left, 1s"]);
    assert_eq!(ask().await, ["OVER_LIMIT", "OVER_LIMIT 2/SECOND \"fast\", 0 left, 1s"]);
    door.clock.advance(Nanos::from_secs(1));
    assert_eq!(ask().await, ["OK", "OK 3/UNKNOWN \"slow\", 0 left, 299s"]);
    assert_eq!(ask().await, ["OVER_LIMIT", "OVER_LIMIT 3/UNKNOWN \"slow\", 0 left, 299s"]);
}

#[tokio::test]
async fn a_bucket_tells_when_the_request_would_fit_or_when_it_is_full_again() {
    let door = door(
        "- {key: user, limits: [{algorithm: token_bucket, requests_per_unit: 6, unit: minute, burst: 2}]}",
    );
    let ask = || door.ask(request([user()]));
    assert_eq!(ask().await, ["OK", "OK 6/MINUTE, 1 left, 10s"]);
    assert_eq!(ask().await, ["OK", "OK 6/MINUTE, 0 left, 20s"]);
    door.clock.advance(Nanos::from_millis(500));
    assert_eq!(ask().await, ["OVER_LIMIT", "OVER_LIMIT 6/MINUTE, 0 left, 10s"]);
}

fn headers(answer: &RateLimitResponse) -> Vec<String> {
    let headers = answer.response_headers_to_add.iter();
    headers.map(|header| format!("{}: {}", header.key, header.value)).collect()
}

#[tokio::test]
async fn header_fields_tell_of_the_tightest_descriptor_or_the_last_that_refused() {
    let names = HeaderNames {
        limit: "x-limit".to_owned(),
        remaining: "x-left".to_owned(),
        reset: "x-reset".to_owned(),
    };
    let door = door_with(
        rules_with(
            "- {key: a, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: c, rate_limit: {unit: day, requests_per_unit: 3}}",
            compat(),
        ),
        settings(|settings| settings.response_headers = Some(names)),
    );
    let ask = |keys: &[&str]| {
        let keys: Vec<_> = keys.iter().map(|key| descriptor(&[(key, "x")])).collect();
        door.answer(request(keys))
    };
    let tightest = headers(&ask(&["c", "a", "b"]).await);
    assert_eq!(tightest, ["x-limit: 2", "x-left: 1", "x-reset: 3600"], "the first wins a tie");
    ask(&["c", "a", "b"]).await;
    let last = headers(&ask(&["a", "b", "c"]).await);
    assert_eq!(last, ["x-limit: 2", "x-left: 0", "x-reset: 60"]);
    assert!(headers(&ask(&["nobody"]).await).is_empty());
}

/// A `Struct` as JSON, its members sorted.
fn json_of(value: &prost_types::Value) -> serde_json::Value {
    use prost_types::value::Kind;
    match value.kind.as_ref().unwrap() {
        Kind::NullValue(_) => serde_json::Value::Null,
        Kind::NumberValue(number) => (*number).into(),
        Kind::StringValue(text) => text.as_str().into(),
        Kind::BoolValue(flag) => (*flag).into(),
        Kind::StructValue(members) => json_of_struct(members),
        Kind::ListValue(list) => list.values.iter().map(json_of).collect(),
    }
}

fn json_of_struct(members: &prost_types::Struct) -> serde_json::Value {
    let members = members.fields.iter().map(|(key, value)| (key.clone(), json_of(value)));
    serde_json::Value::Object(members.collect())
}

const DESCRIBED: &str = "- {key: a, metadata: {tier: 1, deep: {x: [true, null, 1.5]}}, rate_limit: {unit: hour, requests_per_unit: 1, name: only}}
- {key: b, metadata: {tier: 2, deep: {x: 2, z: two}}, rate_limit: {unit: hour, requests_per_unit: 9}}";

fn described(upstream_errors: bool) -> crate::support::Door {
    let settings = settings(|settings| {
        settings.dynamic_metadata = true;
        settings.upstream_errors = upstream_errors;
    });
    door_with(rules_with(DESCRIBED, compat()), settings)
}

#[tokio::test]
async fn metadata_tells_the_proxy_what_was_asked_and_what_the_rules_add() {
    let door = described(true);
    let asked = || {
        let mut asked = request([
            descriptor(&[("a", "x"), ("a", "")]),
            descriptor(&[("a", "x")]),
            costing(2, descriptor(&[("b", "y")])),
            limited(5, 7, user()),
        ]);
        asked.hits_addend = 1;
        asked
    };
    let metadata = |answer: RateLimitResponse| json_of_struct(&answer.dynamic_metadata.unwrap());
    let first = metadata(door.answer(asked()).await);
    let expected = serde_json::json!({
        "domain": "api",
        "hitsAddend": 1.0,
        "descriptors": [
            {"entries": ["a=x", "a="]},
            {"entries": ["a=x"]},
            {"entries": ["b=y"], "hitsAddend": 2.0},
            {"entries": ["user=7"], "limit": "requests_per_unit:5 unit:WEEK"},
        ],
        "metadata": {"tier": 1.0, "deep": {"x": [true, null, 1.5], "z": "two"}},
    });
    assert_eq!(first, expected);
    // The first descriptor is over now: the metadata of the other is left, unchanged.
    let second = metadata(door.answer(asked()).await);
    assert_eq!(
        second["metadata"],
        serde_json::json!({"tier": 2.0, "deep": {"x": 2.0, "z": "two"}})
    );
    assert!(second.get("tidegate").is_none());
}

#[tokio::test]
async fn metadata_names_the_limit_that_refused() {
    let door = described(false);
    let metadata = || async {
        let answer = door.answer(request([descriptor(&[("a", "x")])])).await;
        json_of_struct(&answer.dynamic_metadata.unwrap())
    };
    assert!(metadata().await.get("tidegate").is_none());
    let by = serde_json::json!({"domain": "api", "path": "a", "limit": "only"});
    assert_eq!(metadata().await["tidegate"], serde_json::json!({"refused_by": by}));
}

#[tokio::test]
async fn requests_that_make_no_sense_are_errors() {
    let no_domain = RateLimitRequest { domain: String::new(), ..request([user()]) };
    let too_many = request(vec![user(); DESCRIPTORS_MAX + 1]);
    for (upstream_errors, code) in [(false, Code::InvalidArgument), (true, Code::Unknown)] {
        let settings = settings(|settings| settings.upstream_errors = upstream_errors);
        let door = door_with(rules(PER_MINUTE), settings);
        let error = door.error(no_domain.clone()).await;
        assert_eq!(error, (code, "rate limit domain must not be empty".to_owned()));
        let error = door.error(request([])).await;
        assert_eq!(error, (code, "rate limit descriptor list must not be empty".to_owned()));
        let error = door.error(too_many.clone()).await;
        let text = format!("a request may have up to {DESCRIPTORS_MAX} descriptors");
        assert_eq!(error, (Code::InvalidArgument, text));
        // Three calls, all of them invalid.
        assert_eq!(door.meter.read().answers, [0, 0, 0, 0, 3, 0]);
    }
}

#[tokio::test]
async fn what_nobody_could_decide_is_answered_by_the_failure_mode() {
    let door = door_to(Down, rules(PER_MINUTE), RlsSettings::default());
    assert_eq!(door.ask(request([user()])).await, ["OK", "OK, 0 left"]);
    assert_eq!(door.meter.read().answers, [0, 0, 1, 0, 0, 0]);
    let refusing = |clock| {
        Engine::new(Down, clock)
            .with_rules(rules(PER_MINUTE))
            .with_failure_mode(FailureMode::Refuse)
    };
    let door = door_of(refusing, RlsSettings::default());
    // The request is refused; that the user is over a limit is not said.
    assert_eq!(door.ask(request([user()])).await, ["OVER_LIMIT", "UNKNOWN, 0 left"]);
}

#[tokio::test]
async fn what_nobody_could_decide_is_an_error_where_upstream_has_one() {
    let settings = settings(|settings| settings.upstream_errors = true);
    let door = door_to(Down, rules(PER_MINUTE), settings);
    let error = door.error(request([user()])).await;
    assert_eq!(error, (Code::Unknown, "the store cannot be used: it is down".to_owned()));
    assert_eq!(door.meter.read().answers, [0, 0, 1, 0, 0, 0]);
}

#[tokio::test]
async fn until_rules_are_loaded_calls_fail_as_upstream_fails_them() {
    let settings = settings(|settings| settings.upstream_errors = true);
    let mut door = door_of(|clock| Engine::new(memory(), clock), settings);
    let loaded = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&loaded);
    door.rls = door.rls.needing_rules(Arc::new(move || asked.load(Relaxed)));
    let error = door.error(request([user()])).await;
    assert_eq!(error, (Code::Unknown, "no rate limit configuration loaded".to_owned()));
    assert_eq!(door.meter.read().answers, [0, 0, 1, 0, 0, 0]);
    // An empty folder is rules too: of no domain.
    loaded.store(true, Relaxed);
    assert_eq!(door.ask(request([user()])).await, ["OK", "OK, 0 left"]);
}

#[tokio::test]
async fn without_upstreams_errors_no_rules_means_no_limits() {
    let door = door_of(|clock| Engine::new(memory(), clock), RlsSettings::default());
    let door = Door { rls: door.rls.needing_rules(Arc::new(|| false)), ..door };
    assert_eq!(door.ask(request([user()])).await, ["OK", "OK, 0 left"]);
}

#[tokio::test]
async fn a_store_that_takes_its_time_is_waited_for() {
    let door = door_to(Later(memory()), rules(PER_MINUTE), RlsSettings::default());
    assert_eq!(door.ask(request([user()])).await, ["OK", "OK 3/MINUTE, 2 left, 60s"]);
    assert_eq!(door.ask(request([costing(3, user())])).await[0], "OVER_LIMIT");
    assert_eq!(door.meter.read().answers, [1, 1, 0, 0, 0, 0]);
}
