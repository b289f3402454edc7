//! One limit over many keys: `decide_one` decides and counts like the general path.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tidegate_algorithms::{
    FixedWindow, LeakyBucket, Limit, Period, Timestamp, TokenBucket, Window,
};
use tidegate_stores::{Check, Key, MemoryConfig, MemoryStore, WhenFull};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn store(when_full: WhenFull) -> MemoryStore {
    let config = MemoryConfig { budget_bytes: 64 * 1024, when_full, seed: Some(11) };
    MemoryStore::new(config).expect("the budget is enough")
}

fn key(store: &MemoryStore, name: u16) -> Key {
    Key { fingerprint: store.fingerprinter().of(0, &name.to_le_bytes()), group: 0 }
}

#[test]
fn threads_on_one_key_get_exactly_the_burst_on_the_fast_path() {
    let store = store(WhenFull::Deny);
    let limit = Limit::new(TokenBucket::new(1, Period::DAY, 10_000));
    let hot = key(&store, 1);
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let count = (0..5_000)
                    .filter(|_| store.decide_one(hot, &limit, 1, NOW).is_admitted())
                    .count();
                admitted.fetch_add(count as u64, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(admitted.into_inner(), 10_000);
}

/// Only costs of one take the fast path: both paths spend one budget.
#[test]
fn threads_with_costs_of_one_and_of_more_share_one_budget() {
    let store = store(WhenFull::Deny);
    let limit = Limit::new(TokenBucket::new(1, Period::DAY, 6_000));
    let hot = key(&store, 1);
    let charged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for cost in [1, 2, 1, 3] {
            let (store, limit, charged) = (&store, &limit, &charged);
            scope.spawn(move || {
                let taken: u64 =
                    (0..4_000).map(|_| store.decide_one(hot, limit, cost, NOW).taken).sum();
                charged.fetch_add(taken, Ordering::Relaxed);
            });
        }
    });
    // Costs of one use up the rest.
    assert_eq!(charged.into_inner(), 6_000);
}

proptest! {
    #[test]
    fn the_fast_path_decides_like_the_general_path(
        steps in prop::collection::vec(
            (0..40_u16, 0..4_usize, 0..3_u64, -300_000_000..900_000_000_i64),
            1..300,
        ),
        amount in 1..=2_000_000_000_u64,
        full in prop_oneof![
            Just(WhenFull::Approximate), Just(WhenFull::Allow), Just(WhenFull::Deny),
        ],
    ) {
        // The same keys under changing limits.
        let limits = [
            Limit::new(TokenBucket::new(2, Period::SECOND, 3)),
            Limit::new(TokenBucket::new(amount, Period::SECOND, 2)),
            Limit::new(LeakyBucket::new(2, Period::SECOND, 3)),
            Limit::new(FixedWindow::new(3, Window::Every(Period::SECOND))),
        ];
        let (fast, general) = (store(full), store(full));
        let mut now = NOW;
        for (name, limit, cost, step) in steps {
            now = Timestamp::from_nanos(now.as_nanos().saturating_add_signed(step));
            let (limit, key) = (&limits[limit], key(&fast, name));
            let decision = fast.decide_one(key, limit, cost, now);
            let expected = general.check_one(&Check::new(key, limit, cost), now).decision;
            prop_assert_eq!(decision, expected);
        }
        prop_assert_eq!(fast.stats(), general.stats());
    }
}
