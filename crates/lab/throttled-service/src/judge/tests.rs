use proptest::prelude::*;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::{Cost, Dimension, TargetLimit};

use super::{Judge, Judgement, LimitKind, Rival, ServiceLimit};

const MS: u64 = 1_000_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * MS)
}

fn limit(kind: LimitKind, amount: u64) -> ServiceLimit {
    ServiceLimit { limit: TargetLimit::per_second(Dimension::Units, amount), kind }
}

fn is_accepted(judgement: Judgement) -> bool {
    judgement == Judgement::Accepted
}

/// What a limit allows, counted from the whole history at each arrival.
fn fits_by_history(
    kind: LimitKind,
    max: u64,
    accepted: &[(u64, u64)],
    cost: u64,
    now: u64,
) -> bool {
    let second = 1_000 * MS;
    let used = |from: &dyn Fn(u64) -> bool| -> u64 {
        accepted.iter().filter(|(at, _)| from(*at)).map(|(_, cost)| cost).sum()
    };
    match kind {
        LimitKind::FixedWindow => used(&|at| at / second == now / second) + cost <= max,
        LimitKind::SlidingLog => used(&|at| now - at < second) + cost <= max,
        // A bucket overflows nowhere if every suffix of the history fits into its depth and the refill since.
        LimitKind::TokenBucket { depth } => {
            let starts = accepted.iter().map(|(at, _)| *at).chain([now]);
            starts.into_iter().all(|start| {
                let since: u64 = used(&|at| at >= start) + cost;
                u128::from(since) * u128::from(second)
                    <= u128::from(depth) * u128::from(second)
                        + u128::from(max) * u128::from(now - start)
            })
        }
    }
}

proptest! {
    #[test]
    fn each_kind_accepts_exactly_what_its_definition_allows(
        kind in prop_oneof![
            Just(LimitKind::FixedWindow),
            Just(LimitKind::SlidingLog),
            (5_u64..20).prop_map(|depth| LimitKind::TokenBucket { depth }),
        ],
        max in 1_u64..30,
        steps in prop::collection::vec((0_u64..400, 0_u64..8), 1..80),
    ) {
        let mut judge = Judge::new(&[limit(kind, max)]);
        let (mut now, mut accepted) = (0, Vec::new());
        for (step, cost) in steps {
            now += step * MS;
            let expected = fits_by_history(kind, max, &accepted, cost, now);
            let judgement = judge.judge(Cost::units(cost), Timestamp::from_nanos(now));
            prop_assert_eq!(is_accepted(judgement), expected);
            if expected {
                accepted.push((now, cost));
            } else if let Judgement::Throttled { retry_after: Some(wait) } = judgement {
                // It fits after the named time, and not a nanosecond before.
                let mut later = judge.clone();
                let early = Timestamp::from_nanos(now + wait.get() - 1);
                prop_assert!(!is_accepted(later.judge(Cost::units(cost), early)));
                let then = Timestamp::from_nanos(now + wait.get());
                prop_assert!(is_accepted(later.judge(Cost::units(cost), then)));
            }
        }
    }
}

#[test]
fn several_limits_are_charged_together_or_not_at_all() {
    let limits = [
        ServiceLimit {
            limit: TargetLimit::per_second(Dimension::Operations, 20),
            kind: LimitKind::FixedWindow,
        },
        ServiceLimit {
            limit: TargetLimit::per_minute(Dimension::Bytes, 2 << 30),
            kind: LimitKind::SlidingLog,
        },
        limit(LimitKind::TokenBucket { depth: 100 }, 100),
    ];
    let mut judge = Judge::new(&limits);
    let cost = Cost { operations: 1, bytes: 1 << 30, units: 40 };
    assert!(is_accepted(judge.judge(cost, at(0))));
    assert!(is_accepted(judge.judge(cost, at(0))));
    // 20 units are left and no bytes: refused, and the operations stay as they are.
    let Judgement::Throttled { retry_after: Some(wait) } = judge.judge(cost, at(0)) else {
        panic!("both the bytes and the units are spent");
    };
    assert_eq!(wait, Nanos::from_secs(60));
    let small = Cost { operations: 1, bytes: 0, units: 1 };
    let accepted = (0..30).filter(|_| is_accepted(judge.judge(small, at(0)))).count();
    assert_eq!(accepted, 18);
}

#[test]
fn a_cost_above_a_limit_never_fits() {
    for kind in
        [LimitKind::FixedWindow, LimitKind::SlidingLog, LimitKind::TokenBucket { depth: 10 }]
    {
        let mut judge = Judge::new(&[limit(kind, 10)]);
        let judgement = judge.judge(Cost::units(11), at(0));
        assert_eq!(judgement, Judgement::Throttled { retry_after: None }, "{kind:?}");
    }
}

#[test]
fn a_rival_takes_its_part_while_it_is_there() {
    let mut judge = Judge::new(&[limit(LimitKind::FixedWindow, 500)]);
    judge.add_rival(Rival {
        cost: Cost::units(1),
        every: Nanos::from_millis(5),
        from: at(0),
        until: at(1_000),
    });
    let mut accepted = [0; 2];
    for millis in 0..2_000 {
        let judgement = judge.judge(Cost::units(1), at(millis));
        accepted[usize::try_from(millis / 1_000).unwrap()] += u64::from(is_accepted(judgement));
    }
    // One call of the rival for five of ours, and its first comes before ours, until the window is spent.
    assert_eq!(accepted, [416, 500]);
}

#[test]
fn the_room_of_the_tightest_limit_is_known() {
    let mut judge =
        Judge::new(&[limit(LimitKind::FixedWindow, 10), limit(LimitKind::SlidingLog, 8)]);
    judge.judge(Cost::units(3), at(200));
    let (tightest, left, reset) = judge.room(at(400)).unwrap();
    assert_eq!((tightest.amount, left, reset), (8, 5, Nanos::from_millis(800)));
}
