//! Random requests on a few keys, on a clock that goes forward.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use tidegate_algorithms::{
    CalendarUnit, Concurrency, FixedWindow, Holder, LeakyBucket, Limit, Period, SlidingLog,
    SlidingWindow, Soft, Timestamp, TokenBucket, Window,
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
    checks: Vec<(usize, usize, u64, u64, Role)>,
}

fn limits() -> Vec<Limit> {
    let window = |limit, period| FixedWindow::new(limit, Window::Every(period));
    let soft = Soft { over_percent: 50, lasting: Period::SECOND };
    let log = SlidingLog::new(4, Period::SECOND).expect("small");
    let utc = jiff_utc();
    vec![
        Limit::new(TokenBucket::new(5, Period::SECOND, 7)),
        Limit::new(LeakyBucket::new(10, Period::SECOND, 3)),
        Limit::new(window(6, Period::SECOND)),
        Limit::new(window(6, Period::SECOND).counting_refused(true)),
        Limit::new(FixedWindow::new(9, Window::Calendar(CalendarUnit::Day, utc))),
        Limit::new(log.clone()),
        Limit::new(log.counting_refused(true)),
        Limit::new(SlidingWindow::new(5, Period::SECOND, 1).expect("in range")),
        Limit::new(SlidingWindow::new(5, Period::SECOND, 4).expect("in range")),
        Limit::new(Concurrency::new(3, Period::SECOND).expect("small")),
        Limit::new(TokenBucket::new(5, Period::SECOND, 4)).with_soft(soft),
        Limit::new(window(4, Period::SECOND)).with_soft(soft),
    ]
}

fn jiff_utc() -> jiff::tz::TimeZone {
    jiff::tz::TimeZone::UTC
}

fn step(limits: usize) -> impl Strategy<Value = Step> {
    let verb = prop_oneof![
        6 => Just(Verb::Check),
        1 => Just(Verb::Peek),
        1 => Just(Verb::Take),
        1 => Just(Verb::Refund),
        1 => Just(Verb::Reset),
        1 => Just(Verb::Charge),
    ];
    let charge = prop_oneof![3 => Just(Charge::AllOrNothing), 1 => Just(Charge::Always)];
    // Never back: a store may have dropped what had become idle.
    let turn = prop_oneof![5 => 0..=300_u64, 1 => 0..=2500_u64];
    let role = prop_oneof![
        4 => Just(Role::Required),
        1 => Just(Role::Alternative),
        1 => Just(Role::Observed),
    ];
    let check = (0..limits, 0..2_usize, 0..4_u64, 0..3_u64, role);
    (verb, charge, turn, prop::collection::vec(check, 1..5))
        .prop_map(|(verb, charge, turn, checks)| Step { verb, charge, turn, checks })
}

/// Sends the same random requests to a store and to the model.
pub(crate) async fn equal_the_model<S: CounterStore>(store: impl Fn() -> S) {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let limits = limits();
    let sequence = prop::collection::vec(step(limits.len()), REQUESTS);
    let fingerprinter = Fingerprinter::seeded(3);
    for number in 0..SEQUENCES {
        let steps = sequence.new_tree(&mut runner).expect("no filters").current();
        let (store, mut model) = (store(), Model::default());
        let mut now = 1_700_000_000_000_u64;
        for (at, step) in steps.iter().enumerate() {
            now += step.turn;
            let checks: Vec<Check<'_>> = step
                .checks
                .iter()
                .map(|(limit, key, cost, holder, role)| {
                    let group = *limit as u64;
                    let fingerprint = fingerprinter.of(group, &key.to_le_bytes());
                    let key = Key { fingerprint, group };
                    let holder = Holder(*holder);
                    Check { holder, role: *role, ..Check::new(key, &limits[*limit], *cost) }
                })
                .collect();
            let now = Timestamp::from_nanos(now * 1_000_000);
            let batch = Batch::new(step.verb, step.charge, now, &checks);
            let mut answers = Answers::new();
            store.apply(&batch, &mut answers).await.expect("the store answers");
            let told: Vec<_> = answers.iter().map(|answer| answer.decision).collect();
            assert_eq!(told, model.apply(&batch), "sequence {number}, request {at}: {step:?}");
            assert!(answers.iter().all(|answer| answer.basis == Basis::Exact));
        }
    }
}
