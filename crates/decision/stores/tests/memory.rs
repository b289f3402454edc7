//! Promises of the memory store alone: exact under threads, bounded under floods.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_algorithms::{
    Concurrency, FixedWindow, Holder, LeakyBucket, Limit, Period, SlidingLog, SlidingWindow,
    Tenure, Timestamp, TokenBucket, Window,
};
use tidegate_stores::{
    Answer, Answers, Basis, Batch, Charge, Check, ConfigError, Key, MemoryConfig, MemoryStore,
    Role, Verb, WhenFull,
};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn store(budget_bytes: usize, when_full: WhenFull) -> MemoryStore {
    let config = MemoryConfig { budget_bytes, when_full, seed: Some(11) };
    MemoryStore::new(config).expect("the budget is enough")
}

fn key(store: &MemoryStore, name: &str) -> Key {
    Key { fingerprint: store.fingerprinter().of(1, name.as_bytes()), group: 1 }
}

fn check<'a>(store: &MemoryStore, name: &str, limit: &'a Limit) -> Check<'a> {
    let key = key(store, name);
    Check::new(key, limit, 1)
}

fn ask(store: &MemoryStore, name: &str, limit: &Limit, now: Timestamp) -> Answer {
    store.check_one(&check(store, name, limit), now)
}

fn after(seconds: u64) -> Timestamp {
    NOW.after(Duration::from_secs(seconds).into())
}

/// A limit of every kind, of `size`, that does not recover within a test.
fn every_kind(size: u64) -> Vec<Limit> {
    let day = Period::DAY;
    vec![
        Limit::new(TokenBucket::new(1, day, size)),
        Limit::new(FixedWindow::new(size, Window::Every(day))),
        Limit::new(SlidingWindow::new(size, day, 1).expect("in range")),
        Limit::new(SlidingWindow::new(size, day, 8).expect("in range")),
        Limit::new(SlidingLog::new(size, day).expect("small")),
        Limit::new(Concurrency::new(size, day).expect("small")),
    ]
}

