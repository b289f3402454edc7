//! Counters, verdicts and callers when the rules change.

use super::*;

#[test]
fn counters_survive_new_rules_and_a_raised_limit_gives_room_at_once() {
    let (engine, _clock) = engine(LAYERED);
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
    engine.install(rules(&LAYERED.replace("requests_per_unit: 2", "requests_per_unit: 4")));
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
}

#[test]
fn a_limit_keeps_its_counters_when_another_one_is_put_before_it() {
    let (engine, _clock) = engine(LAYERED);
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
    let first = "    limits:\n      - {name: per_hour, requests_per_unit: 9, unit: hour}";
    engine.install(rules(&LAYERED.replace("    limits:", first)));
    let refusal = check(&engine, &[("user", "ada")]);
    assert_eq!(refusal.refusal().and_then(|refusal| refusal.limit), Some("per_second"));
}

#[test]
fn usage_survives_a_change_between_plans_whose_first_limits_differ() {
    let (engine, _clock) = engine(
        "
domain: api
plans:
  free:
    limits:
      - {name: burst, algorithm: token_bucket, requests_per_unit: 9, unit: minute}
      - {name: rate, requests_per_unit: 2, unit: minute}
  pro: {limits: [{name: rate, requests_per_unit: 5, unit: minute}]}
descriptors:
  - key: user
    descriptors:
      - {key: plan, plan: {from: value, default: free}}
",
    );
    assert_eq!(admitted(&engine, 9, &[("user", "ada"), ("plan", "free")]), 2);
    assert_eq!(admitted(&engine, 9, &[("user", "ada"), ("plan", "pro")]), 3);
}

#[test]
fn a_verdict_keeps_the_rules_that_it_rests_on() {
    let (engine, _clock) = engine(LAYERED);
    admitted(&engine, 2, &[("user", "ada")]);
    let verdict = check(&engine, &[("user", "ada")]);
    engine.install(Snapshot::default());
    assert_eq!(verdict.refusal().and_then(|refusal| refusal.limit), Some("per_second"));
    assert!(check(&engine, &[("user", "ada")]).rulings().is_empty());
}

#[test]
fn a_plan_is_chosen_by_a_value_and_usage_survives_an_upgrade() {
    let (engine, _clock) = engine(
        "
domain: api
plans:
  free: {limits: [{name: rate, requests_per_unit: 2, unit: minute}]}
  pro: {limits: [{name: rate, requests_per_unit: 5, unit: minute}]}
descriptors:
  - key: user
    descriptors:
      - {key: plan, plan: {from: value, default: free}}
",
    );
    assert_eq!(admitted(&engine, 9, &[("user", "ada"), ("plan", "free")]), 2);
    assert_eq!(admitted(&engine, 9, &[("user", "ada"), ("plan", "pro")]), 3);
    assert_eq!(admitted(&engine, 9, &[("user", "bob"), ("plan", "unheard of")]), 2);
}

#[test]
fn threads_that_share_an_engine_admit_exactly_the_limit_while_rules_are_reloaded() {
    let text = LAYERED.replace("requests_per_unit: 2", "requests_per_unit: 300");
    let text = text.replace("requests_per_unit: 5", "requests_per_unit: 1000");
    let (engine, _clock) = engine(&text);
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let count = admitted(&engine, 500, &[("user", "ada")]);
                passed.fetch_add(count as u64, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                engine.install(rules(&text));
            }
        });
    });
    assert_eq!(passed.into_inner(), 300);
}
