//! Random requests on a few keys, on a clock that goes forward.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use tidegate_algorithms::{
    Algorithm, CalendarUnit, Concurrency, FixedWindow, Holder, LeakyBucket, Limit, Period,
    RoundingMode, SlidingLog, SlidingWindow, Soft, Timestamp, TokenBucket, Window,
};
use tidegate_stores::{
    Answers, Basis, Batch, Charge, Check, CounterStore, Fingerprinter, Key, Role, Verb,
};

use super::model::Model;

/// Sequences, and requests in each.
const SEQUENCES: usize = 40;
const REQUESTS: usize = 200;

#[derive(Clone, Debug)]
struct Step {
    verb: Verb,
    charge: Charge,
    /// Milliseconds to turn the clock by.
    turn: u64,
    checks: Vec<(usize, usize, u64, u64, Role, Option<u64>)>,
}

fn limits() -> Vec<Limit> {
    let window = |limit, period| FixedWindow::new(limit, Window::Every(period));
    let soft = Soft { over_percent: 50, lasting: Period::SECOND };
    let log = SlidingLog::new(4, Period::SECOND).expect("small");
    let utc = jiff_utc();
    let sliding =
        |limit, slices| SlidingWindow::new(limit, Period::SECOND, slices).expect("in range");
    vec![
        Limit::new(TokenBucket::new(5, Period::SECOND, 7)),
        Limit::new(LeakyBucket::new(10, Period::SECOND, 3)),
        Limit::new(window(6, Period::SECOND)),
        Limit::new(window(6, Period::SECOND).counting_refused(true)),
        Limit::new(FixedWindow::new(9, Window::Calendar(CalendarUnit::Day, utc))),
        Limit::new(log.clone()),
        Limit::new(log.counting_refused(true)),
        Limit::new(sliding(5, 1)),
        Limit::new(sliding(5, 4)),
        Limit::new(sliding(5, 1).rounded(RoundingMode::Down)),
        Limit::new(sliding(4, 4).rounded(RoundingMode::Down)).with_soft(soft),
        Limit::new(Concurrency::new(3, Period::SECOND).expect("small")),
        Limit::new(TokenBucket::new(5, Period::SECOND, 4)).with_soft(soft),
        Limit::new(window(4, Period::SECOND)).with_soft(soft),
        Limit::new(LeakyBucket::new(10, Period::SECOND, 3)).with_soft(soft),
        Limit::new(sliding(4, 4)).with_soft(soft),
        Limit::new(sliding(4, 1).counting_refused(true)).with_soft(soft),
        Limit::new(SlidingLog::new(4, Period::SECOND).expect("small").counting_refused(true))
            .with_soft(soft),
        Limit::new(Concurrency::new(4, Period::SECOND).expect("small")).with_soft(soft),
        Limit::new(window(4, Period::SECOND).counting_refused(true)).with_soft(soft),
    ]
}

/// Limits whose states are long lists.
fn long_lists() -> Vec<Limit> {
    let soft = Soft { over_percent: 20, lasting: Period::SECOND };
    let log = |limit| SlidingLog::new(limit, Period::SECOND).expect("small");
    let slots = |limit| Concurrency::new(limit, Period::SECOND).expect("small");
    vec![
        Limit::new(log(150)),
        Limit::new(log(90).counting_refused(true)),
        Limit::new(log(60)).with_soft(soft),
        Limit::new(slots(150)),
        Limit::new(slots(40)).with_soft(soft),
    ]
}

/// A new algorithm has to be added to the limits above.
#[test]
fn sequences_have_limits_of_every_algorithm() {
    let limits = limits();
    for name in Algorithm::NAMES {
        assert!(limits.iter().any(|limit| limit.algorithm().name() == *name), "{name}");
    }
}

fn jiff_utc() -> jiff::tz::TimeZone {
    jiff::tz::TimeZone::UTC
}

/// How requests are drawn: the most that one costs, how many holders there
/// are, how far the clock mostly turns, and how many keys each limit has.
#[derive(Clone, Copy)]
struct Mix {
    cost_max: u64,
    holders: u64,
    turn_max: u64,
    keys: usize,
    requests: usize,
    /// Out of eleven requests, how many forget a key.
    resets: u32,
}

