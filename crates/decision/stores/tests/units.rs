//! One unit of each bucket of a rule: the short way of `take_units` answers and counts as the
//! general one does, or does nothing.

use proptest::prelude::*;
use tidegate_algorithms::{Decision, Limit, Period, Small, Taken, Timestamp, TokenBucket};
use tidegate_stores::{
    Answers, Batch, Charge, Check, Fingerprint, Key, MemoryConfig, MemoryStore, Units, Verb,
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
        Some(Small::TokenBucket(bucket)) => bucket,
        other => panic!("{other:?} is no token bucket"),
    }
}

/// Limits that share a key, each with its group.
type Rule<'l, const N: usize> = [(u64, &'l Limit); N];

/// What the general way says, which charges all or nobody.
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

/// What the short way says, if it takes anything.
fn take<const N: usize>(
    store: &MemoryStore,
    key: Fingerprint,
    rule: Rule<'_, N>,
    now: Timestamp,
) -> Option<Vec<Decision>> {
    let buckets = rule.map(|(group, limit)| (group, bucket(limit)));
    let Units::Taken(states) = store.take_units(key, buckets, now)? else { return None };
    let told = buckets.iter().zip(states).map(|((_, bucket), after)| bucket.tell_taken(after, now));
    Some(told.collect())
}

proptest! {
    #[test]
    fn units_are_taken_as_the_general_way_takes_them_or_not_at_all(
        steps in prop::collection::vec((0..20_u16, 0..3_usize, -300_000_000..900_000_000_i64), 1..300),
        amount in 1..=2_000_000_000_u64,
    ) {
        // The same keys under limits that change their minds.
        let limits = [
            Limit::new(TokenBucket::new(2, Period::SECOND, 3)),
            Limit::new(TokenBucket::new(amount, Period::SECOND, 2)),
            Limit::new(TokenBucket::new(9, Period::MINUTE, 5)),
        ];
        let (short, general) = (store(), store());
        let mut now = NOW;
        for (name, first, step) in steps {
            now = Timestamp::from_nanos(now.as_nanos().saturating_add_signed(step));
            let rule = [(1, &limits[first]), (2, &limits[(first + 1) % 3])];
            let key = key(&short, name);
            let told = take(&short, key, rule, now);
            let expected = check(&general, key, rule, now);
            match told {
                Some(told) => prop_assert_eq!(told, expected),
                // Nothing is left of the attempt.
                None => prop_assert_eq!(check(&short, key, rule, now), expected),
            }
        }
        prop_assert_eq!(short.stats(), general.stats());
    }
}

#[test]
fn a_key_that_is_known_and_has_units_left_takes_the_short_way() {
    let store = store();
    let limit = Limit::new(TokenBucket::new(1, Period::DAY, 3));
    let (rule, key) = ([(1, &limit), (2, &limit)], key(&store, 1));
    assert_eq!(take(&store, key, rule, NOW), None, "the key is new");
    check(&store, key, rule, NOW);
    for left in [1, 0] {
        let told = take(&store, key, rule, NOW).expect("a unit is left");
        assert!(told.iter().all(|decision| decision.remaining == left), "{told:?}");
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
    let buckets = [(1, bucket(&wide)), (2, bucket(&narrow))];
    let Some(Units::Short(states)) = store.take_units(key, buckets, NOW) else {
        panic!("one has nothing left");
    };
    assert!(bucket(&wide).take_unit(states[0], NOW).is_some_and(|unit| unit != Taken::Refused));
    assert_eq!(bucket(&narrow).take_unit(states[1], NOW), Some(Taken::Refused));
    let told = take(&store, key, [(1, &wide)], NOW).expect("eight are left");
    assert_eq!(told[0].remaining, 7);
}

#[test]
fn limits_that_share_a_counter_are_left_to_the_general_way() {
    let store = store();
    let limit = Limit::new(TokenBucket::new(1, Period::DAY, 9));
    let key = key(&store, 1);
    check(&store, key, [(1, &limit)], NOW);
    assert_eq!(take(&store, key, [(1, &limit), (1, &limit)], NOW), None);
    let told = take(&store, key, [(1, &limit)], NOW).expect("eight are left");
    assert_eq!(told[0].remaining, 7);
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
    let taken: usize = std::thread::scope(|scope| {
        let takers = [(); 4].map(|()| {
            scope.spawn(|| (0..5_000).filter(|_| take(&store, key, rule, NOW).is_some()).count())
        });
        takers.into_iter().map(|taker| taker.join().expect("a taker does not fail")).sum()
    });
    assert_eq!(taken, 10_000);
    let told = take(&store, key, [(2, &hour)], NOW).expect("half of them are left");
    assert_eq!(told[0].remaining, 9_998);
}
