//! Requests that cannot be decided.

use super::*;

/// A store that fails in a chosen way.
enum BrokenStore {
    Errs,
    Panics,
    AnswersTooLittle,
}

impl CounterStore for BrokenStore {
    async fn apply(&self, _: &Batch<'_>, _: &mut Answers) -> Result<(), StoreError> {
        match self {
            BrokenStore::Errs => Err(StoreError::Timeout { waited: Duration::from_millis(10) }),
            BrokenStore::Panics => panic!("the store broke"),
            BrokenStore::AnswersTooLittle => Ok(()),
        }
    }

    fn give_back(&self, _: &Batch<'_>) {}
}

#[tokio::test]
async fn what_cannot_be_decided_is_admitted_and_never_called_over_limit() {
    let user = entries(&[("user", "ada")]);
    let descriptors = [Descriptor::new(&user)];
    let request = Request::new("api", &descriptors);
    for broken in [BrokenStore::Errs, BrokenStore::Panics, BrokenStore::AnswersTooLittle] {
        let engine = Engine::new(broken, ManualClock::default()).with_rules(rules(LAYERED));
        let verdict = engine.check(&request).await;
        assert!(verdict.is_admitted());
        assert!(verdict.undecided().is_some());
        assert!(verdict.refusal().is_none() && verdict.rulings().is_empty());
    }
    let engine =
        Engine::new(BrokenStore::Panics, ManualClock::default()).with_rules(rules(LAYERED));
    let undecided = engine.check(&request).await.undecided().cloned();
    assert_eq!(undecided, Some(Undecided::Panicked { message: "the store broke".to_owned() }));
}

#[tokio::test]
async fn a_rule_that_denies_on_a_failing_store_refuses_without_a_refusal() {
    let text = LAYERED.replace("unit: day", "unit: day, on_store_error: deny");
    let engine = Engine::new(BrokenStore::Errs, ManualClock::default()).with_rules(rules(&text));
    let user = entries(&[("user", "ada")]);
    let verdict = engine.check(&Request::new("api", &[Descriptor::new(&user)])).await;
    assert_eq!(verdict.outcome(), Outcome::Refused);
    assert!(verdict.refusal().is_none() && verdict.undecided().is_some());
}

#[tokio::test]
async fn the_failure_mode_refuses_if_asked_to_but_not_what_all_limits_allow() {
    let user = entries(&[("user", "ada")]);
    let descriptors = [Descriptor::new(&user)];
    let request = Request::new("api", &descriptors);
    let strict = |text: &str| {
        Engine::new(BrokenStore::Panics, ManualClock::default())
            .with_failure_mode(FailureMode::Refuse)
            .with_rules(rules(text))
    };
    assert!(!strict(LAYERED).check(&request).await.is_admitted());
    let one_allows = LAYERED.replace("unit: day", "unit: day, on_store_error: allow");
    assert!(!strict(&one_allows).check(&request).await.is_admitted());
    let all_allow = one_allows.replace("unit: second", "unit: second, on_store_error: allow");
    assert!(strict(&all_allow).check(&request).await.is_admitted());
}

#[tokio::test]
async fn more_descriptors_than_a_request_may_have_are_not_decided() {
    let (engine, _clock) = engine(LAYERED);
    let many = vec![Descriptor::new(&[]); 1_001];
    let expected = Undecided::TooManyDescriptors { descriptors: 1_001 };
    let verdict = engine.check_now(&Request::new("api", &many));
    assert!(verdict.is_admitted());
    assert_eq!(verdict.undecided(), Some(&expected));
    let verdict = engine.check(&Request::new("api", &many)).await;
    assert_eq!(verdict.undecided(), Some(&expected));
}

struct PanickingClock;

impl Clock for PanickingClock {
    fn now(&self) -> Timestamp {
        panic!("what time is it?")
    }
}

#[test]
fn a_panic_inside_is_contained_on_the_calling_thread() -> Result<(), ConfigError> {
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Engine::new(store, PanickingClock).with_rules(rules(LAYERED));
    let user = entries(&[("user", "ada")]);
    let verdict = engine.check_now(&Request::new("api", &[Descriptor::new(&user)]));
    assert!(verdict.is_admitted());
    assert!(matches!(verdict.undecided(), Some(Undecided::Panicked { .. })));
    Ok(())
}
