//! The checks of one request, and their answers.

use std::time::Duration;

use smallvec::SmallVec;
pub use tidegate_algorithms::{Charge, Consistency, OnStoreError};
use tidegate_algorithms::{Decision, Holder, Limit, Nanos, Outcome, Retry, Tenure, Timestamp};

use crate::fingerprint::Fingerprint;

/// What to do with each check of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Admit and charge, or refuse; the batch's [`Charge`] says who is charged.
    Check,
    /// Say what a check would answer; charge nothing.
    Peek,
    /// Charge what is left, up to the cost.
    Take,
    /// Give back up to the cost.
    Refund,
    /// Forget the key.
    Reset,
    /// Charge the whole cost, whatever the limit says: it was admitted elsewhere.
    Charge,
}

/// What a check's answer means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its refusal refuses the request.
    Required,
    /// The request needs one of these to admit, if there are any.
    Alternative,
    /// Its refusal changes nothing (shadow mode).
    Observed,
}

/// Which counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The counter's own fingerprint.
    pub fingerprint: Fingerprint,
    /// What all counters of the same limit have in common.
    pub group: u64,
}

/// How a limit is kept when its counters are shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How closely processes agree.
    pub consistency: Consistency,
    /// What decides in an outage.
    pub on_store_error: OnStoreError,
}

/// One limit applied to one key with a cost.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// Which counter.
    pub key: Key,
    /// The limit to apply.
    pub limit: &'a Limit,
    /// How much to charge.
    pub cost: u64,
    /// Who holds the slots of a concurrency limit.
    pub holder: Holder,
    /// For how long slots are taken: on a lease if their holder keeps them alive from then
    /// on, see [`CounterStore::slot_lease`](crate::CounterStore::slot_lease). Only the store in
    /// memory takes them as held; others take those for their time to live.
    pub tenure: Tenure,
    /// What the answer means for the request.
    pub role: Role,
    /// How the limit is kept when its counters are shared.
    pub policy: Policy,
}

impl<'a> Check<'a> {
    /// A required check that nobody holds slots for.
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
}

/// The checks of one request, decided together.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// What to do with each check.
    pub verb: Verb,
    /// Who is charged when they disagree.
    pub charge: Charge,
    /// The instant at which all are judged.
    pub now: Timestamp,
    /// The checks.
    pub checks: &'a [Check<'a>],
    /// How long a store that has to be asked may take; its own setting when not given.
    pub within: Option<Duration>,
    /// What each counter is called in words, for stores that keep them under
    /// words. Empty unless the engine is asked to say it.
    pub names: &'a [String],
}

impl<'a> Batch<'a> {
    /// A batch without names, with the store's own deadline.
    #[inline]
    pub const fn new(verb: Verb, charge: Charge, now: Timestamp, checks: &'a [Check<'a>]) -> Self {
        Batch { verb, charge, now, checks, within: None, names: &[] }
    }
}

/// What an answer rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The key's own counter.
    Exact,
    /// A counter that several keys share, because the store is full. May refuse early, never late.
    Shared,
    /// No counter: the store is full, and answers as it is configured to.
    Full,
    /// A slice of the shared limit that this process took ahead.
    Leased,
    /// This process's count and what the others had told at the last beat.
    Eventual,
    /// This process's share of the limit: the shared store cannot be asked.
    Local,
    /// Nothing: the shared store cannot be asked, and the limit admits then.
    Unasked,
}

impl Basis {
    /// Whether the answer stands in for one that the shared store could not give.
    pub const fn is_degraded(self) -> bool {
        matches!(self, Basis::Local | Basis::Unasked)
    }
}

/// One check's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The limit's decision.
    pub decision: Decision,
    /// What it rests on.
    pub basis: Basis,
}

impl Answer {
    /// What stands where an answer will be put.
    pub const BLANK: Answer = Answer {
        decision: Decision {
            outcome: Outcome::Admitted,
            limit: 0,
            remaining: 0,
            taken: 0,
            retry: Retry::Now,
            reset_after: Nanos::ZERO,
            delay: Nanos::ZERO,
            soft: false,
        },
        basis: Basis::Exact,
    };
}

/// A place for an answer.
pub trait Answered {
    /// Puts the answer, in place of one that was put before.
    fn put(&mut self, answer: Answer);
}

impl Answered for Answer {
    #[inline(always)]
    fn put(&mut self, answer: Answer) {
        *self = answer;
    }
}

/// The answers to a batch, in the order of its checks.
pub type Answers = SmallVec<[Answer; 2]>;

/// Whether a request passes, given what each of its checks said: every
/// required one admits, and so does an alternative, if there are any.
#[inline]
pub fn passes(said: impl Iterator<Item = (Role, bool)>) -> bool {
    let mut alternatives = None;
    for (role, admitted) in said {
        match role {
            Role::Required if !admitted => return false,
            Role::Alternative => alternatives = Some(alternatives.unwrap_or(false) || admitted),
            Role::Required | Role::Observed => {}
        }
    }
    alternatives.unwrap_or(true)
}
