//! One unit of each bucket of a rule: `take_units` decides and counts like the general path, or does
//! nothing.

use proptest::prelude::*;
use tidegate_algorithms::{
    Decision, Limit, Period, SmallLimit, Timestamp, TokenBucket, UnitOutcome,
};
use tidegate_stores::{
    Answers, Batch, Charge, Check, Fingerprint, Key, MemoryConfig, MemoryStore, UnitsOutcome, Verb,
    WhenFull,
};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn store() -> MemoryStore {
    let config =
        MemoryConfig { budget_bytes: 64 * 1024, when_full: WhenFull::Deny, seed: Some(11) };
    MemoryStore::new(config).expect("the budget is enough")
}

fn key(store: &MemoryStore, name: u16) -> Fingerprint {
    store.fingerprinter().of(0, &name.to_le_bytes())
}

fn bucket(limit: &Limit) -> &TokenBucket {
    match limit.small() {
        Some(SmallLimit::TokenBucket(bucket)) => bucket,
        other => panic!("{other:?} is not a token bucket"),
    }
}

/// Limits that share a key, each with its group.
type Rule<'l, const N: usize> = [(u64, &'l Limit); N];

/// The decisions of the general path.
fn check<const N: usize>(
    store: &MemoryStore,
    key: Fingerprint,
    rule: Rule<'_, N>,
    now: Timestamp,
) -> Vec<Decision> {
    let checks = rule
        .map(|(group, limit)| Check::new(Key { fingerprint: key.under(group), group }, limit, 1));
    let mut answers = Answers::new();
    store.apply_now(&Batch::new(Verb::Check, Charge::AllOrNothing, now, &checks), &mut answers);
    answers.iter().map(|answer| answer.decision).collect()
}

/// The decisions of the fast path, if it takes anything.
fn take<const N: usize>(
    store: &MemoryStore,
    key: Fingerprint,
    rule: Rule<'_, N>,
    now: Timestamp,
) -> Option<Vec<Decision>> {
    let buckets = rule.map(|(group, limit)| (key.under(group), bucket(limit)));
    let UnitsOutcome::Taken(states) = store.take_units(buckets, now)? else { return None };
    let taken = buckets.iter().zip(states);
    Some(taken.map(|((_, bucket), after)| bucket.unit_admission(after, now)).collect())
}

proptest! {
    #[test]
    fn units_are_taken_as_on_the_general_path_or_not_at_all(
        steps in prop::collection::vec((0..20_u16, 0..3_usize, -300_000_000..900_000_000_i64), 1..300),
        amount in 1..=2_000_000_000_u64,
    ) {
        // The same keys under changing limits.
        let limits = [
            Limit::new(TokenBucket::new(2, Period::SECOND, 3)),
            Limit::new(TokenBucket::new(amount, Period::SECOND, 2)),
            Limit::new(TokenBucket::new(9, Period::MINUTE, 5)),
        ];
        let (fast, general) = (store(), store());
        let mut now = NOW;
        for (name, first, step) in steps {
            now = Timestamp::from_nanos(now.as_nanos().saturating_add_signed(step));
            let rule = [(1, &limits[first]), (2, &limits[(first + 1) % 3])];
            let key = key(&fast, name);
            let taken = take(&fast, key, rule, now);
            let expected = check(&general, key, rule, now);
            match taken {
                Some(taken) => prop_assert_eq!(taken, expected),
                // Nothing is left of the attempt.
                None => prop_assert_eq!(check(&fast, key, rule, now), expected),
            }
        }
        prop_assert_eq!(fast.stats(), general.stats());
    }
}

#[test]
fn a_known_key_with_units_left_takes_the_fast_path() {
    let store = store();
    let limit = Limit::new(TokenBucket::new(1, Period::DAY, 3));
    let (rule, key) = ([(1, &limit), (2, &limit)], key(&store, 1));
    assert_eq!(take(&store, key, rule, NOW), None, "the key is new");
    check(&store, key, rule, NOW);
    for left in [1, 0] {
        let taken = take(&store, key, rule, NOW).expect("a unit is left");
        assert!(taken.iter().all(|decision| decision.remaining == left), "{taken:?}");
    }
    assert_eq!(take(&store, key, rule, NOW), None, "nothing is left");
}

#[test]
fn a_bucket_with_nothing_left_keeps_the_others_from_being_charged() {
    let store = store();
    let (wide, narrow) = (
        Limit::new(TokenBucket::new(1, Period::DAY, 9)),
        Limit::new(TokenBucket::new(1, Period::DAY, 1)),
    );
    let key = key(&store, 1);
    check(&store, key, [(1, &wide), (2, &narrow)], NOW);
    let buckets = [(key.under(1), bucket(&wide)), (key.under(2), bucket(&narrow))];
    let Some(UnitsOutcome::Refused(states)) = store.take_units(buckets, NOW) else {
        panic!("one has nothing left");
    };
    assert!(
        bucket(&wide).take_unit(states[0], NOW).is_some_and(|unit| unit != UnitOutcome::Refused)
    );
    assert_eq!(bucket(&narrow).take_unit(states[1], NOW), Some(UnitOutcome::Refused));
    let taken = take(&store, key, [(1, &wide)], NOW).expect("eight are left");
    assert_eq!(taken[0].remaining, 7);
}

#[test]
fn limits_that_share_a_counter_take_the_general_path() {
    let store = store();
    let limit = Limit::new(TokenBucket::new(1, Period::DAY, 9));
    let key = key(&store, 1);
    check(&store, key, [(1, &limit)], NOW);
    assert_eq!(take(&store, key, [(1, &limit), (1, &limit)], NOW), None);
    let taken = take(&store, key, [(1, &limit)], NOW).expect("eight are left");
    assert_eq!(taken[0].remaining, 7);
}

#[test]
fn threads_take_exactly_the_units_that_there_are() {
    let store = store();
    let (day, hour) = (
        Limit::new(TokenBucket::new(1, Period::DAY, 10_001)),
        Limit::new(TokenBucket::new(1, Period::HOUR, 20_000)),
    );
    let (rule, key) = ([(1, &day), (2, &hour)], key(&store, 1));
    check(&store, key, rule, NOW);
    let count: usize = std::thread::scope(|scope| {
        let takers = [(); 4].map(|()| {
            scope.spawn(|| (0..5_000).filter(|_| take(&store, key, rule, NOW).is_some()).count())
        });
        takers.into_iter().map(|taker| taker.join().expect("a taker does not fail")).sum()
    });
    assert_eq!(count, 10_000);
    let taken = take(&store, key, [(2, &hour)], NOW).expect("half of them are left");
    assert_eq!(taken[0].remaining, 9_998);
}
