//! The checks of one request, and their answers.

use std::time::Duration;

use smallvec::SmallVec;
pub use tidegate_algorithms::{Charge, Consistency, OnStoreError};
use tidegate_algorithms::{CheckInput, Decision, Holder, Limit, Nanos, State, Tenure, Timestamp};

use crate::fingerprint::Fingerprint;

/// What to do with each check of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Admit and charge, or refuse; the batch's [`Charge`] says which checks are charged.
    Check,
    /// Decide like a check; charge nothing.
    Peek,
    /// Charge what is left, up to the cost.
    Take,
    /// Give back up to the cost.
    Refund,
    /// Remove the key.
    Reset,
    /// Charge the whole cost, also beyond the limit: it was admitted elsewhere.
    Charge,
}

impl Verb {
    /// Applies the verb to the state of one key.
    pub(crate) fn apply(self, limit: &Limit, state: &mut State, input: CheckInput) -> Decision {
        match self {
            Verb::Check => limit.check(state, input),
            Verb::Peek => limit.peek(state, input),
            Verb::Take => limit.take(state, input),
            Verb::Refund => limit.refund(state, input),
            Verb::Reset => {
                *state = State::Unused;
                limit.peek(state, input.with_cost(0))
            }
            Verb::Charge => limit.overcharge(state, input),
        }
    }
}

/// The effect of a check's answer on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its refusal refuses the request.
    Required,
    /// At least one of the alternatives has to admit.
    Alternative,
    /// Its refusal has no effect (shadow mode).
    Observed,
}

/// The key of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The fingerprint of the counter.
    pub fingerprint: Fingerprint,
    /// A number that all counters of the same limit share.
    pub group: u64,
}

/// The settings of a limit whose counters are shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How exactly processes agree.
    pub consistency: Consistency,
    /// How checks are decided in an outage.
    pub on_store_error: OnStoreError,
}

/// One limit applied to one key with a cost.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The counter.
    pub key: Key,
    /// The limit to apply.
    pub limit: &'a Limit,
    /// The units to charge.
    pub cost: u64,
    /// The holder of the slots of a concurrency limit.
    pub holder: Holder,
    /// For how long slots are taken: for a lease if their holder renews it, see
    /// [`CounterStore::slot_lease`](crate::CounterStore::slot_lease). Only the store in memory
    /// supports [`Tenure::Held`]; others take such slots for their time to live.
    pub tenure: Tenure,
    /// The effect of the answer on the request.
    pub role: Role,
    /// The settings for shared counters.
    pub policy: Policy,
}

impl<'a> Check<'a> {
    /// A required check with an anonymous holder.
    pub fn new(key: Key, limit: &'a Limit, cost: u64) -> Self {
        Check {
            key,
            limit,
            cost,
            holder: Holder::default(),
            tenure: Tenure::TimeToLive,
            role: Role::Required,
            policy: Policy::default(),
        }
    }

    /// The input of the limit's decision at `now`.
    #[inline]
    pub(crate) const fn input(&self, now: Timestamp) -> CheckInput {
        CheckInput { cost: self.cost, now, holder: self.holder, tenure: self.tenure }
    }
}

/// The checks of one request, decided atomically.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// What to do with each check.
    pub verb: Verb,
    /// Which limits are charged if they disagree.
    pub charge: Charge,
    /// The present instant.
    pub now: Timestamp,
    /// The checks.
    pub checks: &'a [Check<'a>],
    /// The deadline of a remote store; its own setting if `None`.
    pub within: Option<Duration>,
    /// The readable name of each counter, for stores that use them as keys. Empty unless the engine
    /// is configured to provide them.
    pub names: &'a [String],
}

impl<'a> Batch<'a> {
    /// A batch without names, with the store's own deadline.
    #[inline]
    pub const fn new(verb: Verb, charge: Charge, now: Timestamp, checks: &'a [Check<'a>]) -> Self {
        Batch { verb, charge, now, checks, within: None, names: &[] }
    }
}

/// The basis of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The key's own counter.
    Exact,
    /// A counter that several keys share, because the store is full. May refuse too early, never
    /// too late.
    Shared,
    /// No counter: the store is full, and its configuration decides.
    Full,
    /// A slice of the shared limit that this process took ahead.
    Leased,
    /// This process's count, and the counts of the others at the last beat.
    Eventual,
    /// This process's share of the limit: the shared store does not answer.
    Local,
    /// No counter: the shared store does not answer, and the limit then admits.
    Unasked,
}

impl Basis {
    /// Whether the answer replaces one of a shared store that does not answer.
    pub const fn is_degraded(self) -> bool {
        matches!(self, Basis::Local | Basis::Unasked)
    }
}

/// The answer to one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The limit's decision.
    pub decision: Decision,
    /// Its basis.
    pub basis: Basis,
}

impl Answer {
    /// The initial value of an answer slot.
    pub const BLANK: Answer = Answer::exact(Decision::admitted(0, 0, 0, Nanos::ZERO));

    /// An answer from the key's own counter.
    #[inline(always)]
    pub(crate) const fn exact(decision: Decision) -> Self {
        Answer { decision, basis: Basis::Exact }
    }
}

/// A slot that a store writes an answer into.
pub trait AnswerSlot {
    /// Writes the answer, replacing an earlier one.
    fn put(&mut self, answer: Answer);
}

impl AnswerSlot for Answer {
    #[inline(always)]
    fn put(&mut self, answer: Answer) {
        *self = answer;
    }
}

/// The answers to a batch, in the order of its checks.
pub type Answers = SmallVec<[Answer; 2]>;

/// Whether a request passes, given the role and the result of each check: every required check
/// admits, and so does one of the alternatives, if there are any.
#[inline]
pub fn passes(checks: impl Iterator<Item = (Role, bool)>) -> bool {
    let mut alternatives = None;
    for (role, admitted) in checks {
        match role {
            Role::Required if !admitted => return false,
            Role::Alternative => alternatives = Some(alternatives.unwrap_or(false) || admitted),
            Role::Required | Role::Observed => {}
        }
    }
    alternatives.unwrap_or(true)
}
