//! Random requests on keys whose limits keep changing, on a clock that also steps back, with costs and limits up to the
//! largest.
//!
//! A shared store writes only states that a request changed, or that had to be settled for another limit. The model
//! does the same, because a clock that steps back, or a limit that changes twice, makes the difference visible.

use std::collections::HashMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidegate_algorithms::{
    Algorithm, CalendarUnit, Decision, FixedWindow, LeakyBucket, Limit, Period, RoundingMode,
    SlicesState, SlidingWindow, Soft, SoftState, State, Timestamp, TokenBucket, Window,
    WindowState,
};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CounterStore, Fingerprint, Fingerprinter, Key, Role, Verb,
    passes,
};

use super::model::Model;

const SEQUENCES: usize = 30;
const REQUESTS: usize = 150;

/// The largest count of Redis.
const COUNT_MAX: u64 = (1 << 53) - 1;

/// The limits that one key may have, by turns.
fn families() -> Vec<Vec<Limit>> {
    let buckets = buckets();
    let windows = windows();
    let slices = slices();
    let all = buckets.iter().chain(&windows).chain(&slices).cloned().collect();
    vec![buckets, windows, slices, all]
}

fn soft() -> Soft {
    Soft { over_percent: 50, lasting: Period::SECOND }
}

fn buckets() -> Vec<Limit> {
    let millis = |millis| Period::new(Duration::from_millis(millis)).expect("in range");
    vec![
        Limit::new(TokenBucket::new(5, Period::SECOND, 7)),
        Limit::new(TokenBucket::new(5, Period::SECOND, 1_000)),
        Limit::new(TokenBucket::new(50, Period::SECOND, 7)),
        Limit::new(TokenBucket::new(3, Period::MINUTE, 20)),
        Limit::new(TokenBucket::new(1_000_000_007, Period::SECOND, 3_000_000_000)),
        Limit::new(TokenBucket::new(7, millis(1), 1 << 40)),
        Limit::new(TokenBucket::new(1, Period::MAX, 200)),
        Limit::new(TokenBucket::new(u64::MAX, Period::SECOND, u64::MAX)),
        Limit::new(LeakyBucket::new(10, Period::SECOND, 3)),
        Limit::new(TokenBucket::new(5, Period::SECOND, 4)).with_soft(soft()),
        Limit::new(TokenBucket::new(11, Period::DAY, 4_000)).with_soft(soft()),
    ]
}

fn windows() -> Vec<Limit> {
    let micros = |micros| Period::new(Duration::from_micros(micros)).expect("in range");
    let window = |limit, period| FixedWindow::new(limit, Window::Every(period));
    let berlin = TimeZone::get("Europe/Berlin").expect("bundled");
    vec![
        Limit::new(window(6, Period::SECOND)),
        Limit::new(window(6, Period::MINUTE)),
        Limit::new(window(9, micros(1_234_567)).counting_refused(true)),
        Limit::new(window(u64::MAX, Period::SECOND)),
        Limit::new(FixedWindow::new(9, Window::Calendar(CalendarUnit::Day, berlin.clone()))),
        Limit::new(FixedWindow::new(9, Window::Calendar(CalendarUnit::Month, berlin))),
        Limit::new(window(4, Period::SECOND)).with_soft(soft()),
    ]
}

fn slices() -> Vec<Limit> {
    let sliding =
        |limit, period, slices| SlidingWindow::new(limit, period, slices).expect("in range");
    vec![
        Limit::new(sliding(5, Period::SECOND, 1)),
        Limit::new(sliding(7, Period::SECOND, 4)),
        Limit::new(sliding(70_000, Period::SECOND, 64)),
        Limit::new(sliding(1_000_000_007, Period::MINUTE, 1)),
        Limit::new(sliding(COUNT_MAX, Period::HOUR, 2)),
        Limit::new(sliding(5, Period::MINUTE, 1).counting_refused(true)),
        Limit::new(sliding(7, Period::SECOND, 4).rounded(RoundingMode::Down)),
        Limit::new(sliding(1_000_000_007, Period::SECOND, 4).rounded(RoundingMode::Down)),
        Limit::new(sliding(5, Period::SECOND, 4)).with_soft(soft()),
    ]
}

