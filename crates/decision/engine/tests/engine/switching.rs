//! Limits switched while the engine runs.

use super::*;

#[test]
fn a_mode_is_switched_at_run_time_and_stays_over_a_reload() {
    let (engine, _clock) = engine(LAYERED);
    let target = Target { domain: "api", path: "user", limit: None };
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);

    let shadow = Mode::Shadow;
    assert_eq!(engine.set_switch(target, shadow), Ok(2));
    let verdict = check(&engine, &[("user", "ada")]);
    assert!(verdict.is_admitted() && verdict.refused_in_shadow());

    engine.install(rules(LAYERED));
    assert!(check(&engine, &[("user", "ada")]).is_admitted());

    let off = Mode::Off;
    assert_eq!(engine.set_switch(target, off), Ok(2));
    assert!(check(&engine, &[("user", "ada")]).rulings().is_empty());

    assert_eq!(engine.unset_switch(target), Ok(2));
    assert!(!check(&engine, &[("user", "ada")]).is_admitted());
}

#[test]
fn a_limiter_is_switched_as_a_whole_and_never_makes_a_limit_stronger() {
    let text = "
domain: api
descriptors:
- key: user
  limits:
  - {name: rate, requests_per_unit: 1, unit: minute}
  - {name: quiet, requests_per_unit: 1, unit: hour, mode: shadow}
- key: flight
  limits: [{name: slots, algorithm: concurrency, requests_per_unit: 1}]
";
    let (engine, _clock) = engine(text);
    let engine = Arc::new(engine);
    let at_once = |name: &str| {
        let flight = entries(&[("flight", name)]);
        let one = [Descriptor::new(&flight)];
        let held = [(); 3].map(|()| engine.admit_now(&Request::new("api", &one), Tenure::Held));
        held.iter().filter(|(verdict, _)| verdict.is_admitted()).count()
    };
    assert_eq!((admitted(&engine, 3, &[("user", "ada")]), at_once("a")), (1, 1));

    engine.set_limiter(LimiterKind::Rate, Mode::Shadow);
    assert!(check(&engine, &[("user", "ada")]).refused_in_shadow());
    assert_eq!((admitted(&engine, 3, &[("user", "ada")]), at_once("b")), (3, 1));

    engine.set_limiter(LimiterKind::Concurrency, Mode::Off);
    engine.install(rules(text));
    assert_eq!((admitted(&engine, 3, &[("user", "ada")]), at_once("c")), (3, 3));
    assert_eq!(engine.limiter(LimiterKind::Concurrency), Mode::Off);

    let target = Target { domain: "api", path: "user", limit: Some("rate") };
    engine.set_switch(target, Mode::ENFORCE).expect("a limit");
    assert_eq!(admitted(&engine, 3, &[("user", "ada")]), 3, "the limiter is still dark");
    engine.set_limiter(LimiterKind::Rate, Mode::ENFORCE);
    let verdict = check(&engine, &[("user", "ada")]);
    assert!(!verdict.is_admitted());
    engine.set_limiter(LimiterKind::Rate, Mode::Enforce(Percent::new(0)));
    assert!(check(&engine, &[("user", "ada")]).refused_in_shadow());
}

#[test]
fn one_limit_is_switched_by_its_name_and_an_unknown_one_is_an_error() {
    let (engine, _clock) = engine(LAYERED);
    let target = Target { domain: "api", path: "user", limit: Some("per_second") };
    let off = Mode::Off;
    assert_eq!(engine.set_switch(target, off), Ok(1));
    assert_eq!(admitted(&engine, 9, &[("user", "ada")]), 5);
    let unknown = Target { limit: Some("per_year"), ..target };
    let error = engine.set_switch(unknown, off).expect_err("no such limit");
    assert_eq!(error.to_string(), "no limit of domain `api` is at `user` with the name `per_year`");
}

#[test]
fn a_limit_without_a_name_is_switched_by_its_place() {
    let (engine, _clock) = engine(
        "
domain: api
descriptors:
  - key: user
    limits:
      - {requests_per_unit: 2, unit: minute}
      - {requests_per_unit: 4, unit: hour}
",
    );
    let off = Mode::Off;
    let first = Target { domain: "api", path: "user", limit: Some("1") };
    assert_eq!(engine.set_switch(first, off), Ok(1));
    assert_eq!(admitted(&engine, 9, &[("user", "ada")]), 4);
    for unknown in ["0", "3", "01", ""] {
        assert!(engine.set_switch(Target { limit: Some(unknown), ..first }, off).is_err());
    }
}

#[test]
fn a_percentage_enforces_for_the_same_keys_each_time_and_for_that_share_of_them() {
    let text = "
domain: api
descriptors:
  - key: user
    enforce_percent: 30
    rate_limit: {requests_per_unit: 1, unit: minute}
";
    let limited = |engine: &TestEngine| -> Vec<bool> {
        let users: Vec<String> = (0..1_000).map(|number| format!("user {number}")).collect();
        users.iter().map(|user| admitted(engine, 3, &[("user", user)]) == 1).collect()
    };
    let (one, _clock) = engine(text);
    let (other, _clock) = engine(text);
    let (one, other) = (limited(&one), limited(&other.with_seed(99)));
    assert_eq!(one, other, "every process picks the same keys");
    let share = one.iter().filter(|limited| **limited).count();
    assert!((250..350).contains(&share), "{share} of 1000");
}

#[test]
fn the_kill_switch_admits_everything_at_once() {
    let (engine, _clock) = engine(LAYERED);
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 2);
    engine.switch_off(true);
    let verdict = check(&engine, &[("user", "ada")]);
    assert!(verdict.is_admitted() && verdict.is_switched_off());
    engine.switch_off(false);
    assert!(!check(&engine, &[("user", "ada")]).is_admitted());
}

#[test]
fn a_limit_that_was_gone_for_a_while_comes_back_as_it_was_switched() {
    let (engine, _clock) = engine(LAYERED);
    let target = Target { domain: "api", path: "user", limit: None };
    let off = Mode::Off;
    assert_eq!(engine.set_switch(target, off), Ok(2));
    engine.install(Snapshot::default());
    engine.install(rules(LAYERED));
    assert_eq!(admitted(&engine, 5, &[("user", "ada")]), 5);
}
