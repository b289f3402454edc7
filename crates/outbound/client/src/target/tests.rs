//! Properties of the arithmetic, with answers made at random.

use proptest::prelude::*;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_response_fields::{PolicyReading, PolicyUnit, ResponseFields};

use super::{AnswerKind, Step, TargetState};

const PATIENCE: Nanos = Nanos::from_secs(60);

fn reading(quota: u64, window_ms: u64, remaining: u64, reset_ms: u64) -> PolicyReading {
    PolicyReading {
        name: "rate".into(),
        unit: PolicyUnit::Requests,
        quota: Some(quota),
        window: Some(Nanos::from_millis(window_ms)),
        remaining: Some(remaining),
        reset: Some(Nanos::from_millis(reset_ms)),
    }
}

fn any_answer() -> impl Strategy<Value = (AnswerKind, ResponseFields)> {
    let kind = prop_oneof![
        Just(AnswerKind::Served),
        Just(AnswerKind::Refused),
        Just(AnswerKind::Short),
        Just(AnswerKind::Failed)
    ];
    let number = prop_oneof![0..20_u64, any::<u64>()];
    let policy = (number.clone(), number.clone(), number.clone(), number.clone(), 0..3_u8)
        .prop_map(|(quota, window, remaining, reset, unit)| PolicyReading {
            unit: [PolicyUnit::Requests, PolicyUnit::Concurrency, PolicyUnit::Other]
                [usize::from(unit)],
            ..reading(quota, window, remaining, reset)
        });
    let fields = (proptest::option::of(number), proptest::collection::vec(policy, 0..3)).prop_map(
        |(wait, policies)| ResponseFields {
            wait: wait.map(Nanos::new),
            forbids_retry: false,
            policies,
        },
    );
    (kind, fields)
}

proptest! {
    /// Whatever a service says, no step panics, waits longer than the caller accepts, or asks to wait for nothing.
    #[test]
    fn no_answer_panics_or_leads_to_a_busy_wait(
        answers in proptest::collection::vec((any_answer(), 0..5_000_u64, any::<u64>()), 1..60)
    ) {
        let mut now = Timestamp::from_secs(1);
        let mut target = TargetState::new(now);
        for ((kind, fields), pause_ms, random) in answers {
            match target.plan(now, PATIENCE) {
                Step::Send => {
                    let sequence = target.count_send(true, now);
                    target.record_answer(sequence, kind, &fields, now, random);
                }
                Step::Wait(wait) => prop_assert!(wait > Nanos::ZERO && wait <= PATIENCE),
                Step::Held(wait) => prop_assert!(wait > PATIENCE),
                Step::WaitForAnswer => prop_assert!(false, "nothing is in flight"),
            }
            now = now.after(Nanos::from_millis(pause_ms));
        }
    }

    /// In any window the calls stay within what was left at first and the stated rate.
    #[test]
    fn paced_calls_keep_to_the_stated_rate(quota in 1..200_u64, window_ms in 100..10_000_u64, burst in 1..100_u64) {
        let start = Timestamp::from_secs(1);
        let mut target = TargetState::new(start);
        let mut now = start;
        // A token bucket that is always asked: its level in parts of a thousandth.
        let mut level = burst * 1_000;
        let mut filled = start;
        for _ in 0..300 {
            match target.plan(now, Nanos::MAX) {
                Step::Send => {
                    let earned = u128::from(now.since(filled).get()) * u128::from(quota) * 1_000
                        / (u128::from(window_ms) * 1_000_000);
                    level = (level + u64::try_from(earned).unwrap()).min(burst * 1_000);
                    filled = now;
                    prop_assert!(level >= 1_000, "refused at {now:?} with {level}");
                    level -= 1_000;
                    let reset_ms = (burst * 1_000 - level) * window_ms / (quota * 1_000) + 1;
                    let sequence = target.count_send(true, now);
                    let policies = vec![reading(quota, window_ms, level / 1_000, reset_ms)];
                    let fields = ResponseFields { wait: None, forbids_retry: false, policies };
                    target.record_answer(sequence, AnswerKind::Served, &fields, now, 0);
                }
                Step::Wait(wait) => now = now.after(wait),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}

#[test]
fn an_answer_to_an_earlier_call_lowers_and_never_raises() {
    let now = Timestamp::from_secs(1);
    let mut target = TargetState::new(now);
    let first = target.count_send(true, now);
    let second = target.count_send(true, now);
    let fields = |remaining| ResponseFields {
        wait: None,
        forbids_retry: false,
        policies: vec![reading(100, 60_000, remaining, 60_000)],
    };
    target.record_answer(second, AnswerKind::Served, &fields(0), now, 0);
    target.record_answer(first, AnswerKind::Served, &fields(50), now, 0);
    assert_eq!(target.plan(now, Nanos::MAX), Step::Wait(Nanos::from_secs(60)));
}