#[derive(Clone, Debug)]
struct Step {
    verb: Verb,
    charge: Charge,
    /// Microseconds to turn the clock by.
    turn: i64,
    checks: Vec<(usize, usize, u64, Role)>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let verb = prop_oneof![
        8 => Just(Verb::Check),
        1 => Just(Verb::Peek),
        1 => Just(Verb::Take),
        1 => Just(Verb::Refund),
        1 => Just(Verb::Charge),
    ];
    let charge = prop_oneof![3 => Just(Charge::AllOrNothing), 1 => Just(Charge::Always)];
    let turn = prop_oneof![
        3 => 0..=50_i64,
        4 => 0..=700_000_i64,
        1 => 0..=100_000_000_i64,
        2 => -400_000..=0_i64,
    ];
    let cost = prop_oneof![
        8 => 0..=4_u64,
        2 => 0..=100_000_u64,
        1 => (0..64_u32).prop_map(|bits| 1_u64 << bits),
        1 => Just(u64::MAX),
    ];
    let role = prop_oneof![3 => Just(Role::Required), 1 => Just(Role::Observed)];
    let check = (0..4_usize, 0..100_usize, cost, role);
    let step = (verb, charge, turn, prop::collection::vec(check, 1..4))
        .prop_map(|(verb, charge, turn, checks)| Step { verb, charge, turn, checks });
    prop::collection::vec(step, REQUESTS)
}

/// Sends the same requests to a store and to the model.
pub(crate) async fn equal_the_model<S: CounterStore>(store: impl Fn() -> S) {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let families = families();
    let base = Fingerprinter::seeded(5).of(0, b"caller");
    for number in 0..SEQUENCES {
        let steps = steps().new_tree(&mut runner).expect("no filters").current();
        let (store, mut model) = (store(), Thrifty::default());
        let mut now = 1_800_000_000_000_000_i64;
        for (at, step) in steps.iter().enumerate() {
            now += step.turn;
            let checks: Vec<Check<'_>> = step
                .checks
                .iter()
                .map(|(family, limit, cost, role)| {
                    // Limits stay for a while, so that states are found as they were written.
                    let family_limits = &families[*family];
                    let limit = &family_limits[(at / 4 + limit / 80) % family_limits.len()];
                    let group = *family as u64;
                    let key = Key { fingerprint: base.under(group), group };
                    Check { role: *role, ..Check::new(key, limit, *cost) }
                })
                .collect();
            let now = Timestamp::from_nanos(u64::try_from(now).expect("late enough") * 1_000);
            let batch = Batch::new(step.verb, step.charge, now, &checks);
            let mut answers = Answers::new();
            store.apply(&batch, &mut answers).await.expect("the store answers");
            let decided: Vec<_> = answers.iter().map(|answer| answer.decision).collect();
            let expected = model.apply(&batch);
            assert_eq!(decided, expected, "sequence {number}, request {at}: {batch:?}");
        }
    }
}

/// A model that stores only states that requests change.
#[derive(Default)]
struct Thrifty {
    states: HashMap<Fingerprint, State>,
}

impl Thrifty {
    fn apply(&mut self, batch: &Batch<'_>) -> Vec<Decision> {
        let checks = batch.checks.iter();
        let checks: Vec<Check<'_>> =
            checks.map(|check| Check { cost: check.cost.min(COUNT_MAX), ..*check }).collect();
        let batch = Batch { checks: &checks, ..*batch };
        let mut model = Model::of(self.states.clone());
        let decided = model.apply(&batch);
        let mixed = has_mixed_twins(&checks);
        for (at, check) in checks.iter().enumerate() {
            let key = check.key.fingerprint;
            if checks[..at].iter().any(|other| other.key == check.key) {
                continue;
            }
            let found = self.states.get(&key).cloned().unwrap_or_default();
            if mixed || is_changed(&batch, key, &decided) {
                self.states.insert(key, counted(model.state(key)));
            } else if !script_settles(&found, check.limit, batch.now) {
                let mut settled = found;
                check.limit.settle(&mut settled, batch.now);
                self.states.insert(key, settled);
            }
        }
        decided
    }
}