#[test]
fn threads_on_one_key_admit_exactly_the_limit() {
    for limit in every_kind(1_000) {
        let store = store(1 << 20, WhenFull::Deny);
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let answer = ask(&store, "hot", &limit, NOW);
                        admitted
                            .fetch_add(u64::from(answer.decision.is_admitted()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 1_000, "{limit:?}");
    }
}

#[test]
fn threads_across_a_window_roll_admit_no_more_than_the_limit_of_each_window() {
    let limit = Limit::new(FixedWindow::new(500, Window::Every(Period::SECOND)));
    let store = store(1 << 20, WhenFull::Deny);
    let admitted = AtomicU64::new(0);
    let rolls = 3;
    let together = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for roll in 1..=rolls {
                    together.wait();
                    for turn in 0..1_000_u64 {
                        // Every other reading comes late, from before the roll.
                        let nanos = roll * 1_000_000_000 + turn % 2 * 2_000 - 1_000;
                        let now = NOW.after(Duration::from_nanos(nanos).into());
                        let answer = ask(&store, "hot", &limit, now);
                        admitted
                            .fetch_add(u64::from(answer.decision.is_admitted()), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    // Four windows were touched: one before the first roll.
    let admitted = admitted.into_inner();
    assert!((500 * rolls..=500 * (rolls + 1)).contains(&admitted), "{admitted}");
}

#[test]
fn threads_with_several_keys_in_any_order_neither_deadlock_nor_overspend() {
    let limit = Limit::new(TokenBucket::new(1, Period::DAY, 500));
    let store = store(1 << 20, WhenFull::Deny);
    let names: Vec<String> = (0..6).map(|number| format!("key {number}")).collect();
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, names, limit, admitted) = (&store, &names, &limit, &admitted);
            scope.spawn(move || {
                for turn in 0..500 {
                    let mut checks: Vec<_> =
                        names.iter().map(|name| check(store, name, limit)).collect();
                    checks.rotate_left((thread + turn) % names.len());
                    let mut answers = Answers::new();
                    let charge = Charge::AllOrNothing;
                    let batch = Batch::new(Verb::Check, charge, NOW, &checks);
                    store.apply_now(&batch, &mut answers);
                    let all = answers.iter().all(|answer| answer.decision.is_admitted());
                    admitted.fetch_add(u64::from(all), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 500);
}

#[test]
fn a_flood_of_new_keys_frees_no_limited_key_and_stays_within_the_budget() {
    let limit = Limit::new(TokenBucket::new(1, Period::HOUR, 2));
    for when_full in [WhenFull::Approximate, WhenFull::Allow, WhenFull::Deny] {
        let budget = 256 * 1024;
        let store = store(budget, when_full);
        let limited: Vec<String> = (0..100).map(|number| format!("limited {number}")).collect();
        for name in &limited {
            while ask(&store, name, &limit, NOW).decision.is_admitted() {}
        }
        for number in 0..100_000 {
            ask(&store, &format!("flood {number}"), &limit, NOW);
            if number % 1_000 == 0 {
                assert!(store.stats().bytes <= budget, "{:?}", store.stats());
            }
        }
        for name in &limited {
            let answer = ask(&store, name, &limit, NOW);
            assert!(!answer.decision.is_admitted(), "{name} was freed under {when_full:?}");
            assert_eq!(answer.basis, Basis::Exact);
        }
        assert!(store.stats().bytes <= budget, "{:?}", store.stats());
        assert!(store.stats().shared + store.stats().unmetered > 0, "the flood filled the store");
    }
}

#[test]
fn a_flood_of_lists_stays_within_the_budget() {
    let budget = 256 * 1024;
    let log = SlidingLog::new(50_000, Period::DAY).expect("in range");
    let limits = [Limit::new(log), Limit::new(Concurrency::new(50_000, Period::DAY).expect("ok"))];
    for limit in limits {
        let store = store(budget, WhenFull::Approximate);
        for number in 0..60_000_u64 {
            let name = format!("busy {}", number % 7);
            let now = NOW.after(Duration::from_nanos(number).into());
            let check = Check { holder: Holder(number), ..check(&store, &name, &limit) };
            store.check_one(&check, now);
        }
        assert!(store.stats().bytes <= budget, "{:?}", store.stats());
        assert!(store.stats().unmetered > 0, "the lists filled the store");
    }
}

#[test]
fn a_full_store_answers_new_keys_as_configured() {
    let limit = Limit::new(TokenBucket::new(1, Period::HOUR, 1));
    let fill = |when_full| {
        let store = store(64 * 1024, when_full);
        for number in 0..10_000 {
            ask(&store, &format!("fill {number}"), &limit, NOW);
        }
        store
    };
    let store = fill(WhenFull::Deny);
    assert!(!ask(&store, "new", &limit, NOW).decision.is_admitted());
    let store = fill(WhenFull::Allow);
    for _ in 0..3 {
        assert!(ask(&store, "new", &limit, NOW).decision.is_admitted());
    }
    let store = fill(WhenFull::Approximate);
    let answers: Vec<_> = (0..3).map(|_| ask(&store, "new", &limit, NOW)).collect();
    assert!(!answers[2].decision.is_admitted(), "a shared counter still limits");
    assert_eq!(answers[2].basis, Basis::Shared);
}

/// Takes slots for a holder that keeps them.
fn hold(store: &MemoryStore, name: &str, limit: &Limit, holder: u64) -> Answer {
    let check = check(store, name, limit);
    store.check_one(&Check { holder: Holder(holder), tenure: Tenure::Held, ..check }, NOW)
}

#[test]
fn a_slot_that_is_held_outlives_its_time_and_every_sweep_until_it_is_given_back() {
    let limit = Limit::new(Concurrency::new(2, Period::MINUTE).expect("small"));
    let store = store(1024 * 1024, WhenFull::Approximate);
    let before = store.stats();
    hold(&store, "held", &limit, 1);
    ask(&store, "held", &limit, NOW);
    let later = after(180);
    for shard in 0..store.shards() {
        store.sweep(shard, later);
    }
    let slot = check(&store, "held", &limit);
    let left = |now| together(&store, Verb::Peek, &[slot], now)[0].decision.remaining;
    assert_eq!(left(later), 1, "only the anonymous slot is gone");
    store.release(slot.key, Holder(2), 1);
    assert_eq!(left(later), 1, "somebody else has nothing to give back");
    store.release(slot.key, Holder(1), 1);
    assert_eq!(left(later), 2);
    for shard in 0..store.shards() {
        store.sweep(shard, later);
    }
    assert_eq!(store.stats(), before, "nothing is left of it");
}

#[test]
fn a_slot_of_a_shared_counter_comes_back_by_itself_though_somebody_holds_it() {
    let limit = Limit::new(Concurrency::new(1, Period::MINUTE).expect("small"));
    let filler = Limit::new(TokenBucket::new(1, Period::DAY, 1));
    let store = store(64 * 1024, WhenFull::Approximate);
    for number in 0..10_000 {
        ask(&store, &format!("fill {number}"), &filler, NOW);
    }
    let slot = check(&store, "new", &limit);
    let slot = Check { holder: Holder(1), tenure: Tenure::Held, ..slot };
    // By itself, and together with another one.
    for (checks, begin) in [(&[slot][..], 0), (&[slot, check(&store, "fill 1", &filler)], 60)] {
        let checks = checks.iter().map(|check| Check { role: Role::Observed, ..*check });
        let checks: Vec<_> = checks.collect();
        let taken = together(&store, Verb::Check, &checks, after(begin))[0];
        assert_eq!((taken.basis, taken.decision.taken), (Basis::Shared, 1));
        assert!(!ask(&store, "new", &limit, after(begin + 59)).decision.is_admitted());
        // It cannot be given back, so it must not be held for ever.
        let left = together(&store, Verb::Peek, &[slot], after(begin + 60))[0].decision;
        assert!(left.is_admitted(), "{begin}");
    }
}

/// Applies a verb to checks that are decided together.
fn together(store: &MemoryStore, verb: Verb, checks: &[Check<'_>], now: Timestamp) -> Answers {
    let mut answers = Answers::new();
    let charge = Charge::AllOrNothing;
    store.apply_now(&Batch::new(verb, charge, now, checks), &mut answers);
    answers
}

#[test]
fn an_answer_that_could_not_be_counted_says_so_when_keys_are_decided_together() {
    let limit = Limit::new(SlidingLog::new(9, Period::DAY).expect("small"));
    let store = store(64 * 1024, WhenFull::Approximate);
    for number in 0..5_000 {
        let (one, other) = (format!("one {number}"), format!("other {number}"));
        let checks = [check(&store, &one, &limit), check(&store, &other, &limit)];
        let charged = together(&store, Verb::Check, &checks, NOW);
        let left = together(&store, Verb::Peek, &checks, NOW);
        for (charged, left) in charged.iter().zip(&left) {
            if charged.basis == Basis::Exact && left.basis == Basis::Exact {
                assert_eq!(left.decision.remaining, charged.decision.remaining, "{number}");
            }
        }
    }
    assert!(store.stats().unmetered > 0, "some could not be counted");
}

#[test]
fn a_key_that_is_being_decided_is_not_dropped_to_make_room_for_its_companion() {
    let once = Limit::new(SlidingLog::new(1, Period::DAY).expect("small"));
    let store = store(64 * 1024, WhenFull::Approximate);
    let names: Vec<String> = (0..60).map(|number| format!("limited {number}")).collect();
    for name in &names {
        assert!(ask(&store, name, &once, NOW).decision.is_admitted());
    }
    let log = Limit::new(SlidingLog::new(50_000, Period::DAY).expect("in range"));
    for number in 0..20_000_u64 {
        let now = NOW.after(Duration::from_nanos(number).into());
        ask(&store, &format!("busy {}", number % 97), &log, now);
    }
    for round in 0..200 {
        for name in &names {
            let new = format!("new {round} {name}");
            let checks = [check(&store, name, &once), check(&store, &new, &once)];
            let answers = together(&store, Verb::Check, &checks, after(1));
            assert!(!answers[0].decision.is_admitted(), "{name} was forgotten in round {round}");
        }
    }
}

#[test]
fn one_counter_under_two_limits_is_peeked_at_as_it_is_then_charged() {
    let slow = Limit::new(LeakyBucket::new(1, Period::HOUR, 6));
    let fast = Limit::new(LeakyBucket::new(19, Period::SECOND, 20));
    let store = store(64 * 1024, WhenFull::Approximate);
    let checks = [&slow, &fast, &slow].map(|limit| check(&store, "ada", limit));
    let admitted = |verb| -> Vec<bool> {
        let answers = together(&store, verb, &checks, NOW);
        answers.iter().map(|answer| answer.decision.is_admitted()).collect()
    };
    assert_eq!(admitted(Verb::Peek), [true; 3]);
    assert_eq!(admitted(Verb::Check), [true; 3]);
}

#[test]
fn several_new_keys_of_a_request_are_counted_all_or_none_as_the_store_fills() {
    let bucket = Limit::new(TokenBucket::new(1, Period::DAY, 5));
    let log = Limit::new(SlidingLog::new(5, Period::DAY).expect("small"));
    for when_full in [WhenFull::Deny, WhenFull::Approximate] {
        let store = store(64 * 1024, when_full);
        let mut full = 0;
        for number in 0..3_000 {
            let first = check(&store, &format!("user {number}"), &bucket);
            // In one shard, as the limits of one rule are.
            let under = |limit, group: u64| {
                let fingerprint = first.key.fingerprint.under(group);
                Check { key: Key { fingerprint, group }, limit, ..first }
            };
            let checks = [first, under(&log, 2), under(&bucket, 3), under(&log, 4)];
            let mut answers = Answers::new();
            let charge = Charge::AllOrNothing;
            let batch = Batch::new(Verb::Check, charge, NOW, &checks);
            store.apply_now(&batch, &mut answers);
            let admitted = answers.iter().all(|answer| answer.decision.is_admitted());
            let counted = answers.iter().all(|answer| answer.basis != Basis::Full);
            full += usize::from(!counted);
            assert!(counted || !admitted || when_full == WhenFull::Approximate, "{answers:?}");
        }
        let stats = store.stats();
        assert!(stats.bytes <= 64 * 1024, "{stats:?}");
        match when_full {
            WhenFull::Deny => assert!(full > 0, "the store filled"),
            WhenFull::Approximate | WhenFull::Allow => assert!(stats.shared > 0, "{stats:?}"),
        }
    }
}

#[test]
fn shards_grow_at_different_times() {
    let limit = Limit::new(TokenBucket::new(1, Period::DAY, 1));
    let store = store(64 << 20, WhenFull::Deny);
    // Looks after every hundredth of the keys; within that time few shards grow.
    let looks: Vec<usize> = (0..100_u32)
        .map(|look| {
            for number in look * 1_000..(look + 1) * 1_000 {
                ask(&store, &format!("key {number}"), &limit, NOW);
            }
            store.stats().bytes
        })
        .collect();
    for (look, pair) in looks.windows(2).enumerate().skip(50) {
        assert!(pair[1] <= pair[0] + pair[0] / 16, "from {} to {} at {look}", pair[0], pair[1]);
    }
}

#[test]
fn slots_of_idle_keys_are_used_again() {
    let limit = Limit::new(TokenBucket::new(1, Period::SECOND, 1));
    let store = store(64 * 1024, WhenFull::Deny);
    for second in 0..1_000_u64 {
        for number in 0..20 {
            let answer = ask(&store, &format!("{second} {number}"), &limit, after(2 * second));
            assert!(answer.decision.is_admitted());
            assert_eq!(answer.basis, Basis::Exact);
        }
    }
    assert_eq!(store.stats().unmetered, 0);
}

#[test]
fn sweeping_gives_memory_back() {
    let limit = Limit::new(TokenBucket::new(1, Period::SECOND, 1));
    let store = store(4 << 20, WhenFull::Deny);
    let empty = store.stats().bytes;
    for number in 0..20_000 {
        ask(&store, &format!("key {number}"), &limit, NOW);
    }
    assert_eq!(store.stats().keys, 20_000);
    for shard in 0..store.shards() {
        store.sweep(shard, after(2));
    }
    assert_eq!(store.stats().keys, 0);
    assert_eq!(store.stats().bytes, empty);
}

#[test]
fn a_budget_too_small_to_enforce_is_refused() {
    for budget_bytes in [0, 1, 1024] {
        let config = MemoryConfig { budget_bytes, ..MemoryConfig::default() };
        let error = MemoryStore::new(config).expect_err("too small");
        assert_eq!(error, ConfigError::BudgetTooSmall { budget_bytes });
    }
}

#[test]
fn the_smallest_budget_still_enforces() {
    let store = store(64 * 1024, WhenFull::Approximate);
    for limit in every_kind(3) {
        let name = format!("{limit:?}");
        let admitted =
            (0..10).filter(|_| ask(&store, &name, &limit, NOW).decision.is_admitted()).count();
        assert_eq!(admitted, 3, "{limit:?}");
    }
}

#[test]
fn a_key_is_inspected_and_reset_although_only_its_fingerprint_is_kept() {
    let limit = Limit::new(TokenBucket::new(1, Period::HOUR, 5));
    let store = store(1 << 20, WhenFull::Deny);
    for _ in 0..3 {
        ask(&store, "ada", &limit, NOW);
    }
    let apply = |verb| {
        let checks = [check(&store, "ada", &limit)];
        let mut answers = Answers::new();
        let batch = Batch::new(verb, Charge::AllOrNothing, NOW, &checks);
        store.apply_now(&batch, &mut answers);
        answers[0].decision
    };
    assert_eq!(apply(Verb::Peek).remaining, 2);
    assert_eq!(apply(Verb::Peek).remaining, 2);
    assert_eq!(apply(Verb::Reset).remaining, 5);
    assert_eq!(apply(Verb::Peek).remaining, 5);
}

#[test]
fn keys_of_any_bytes_and_length_are_distinct() {
    let limit = Limit::new(TokenBucket::new(1, Period::HOUR, 1));
    let store = store(1 << 20, WhenFull::Deny);
    let long = vec![b'x'; 1 << 20];
    let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"\xff\xfe", &long, &long[1..]];
    for bytes in keys {
        let fingerprint = store.fingerprinter().of(1, bytes);
        let key = Key { fingerprint, group: 1 };
        let check = Check { key, ..check(&store, "", &limit) };
        assert!(store.check_one(&check, NOW).decision.is_admitted());
        assert!(!store.check_one(&check, NOW).decision.is_admitted());
    }
}

proptest! {
    /// Growing, sweeping and removing lose or confuse no key: every key's count equals that of a plain map.
    #[test]
    fn inserting_and_expiring_keys_in_any_order_loses_none(
        steps in prop::collection::vec((0..60_u16, 0..3_u64), 1..400),
    ) {
        let limit = Limit::new(FixedWindow::new(1_000, Window::Every(Period::MINUTE)));
        let store = store(64 * 1024, WhenFull::Deny);
        let mut counts = std::collections::HashMap::new();
        let mut seconds = 0;
        for (name, turn) in steps {
            seconds += turn * 7;
            let now = after(seconds);
            let window = now.as_nanos() / 60_000_000_000;
            let count = counts.entry((name, window)).or_insert(0_u64);
            *count += 1;
            let answer = ask(&store, &name.to_string(), &limit, now);
            prop_assert_eq!(answer.decision.remaining, 1_000 - *count);
        }
    }

    /// A request of known keys in many shards is one transaction; a request with more checks than
    /// fit takes the general path. Observed checks make the difference, and change no answer.
    #[test]
    fn keys_of_many_shards_are_decided_as_they_are_in_general(
        requests in prop::collection::vec(
            (prop::collection::vec((0..20_usize, 0..4_u64), 2..10), any::<bool>(), 0..2_u64),
            1..40,
        ),
    ) {
        let limits = [
            Limit::new(TokenBucket::new(1, Period::SECOND, 9)),
            Limit::new(LeakyBucket::new(2, Period::SECOND, 8)),
            Limit::new(FixedWindow::new(7, Window::Every(Period::MINUTE))),
            Limit::new(FixedWindow::new(7, Window::Every(Period::MINUTE)).counting_refused(true)),
        ];
        let many = Limit::new(TokenBucket::new(1, Period::SECOND, 1_000_000));
        let (in_slots, in_general) = (store(1 << 20, WhenFull::Deny), store(1 << 20, WhenFull::Deny));
        let mut seconds = 0;
        for (asked, always, pause) in requests {
            seconds += pause;
            let charge = if always { Charge::Always } else { Charge::AllOrNothing };
            let checks: Vec<Check<'_>> = asked
                .iter()
                .map(|(name, cost)| {
                    let limit = &limits[name % limits.len()];
                    Check { cost: *cost, ..check(&in_slots, &name.to_string(), limit) }
                })
                .collect();
            let padding = (0..16).map(|number| Check {
                role: Role::Observed,
                ..check(&in_slots, &format!("padding {number}"), &many)
            });
            let padded: Vec<Check<'_>> = checks.iter().copied().chain(padding).collect();
            let decided = |store: &MemoryStore, checks: &[Check<'_>]| {
                let mut answers = Answers::new();
                let batch = Batch::new(Verb::Check, charge, after(seconds), checks);
                store.apply_now(&batch, &mut answers);
                answers.truncate(asked.len());
                answers
            };
            prop_assert_eq!(decided(&in_slots, &checks), decided(&in_general, &padded));
        }
    }
}
