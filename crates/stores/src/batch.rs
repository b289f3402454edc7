//! The checks of one request, and their answers.

use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Holder, Limit, Timestamp};

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
}

/// Who is charged when the checks of a batch disagree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charge {
    /// A refusal charges nobody.
    #[default]
    AllOrNothing,
    /// Each limit is charged whatever the others say, as envoyproxy/ratelimit has it.
    Always,
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
    /// What the answer means for the request.
    pub role: Role,
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
}

/// One check's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The limit's decision.
    pub decision: Decision,
    /// What it rests on.
    pub basis: Basis,
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