/// One key under limits of different shape: its states are put there by Rust.
fn has_mixed_twins(checks: &[Check<'_>]) -> bool {
    checks.iter().enumerate().any(|(at, check)| {
        let mut before = checks[..at].iter().filter(|other| other.key == check.key);
        before.any(|other| shape(other.limit) != shape(check.limit))
    })
}

/// The parameters by which the script settles a state: the same text for limits that it settles alike.
fn shape(limit: &Limit) -> String {
    if let Some(terms) = limit.kept_by().bucket_terms() {
        return format!("{} {} {} {:?}", terms.scale, terms.shift, terms.longest, limit.soft());
    }
    match limit.kept_by() {
        Algorithm::FixedWindow(window) => format!("{:?} {:?}", window.window(), limit.soft()),
        Algorithm::SlidingWindow(window) => {
            format!("{:?} {} {:?}", window.period(), window.slices(), limit.soft())
        }
        other => format!("{other:?}"),
    }
}

/// Whether a batch changed the key.
fn is_changed(batch: &Batch<'_>, key: Fingerprint, decided: &[Decision]) -> bool {
    let checked = batch.checks.iter().zip(decided);
    let pass = passes(checked.clone().map(|(check, decided)| (check.role, decided.is_admitted())));
    let charged = pass || batch.charge == Charge::Always;
    let mut own = checked.filter(|(check, _)| check.key.fingerprint == key && check.cost > 0);
    own.any(|(check, decided)| match batch.verb {
        Verb::Check if decided.is_admitted() => charged,
        Verb::Check => counts_refused(check.limit),
        Verb::Take => decided.taken > 0,
        Verb::Refund => !matches!(check.limit.algorithm(), Algorithm::LeakyBucket(_)),
        Verb::Charge | Verb::Reset => true,
        Verb::Peek => false,
    })
}

fn counts_refused(limit: &Limit) -> bool {
    match limit.algorithm() {
        Algorithm::FixedWindow(window) => window.counts_refused(),
        Algorithm::SlidingWindow(window) => window.counts_refused(),
        _ => false,
    }
}

/// Whether the script can settle a state for this limit by itself.
fn script_settles(state: &State, limit: &Limit, now: Timestamp) -> bool {
    let inner = match (state, limit.soft()) {
        (State::Unused, _) => return true,
        (State::Soft(soft), Some(_)) => soft.inner.clone(),
        (State::Soft(_), None) | (_, Some(_)) => return false,
        (hard, None) => hard.clone(),
    };
    if let Some(terms) = limit.kept_by().bucket_terms() {
        return match &inner {
            State::Bucket(bucket) => {
                let (full_at, part) = bucket.to_parts();
                part & 0x3_FFFF == terms.scale && full_at.since(now).get() <= terms.longest
            }
            other => *other == State::Unused,
        };
    }
    match limit.kept_by() {
        Algorithm::FixedWindow(_) => matches!(inner, State::Window(_) | State::Unused),
        Algorithm::SlidingWindow(window) => match &inner {
            State::Slices(slices) => {
                let (begun, slice, counts) = slices.to_parts();
                slice == window.slice()
                    && counts.len() == usize::from(window.slices()) + 1
                    && begun <= now.after(window.period().lag_max())
            }
            other => *other == State::Unused,
        },
        _ => true,
    }
}

/// The state as far as Redis counts.
fn counted(state: State) -> State {
    match state {
        State::Window(window) => {
            State::Window(WindowState { count: window.count.min(COUNT_MAX), ..window })
        }
        State::Slices(slices) => {
            let (begun, slice, counts) = slices.to_parts();
            let counts: Vec<u64> = counts.iter().map(|count| (*count).min(COUNT_MAX)).collect();
            State::Slices(SlicesState::from_parts(begun, slice, &counts))
        }
        State::Soft(soft) => {
            let inner = counted(soft.inner.clone());
            State::Soft(Box::new(SoftState { inner, allowance: soft.allowance }))
        }
        other => other,
    }
}