fn step(limits: usize, mix: Mix) -> impl Strategy<Value = Step> {
    let verb = prop_oneof![
        6 => Just(Verb::Check),
        1 => Just(Verb::Peek),
        1 => Just(Verb::Take),
        1 => Just(Verb::Refund),
        1 => Just(Verb::Charge),
        mix.resets => Just(Verb::Reset),
    ];
    let charge = prop_oneof![3 => Just(Charge::AllOrNothing), 1 => Just(Charge::Always)];
    // Never back: a store may have dropped idle states.
    let turn = prop_oneof![5 => 0..=mix.turn_max, 1 => 0..=mix.turn_max * 8];
    let role = prop_oneof![
        4 => Just(Role::Required),
        1 => Just(Role::Alternative),
        1 => Just(Role::Observed),
    ];
    let check = (0..limits, 0..mix.keys, 0..=mix.cost_max, 0..mix.holders, role, lease());
    (verb, charge, turn, prop::collection::vec(check, 1..5))
        .prop_map(|(verb, charge, turn, checks)| Step { verb, charge, turn, checks })
}

/// Milliseconds: shorter than slots live, as long, and longer.
fn lease() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![4 => Just(None), 4 => (1..1_000_u64).prop_map(Some), 1 => Just(Some(1_000)), 1 => Just(Some(5_000))]
}

/// Sends the same random requests to a store and to the model.
pub(crate) async fn equal_the_model<S: CounterStore>(store: impl Fn() -> S) {
    let mix =
        Mix { cost_max: 3, holders: 3, turn_max: 300, keys: 2, requests: REQUESTS, resets: 1 };
    equal(store, &limits(), mix, SEQUENCES).await;
}

/// The same with states that are long lists.
pub(crate) async fn equal_the_model_on_long_lists<S: CounterStore>(store: impl Fn() -> S) {
    let mix =
        Mix { cost_max: 2, holders: 500, turn_max: 4, keys: 1, requests: REQUESTS * 4, resets: 0 };
    equal(&store, &long_lists(), mix, 3).await;
    let mix = Mix { cost_max: 60, turn_max: 40, resets: 1, ..mix };
    equal(store, &long_lists(), mix, 3).await;
}

async fn equal<S: CounterStore>(
    store: impl Fn() -> S,
    limits: &[Limit],
    mix: Mix,
    sequences: usize,
) {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let sequence = prop::collection::vec(step(limits.len(), mix), mix.requests);
    // One value: its counters share a shard, and a slot of a cluster.
    let base = Fingerprinter::seeded(3).of(0, b"caller");
    for number in 0..sequences {
        let steps = sequence.new_tree(&mut runner).expect("no filters").current();
        let (store, mut model) = (store(), Model::default());
        let mut now = 1_700_000_000_000_u64;
        for (at, step) in steps.iter().enumerate() {
            now += step.turn;
            let checks: Vec<Check<'_>> = step
                .checks
                .iter()
                .map(|(limit, key, cost, holder, role, lease)| {
                    let group = *limit as u64;
                    let fingerprint = base.under(group * 2 + *key as u64);
                    let key = Key { fingerprint, group };
                    let holder = Holder(*holder);
                    let lease = lease.map(Duration::from_millis);
                    let lease = lease.map(|lease| Period::new(lease).expect("in range"));
                    let check = Check::new(key, &limits[*limit], *cost);
                    Check { holder, role: *role, tenure: lease.into(), ..check }
                })
                .collect();
            let now = Timestamp::from_nanos(now * 1_000_000);
            let batch = Batch::new(step.verb, step.charge, now, &checks);
            let mut answers = Answers::new();
            store.apply(&batch, &mut answers).await.expect("the store answers");
            let decided: Vec<_> = answers.iter().map(|answer| answer.decision).collect();
            assert_eq!(decided, model.apply(&batch), "sequence {number}, request {at}: {step:?}");
            assert!(answers.iter().all(|answer| answer.basis == Basis::Exact));
        }
    }
}
