//! Test harness: a limit with its state and a manual clock, and the driver that compares an
//! algorithm with a naive model of it.

use proptest::prelude::*;

use crate::check_input::{CheckInput, Holder, Tenure};
use crate::decision::{Decision, Retry};
use crate::limit::Limit;
use crate::period::Period;
use crate::state::State;
use crate::time::{Clock, ManualClock, Nanos, Timestamp};

/// A whole hour, so that windows of up to an hour begin here.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_699_999_200);

pub(crate) const fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

pub(crate) const fn secs(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

pub(crate) const YEAR: Nanos = secs(366 * 86_400);

pub(crate) fn period(span: Nanos) -> Period {
    Period::new(span.into()).unwrap()
}

/// One key under one limit.
#[derive(Debug)]
pub(crate) struct Harness {
    pub(crate) limit: Limit,
    pub(crate) state: State,
    clock: ManualClock,
}

impl Harness {
    pub(crate) fn new(limit: Limit) -> Self {
        Harness { limit, state: State::Unused, clock: ManualClock::at(START) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn advance(&self, span: Nanos) {
        self.clock.advance(span);
    }

    pub(crate) fn step_back(&self, span: Nanos) {
        let earlier = self.now().as_nanos().saturating_sub(span.get());
        self.clock.set(Timestamp::from_nanos(earlier));
    }

    pub(crate) fn set(&self, now: Timestamp) {
        self.clock.set(now);
    }

    /// Other parameters for the same key.
    pub(crate) fn change(&mut self, limit: Limit) {
        self.limit = limit;
    }

    pub(crate) fn reset(&mut self) {
        self.state = State::Unused;
    }

    pub(crate) fn input(&self, cost: u64) -> CheckInput {
        CheckInput::new(cost, self.now())
    }

    pub(crate) fn check(&mut self, cost: u64) -> Decision {
        let input = self.input(cost);
        self.limit.check(&mut self.state, input)
    }

    pub(crate) fn peek(&mut self, cost: u64) -> Decision {
        let input = self.input(cost);
        self.limit.peek(&mut self.state, input)
    }

    pub(crate) fn take(&mut self, cost: u64) -> Decision {
        let input = self.input(cost);
        self.limit.take(&mut self.state, input)
    }

    pub(crate) fn refund(&mut self, cost: u64) -> Decision {
        let input = self.input(cost);
        self.limit.refund(&mut self.state, input)
    }

    pub(crate) fn hold(&mut self, holder: u64, cost: u64) -> Decision {
        let input = self.held_by(holder, cost);
        self.limit.check(&mut self.state, input)
    }

    pub(crate) fn give_back(&mut self, holder: u64, cost: u64) -> Decision {
        let input = self.held_by(holder, cost);
        self.limit.refund(&mut self.state, input)
    }

    /// Takes slots for a lease.
    pub(crate) fn hold_on_lease(&mut self, holder: u64, cost: u64, lease: Period) -> Decision {
        let input = CheckInput { tenure: Tenure::Lease(lease), ..self.held_by(holder, cost) };
        self.limit.check(&mut self.state, input)
    }

    /// Takes slots until they are given back.
    pub(crate) fn hold_until_released(&mut self, holder: u64, cost: u64) -> Decision {
        let input = CheckInput { tenure: Tenure::Held, ..self.held_by(holder, cost) };
        self.limit.check(&mut self.state, input)
    }

    fn held_by(&self, holder: u64, cost: u64) -> CheckInput {
        CheckInput { holder: Holder(holder), ..self.input(cost) }
    }

    pub(crate) fn admits(&mut self, cost: u64) -> bool {
        self.check(cost).is_admitted()
    }

    pub(crate) fn refuses(&mut self, cost: u64) -> bool {
        !self.admits(cost)
    }

    /// Charges a cost that must fit.
    pub(crate) fn spend(&mut self, cost: u64) {
        let decision = self.check(cost);
        assert!(decision.is_admitted(), "{cost} should fit: {decision:?}");
    }

    /// The units that could be used at once.
    pub(crate) fn left(&mut self) -> u64 {
        self.peek(0).remaining
    }

    /// How many requests of cost one pass at this instant.
    pub(crate) fn burst(&mut self, tries: u64) -> u64 {
        (0..tries).map(|_| u64::from(self.admits(1))).sum()
    }

    /// The outcome that the same cost would have at another instant.
    pub(crate) fn would_admit(&self, cost: u64, now: Timestamp) -> bool {
        let mut state = self.state.clone();
        self.limit.peek(&mut state, CheckInput::new(cost, now)).is_admitted()
    }

    /// Asserts that a refused cost is admitted exactly after the refusal's retry time.
    pub(crate) fn assert_honest(&self, cost: u64, refusal: &Decision) {
        let now = self.now().as_nanos();
        match refusal.retry {
            Retry::Now => panic!("a refusal must say when to retry: {refusal:?}"),
            Retry::Never => {
                for wait in [1, YEAR.get() / 7, YEAR.get(), 20 * YEAR.get(), u64::MAX] {
                    let later = Timestamp::from_nanos(now.saturating_add(wait));
                    assert!(!self.would_admit(cost, later), "never, but after {wait} ns");
                }
            }
            Retry::After(wait) => {
                // From the year 2262 on a clock may be taken to stand still.
                let Some(then) = now.checked_add(wait.get()).filter(|then| *then < 1 << 63) else {
                    return;
                };
                assert!(
                    self.would_admit(cost, Timestamp::from_nanos(then)),
                    "{cost} is not admitted after {wait}: {self:?}"
                );
                assert!(wait > Nanos::ZERO, "a refusal must last: {self:?}");
                assert!(
                    !self.would_admit(cost, Timestamp::from_nanos(then - 1)),
                    "{cost} is admitted before {wait} are over: {self:?}"
                );
            }
        }
    }
}

/// One step of a random sequence: time passes, then a verb is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// How long after the step before.
    pub(crate) wait: u64,
    /// How late this reading of the clock is.
    pub(crate) late: u64,
    pub(crate) verb: Verb,
    pub(crate) cost: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Check,
    Peek,
    Take,
    Refund,
}

/// Sequences with costs up to `cost_max`, waits up to `wait_max`, often none,
/// and readings up to `late_max` behind the clock.
pub(crate) fn steps(
    cost_max: u64,
    wait_max: Nanos,
    late_max: Nanos,
) -> impl Strategy<Value = Vec<Step>> {
    let verb = prop_oneof![
        6 => Just(Verb::Check),
        1 => Just(Verb::Peek),
        1 => Just(Verb::Take),
        1 => Just(Verb::Refund),
    ];
    let wait = prop_oneof![2 => Just(0), 1 => 1..=3_u64, 4 => 0..=wait_max.get()];
    let late = prop_oneof![3 => Just(0), 1 => 0..=late_max.get()];
    let step = (wait, late, verb, 0..=cost_max).prop_map(|(wait, late, verb, cost)| Step {
        wait,
        late,
        verb,
        cost,
    });
    proptest::collection::vec(step, 1..80)
}

/// A naive model of one key: slow, obvious, independent of the algorithm.
pub(crate) trait Model {
    /// What could be used at `now`.
    fn left(&mut self, now: u64) -> u64;
    fn charge(&mut self, cost: u64, now: u64);
    fn refund(&mut self, cost: u64, now: u64);
    /// Whether even a cost of zero is refused.
    fn exceeded(&mut self, _now: u64) -> bool {
        false
    }
    /// A cost was refused.
    fn refuse(&mut self, _cost: u64, _now: u64) {}
}

/// An admission, at the latest instant that any reading has shown so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) at: u64,
    pub(crate) cost: u64,
    pub(crate) delay: u64,
}

/// Runs a limit and its model, compares every decision, verifies every retry time, and returns the
/// admissions.
pub(crate) fn run_with_model(
    limit: Limit,
    steps: &[Step],
    model: &mut impl Model,
) -> Vec<Admission> {
    let mut harness = Harness::new(limit);
    let mut clock = START.as_nanos();
    let mut seen = 0;
    let mut admitted = Vec::new();
    for step in steps {
        clock += step.wait;
        let now = clock - step.late;
        seen = seen.max(now);
        harness.set(Timestamp::from_nanos(now));
        let left = model.left(now);
        let fits = step.cost <= left && !model.exceeded(now);
        let charged = match step.verb {
            Verb::Check => {
                let decision = harness.check(step.cost);
                assert_eq!(decision.is_admitted(), fits, "{step:?} with {left} left");
                if fits {
                    model.charge(step.cost, now);
                    assert_eq!(decision.taken, step.cost);
                    assert_eq!(decision.remaining, left - step.cost);
                } else {
                    model.refuse(step.cost, now);
                    assert_eq!(decision.taken, 0);
                    harness.assert_honest(step.cost, &decision);
                }
                decision
            }
            Verb::Peek => {
                let decision = harness.peek(step.cost);
                assert_eq!(decision.is_admitted(), fits, "{step:?} with {left} left");
                assert_eq!((decision.taken, decision.remaining), (0, left));
                decision
            }
            Verb::Take => {
                let decision = harness.take(step.cost);
                assert_eq!(decision.taken, step.cost.min(left), "{step:?}");
                let zero_fits = step.cost == 0 && !model.exceeded(now);
                assert_eq!(decision.is_admitted(), zero_fits || left > 0);
                model.charge(decision.taken, now);
                decision
            }
            Verb::Refund => {
                let decision = harness.refund(step.cost);
                model.refund(step.cost, now);
                assert_eq!(decision.remaining, model.left(now), "{step:?}");
                decision
            }
        };
        if charged.taken > 0 {
            admitted.push(Admission { at: seen, cost: charged.taken, delay: charged.delay.get() });
        }
    }
    admitted
}

/// The steps without the refunds, for tests that count admissions.
pub(crate) fn without_refunds(steps: &[Step]) -> Vec<Step> {
    let kept = steps.iter().copied();
    kept.filter(|step| !matches!(step.verb, Verb::Refund)).collect()
}

/// The most admitted in any half-open window of this length.
pub(crate) fn busiest_window(admitted: &[Admission], length: u64) -> u64 {
    let count_from = |start: u64| -> u64 {
        let inside = admitted.iter().filter(|one| one.at >= start && one.at - start < length);
        inside.map(|one| one.cost).sum()
    };
    admitted.iter().map(|one| count_from(one.at)).max().unwrap_or(0)
}
