//! Properties of all algorithms.

use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::bucket::BucketState;
use crate::check_input::Holder;
use crate::decision::Retry;
use crate::period::Period;
use crate::tests::harness::{Harness, START};
use crate::time::Nanos;
use crate::window::CalendarUnit;
use crate::window::Window;
use crate::{Concurrency, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};

fn period(nanos: u64) -> Period {
    crate::tests::harness::period(Nanos::new(nanos))
}

/// Any algorithm, with an amount and a size from these.
fn algorithm(
    amount: impl Strategy<Value = u64>,
    size: impl Strategy<Value = u64>,
    length: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Algorithm> {
    let unit = select(vec![CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month]);
    let zone = select(vec!["Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns"]);
    let calendar = (unit, zone, 0..4_u8);
    let parameters = (amount, size, length, 1..=9_u16, any::<bool>(), calendar, 0..6_u8);
    parameters.prop_map(|(amount, size, length, slices, counts, calendar, kind)| {
        let length = period(length);
        match kind {
            0 => TokenBucket::new(amount, length, size).into(),
            1 => LeakyBucket::new(amount, length, size).into(),
            2 => {
                let window = match calendar {
                    (unit, zone, 0) => Window::Calendar(unit, TimeZone::get(zone).unwrap()),
                    _ => Window::Every(length),
                };
                FixedWindow::new(size, window).counting_refused(counts).into()
            }
            3 => {
                let log = SlidingLog::new(size.min(SLIDING_LOG_MAX), length).unwrap();
                log.counting_refused(counts).into()
            }
            4 => {
                let window = SlidingWindow::new(size, length, slices).unwrap();
                window.counting_refused(counts).into()
            }
            _ => Concurrency::new(size.min(CONCURRENCY_MAX), length).unwrap().into(),
        }
    })
}

fn softened(
    algorithm: impl Strategy<Value = Algorithm>,
    percent: impl Strategy<Value = u32>,
    lasting: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Limit> {
    (algorithm, any::<bool>(), percent, lasting).prop_map(|(algorithm, soft, percent, lasting)| {
        let limit = Limit::new(algorithm);
        if !soft {
            return limit;
        }
        limit.with_soft(Soft { over_percent: percent, lasting: period(lasting) })
    })
}

/// Limits as rules have them.
fn usual_limit() -> impl Strategy<Value = Limit> {
    let amount = prop_oneof![1..=10_u64, 1_000..=2_000_000_000_u64];
    let length = || 1_000_000..=5_000_000_000_u64;
    softened(algorithm(amount, 1..=12_u64, length()), 0..=200_u32, length())
}

fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![select(vec![0, 1, 2, u64::MAX - 1, u64::MAX]), any::<u64>(), 0..=100_u64]
}

/// Limits with absurd parameters.
fn any_limit() -> impl Strategy<Value = Limit> {
    let length = || {
        let (min, max) = (Period::MIN.as_nanos(), Period::MAX.as_nanos());
        prop_oneof![Just(min), Just(max), min..=max]
    };
    let percent = prop_oneof![Just(0), Just(u32::MAX), any::<u32>(), 0..=300_u32];
    softened(algorithm(extreme(), extreme(), length()), percent, length())
}

/// Everything that can be done to a key.
#[derive(Clone, Debug)]
enum Action {
    Check(u64),
    Take(u64),
    Refund(u64),
    Peek(u64),
    /// Charged without having been admitted.
    Charge(u64),
    Refuse(u64),
    Wait(u64),
    StepBack(u64),
    Set(u64),
    Change(Limit),
    /// A bucket's state from anywhere.
    Replace(u64, u32),
}

fn do_one(t: &mut Harness, deed: Action) -> Option<(u64, Decision)> {
    match deed {
        Action::Check(cost) => return Some((cost, t.check(cost))),
        Action::Take(cost) => drop(t.take(cost)),
        Action::Refund(cost) => drop(t.refund(cost)),
        Action::Peek(cost) => drop(t.peek(cost)),
        Action::Charge(cost) => {
            let decision = t.peek(cost);
            let input = t.input(cost);
            t.limit.charge(&mut t.state, input, &decision);
        }
        Action::Refuse(cost) => {
            let input = t.input(cost);
            t.limit.refuse(&mut t.state, input);
        }
        Action::Wait(span) => t.advance(Nanos::new(span)),
        Action::StepBack(span) => t.step_back(Nanos::new(span)),
        Action::Set(now) => t.set(Timestamp::from_nanos(now)),
        Action::Change(limit) => t.change(limit),
        Action::Replace(full_at, part) => {
            let full_at = Timestamp::from_nanos(full_at);
            t.state = State::Bucket(BucketState::from_parts(full_at, part));
        }
    }
    None
}

/// A usual sequence of operations, with changed limits and a clock that is sometimes set.
fn usual_deeds() -> impl Strategy<Value = Vec<Action>> {
    let cost = || prop_oneof![4 => 0..=4_u64, 1 => 0..=40_u64];
    let span = || prop_oneof![0..=3_u64, 0..=500_000_000_u64, 0..=6_000_000_000_u64];
    let deed = prop_oneof![
        10 => cost().prop_map(Action::Check),
        1 => cost().prop_map(Action::Take),
        1 => cost().prop_map(Action::Refund),
        1 => cost().prop_map(Action::Peek),
        6 => span().prop_map(Action::Wait),
        1 => span().prop_map(Action::StepBack),
        1 => usual_limit().prop_map(Action::Change),
    ];
    proptest::collection::vec(deed, 1..60)
}

fn any_deeds() -> impl Strategy<Value = Vec<Action>> {
    let deed = prop_oneof![
        4 => extreme().prop_map(Action::Check),
        2 => extreme().prop_map(Action::Take),
        2 => extreme().prop_map(Action::Refund),
        1 => extreme().prop_map(Action::Peek),
        1 => extreme().prop_map(Action::Charge),
        1 => extreme().prop_map(Action::Refuse),
        2 => extreme().prop_map(Action::Wait),
        1 => extreme().prop_map(Action::StepBack),
        2 => extreme().prop_map(Action::Set),
        3 => any_limit().prop_map(Action::Change),
        1 => (any::<u64>(), any::<u32>()).prop_map(|(at, part)| Action::Replace(at, part)),
    ];
    proptest::collection::vec(deed, 1..40)
}

/// The most that may be used at one instant: the limit and its allowance.
fn bound(limit: &Limit) -> u128 {
    let capacity = u128::from(limit.algorithm.capacity());
    let percent = limit.soft().map_or(0, |soft| soft.over_percent);
    capacity + capacity * u128::from(percent) / 100
}

proptest! {
    #[test]
    fn a_refused_cost_is_admitted_exactly_at_its_retry_time(
        limit in usual_limit(),
        deeds in usual_deeds(),
    ) {
        let mut t = Harness::new(limit);
        for deed in deeds {
            if let Some((cost, decision)) = do_one(&mut t, deed)
                && !decision.is_admitted()
            {
                t.assert_honest(cost, &decision);
            }
        }
    }

    #[test]
    fn a_refused_cost_is_admitted_exactly_at_its_retry_time_for_any_parameters(
        limit in any_limit(),
        deeds in any_deeds(),
    ) {
        let mut t = Harness::new(limit);
        for deed in deeds {
            if let Some((cost, decision)) = do_one(&mut t, deed)
                && !decision.is_admitted()
                && t.now() < Timestamp::MAX
            {
                t.assert_honest(cost, &decision);
            }
        }
    }

    #[test]
    fn what_remains_is_exactly_what_can_be_used_at_once(
        limit in usual_limit(),
        deeds in usual_deeds(),
    ) {
        let mut t = Harness::new(limit);
        for deed in deeds {
            // A counted refusal leaves less than it found.
            let Some((_, decision)) = do_one(&mut t, deed).filter(|(_, one)| one.is_admitted())
            else {
                continue;
            };
            let now = t.now();
            prop_assert!(t.would_admit(decision.remaining, now), "{:?}", t);
            prop_assert!(!t.would_admit(decision.remaining + 1, now), "{:?}", t);
            prop_assert_eq!(t.left(), decision.remaining);
        }
    }

    /// Whatever the parameters, the state and the clock: nothing panics, and
    /// one instant admits no more than the limit says.
    #[test]
    fn nothing_panics_and_nothing_turns_limiting_off(
        limit in any_limit(),
        deeds in any_deeds(),
        costs in proptest::collection::vec(extreme(), 1..10),
    ) {
        let mut t = Harness::new(limit);
        for deed in deeds {
            do_one(&mut t, deed);
        }
        let mut admitted = 0_u128;
        for cost in costs {
            admitted += u128::from(t.check(cost).taken);
            admitted += u128::from(t.take(cost / 2).taken);
        }
        prop_assert!(admitted <= bound(&t.limit), "{} admitted: {:?}", admitted, t);
        prop_assert!(t.state.heap_bytes() < 1 << 20);
    }

    /// States that were never settled under this limit are taken for unused.
    #[test]
    fn every_verb_bears_a_state_of_another_kind(
        (limit, other) in (any_limit(), any_limit()),
        (cost, now) in (extreme(), extreme()),
    ) {
        let mut state = State::Unused;
        let input = CheckInput { holder: Holder(cost), ..CheckInput::new(cost, Timestamp::from_nanos(now)) };
        other.check(&mut state, input);
        let decision = limit.decide(&state, input);
        prop_assert!(u128::from(decision.taken) <= bound(&limit));
        limit.charge(&mut state, input, &decision);
        limit.refuse(&mut state, input);
        let after = limit.refund(&mut state, input);
        prop_assert!(u128::from(after.remaining) <= bound(&limit));
    }

    #[test]
    fn an_idle_state_decides_as_an_unused_one_does_and_not_a_nanosecond_before(
        limit in usual_limit(),
        deeds in usual_deeds(),
    ) {
        let mut t = Harness::new(limit);
        for deed in deeds {
            do_one(&mut t, deed);
            let now = t.now();
            t.limit.settle(&mut t.state, now);
            let idle_at = t.state.idle_at();
            let same_at = |instant: Timestamp| {
                let most = u64::try_from(bound(&t.limit)).unwrap_or(u64::MAX);
                let costs = [0, 1, t.limit.algorithm.capacity(), most];
                costs.into_iter().all(|cost| {
                    let input = CheckInput::new(cost, instant);
                    let unused = t.limit.peek(&mut State::Unused, input);
                    let mut decision = t.limit.peek(&mut t.state.clone(), input);
                    // A window without a count may still be one that a late reading has
                    // met, or another calendar's: it ends at another time, and no more.
                    if t.limit.algorithm.resets_at_once() {
                        decision.reset_after = unused.reset_after;
                    }
                    decision == unused
                })
            };
            prop_assert!(same_at(idle_at.max(now)), "{:?}", t);
            if idle_at > now && t.limit.soft().is_none_or(|soft| soft.over_percent >= 100) {
                let before = Timestamp::from_nanos(idle_at.as_nanos() - 1);
                prop_assert!(!same_at(before), "idle later than needed: {:?}", t);
            }
        }
    }

    #[test]
    fn a_refund_never_leaves_more_than_an_unused_limit(
        limit in any_limit(),
        deeds in any_deeds(),
        cost in extreme(),
    ) {
        let mut t = Harness::new(limit);
        for deed in deeds {
            do_one(&mut t, deed);
        }
        prop_assert!(u128::from(t.refund(cost).remaining) <= bound(&t.limit));
    }

    /// Lowered, raised, another algorithm: the key is admitted again within two
    /// periods of the new limit; a soft one, when an allowance has closed and rested.
    #[test]
    fn no_change_leaves_a_key_stuck(
        limit in usual_limit(),
        deeds in usual_deeds(),
        new in usual_limit(),
    ) {
        let mut t = Harness::new(limit);
        for deed in deeds {
            do_one(&mut t, deed);
        }
        t.change(new);
        t.left();
        let period = t.limit.algorithm.period();
        t.advance(period);
        t.advance(period);
        if let Some(soft) = t.limit.soft() {
            t.advance(soft.lasting.as_span());
        }
        prop_assert!(t.admits(1), "{:?}", t);
    }
}

#[test]
fn the_name_and_the_quota_are_those_of_the_rule() {
    let minute = Period::MINUTE;
    let algorithms: [(Algorithm, &str, u64); 6] = [
        (TokenBucket::new(5, minute, 9).into(), "token_bucket", 5),
        (LeakyBucket::new(5, minute, 9).into(), "leaky_bucket", 5),
        (FixedWindow::new(5, Window::Every(minute)).into(), "fixed_window", 5),
        (SlidingLog::new(5, minute).unwrap().into(), "sliding_log", 5),
        (SlidingWindow::new(5, minute, 1).unwrap().into(), "sliding_window", 5),
        (Concurrency::new(5, minute).unwrap().into(), "concurrency", 5),
    ];
    for (algorithm, name, quota) in algorithms {
        assert_eq!((algorithm.name(), algorithm.quota()), (name, quota));
        assert_eq!(algorithm.period(), minute.as_span());
    }
}

#[test]
fn a_state_of_another_algorithm_is_taken_for_unused() {
    let mut t = Harness::new(Limit::new(SlidingLog::new(5, Period::MINUTE).unwrap()));
    t.spend(5);
    t.change(Limit::new(FixedWindow::new(3, Window::Every(Period::MINUTE))));
    assert_eq!(t.burst(9), 3);
    t.change(Limit::new(TokenBucket::new(1, Period::MINUTE, 4)));
    assert_eq!(t.burst(9), 4);
    assert_eq!(t.check(1).retry, Retry::After(Period::MINUTE.as_span()));
    assert_eq!(t.now(), START);
}

#[test]
fn says_whether_refused_costs_count() {
    let window = FixedWindow::new(5, Window::Every(Period::MINUTE));
    let log = SlidingLog::new(5, Period::MINUTE).unwrap();
    let sliding = SlidingWindow::new(5, Period::MINUTE, 1).unwrap();
    for (counting, algorithm) in [
        (false, Algorithm::from(window.clone())),
        (true, window.counting_refused(true).into()),
        (false, log.clone().into()),
        (true, log.counting_refused(true).into()),
        (false, sliding.clone().into()),
        (true, sliding.counting_refused(true).into()),
        (false, TokenBucket::new(5, Period::MINUTE, 5).into()),
    ] {
        assert_eq!(algorithm.counts_refused(), counting, "{algorithm:?}");
    }
}
