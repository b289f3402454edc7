//! The facts of a verdict that a client may learn.
//!
//! Header fields, problem bodies and gRPC statuses are all made from a [`Notice`], so they agree. A limit in shadow is
//! never listed. A limit that several descriptors met is listed once, in its tightest state.

mod policy;

use smallvec::SmallVec;
use tidegate_engine::{Nanos, Retry, Role, Ruling, Verdict};

pub use policy::{NAME_CHARS_MAX, Policy, PolicyName};

/// The most limits that one response lists, the tightest first: with names of usual length the fields stay under a
/// kilobyte.
pub const POLICIES_MAX: usize = 16;

/// When to retry after limits could not be checked.
const UNDECIDED_WAIT: Nanos = Nanos::from_secs(1);

/// Whole seconds after which to retry, at least one; [`None`] if waiting is not needed, or does not help.
pub(crate) fn whole_seconds(retry: Retry) -> Option<u64> {
    match retry {
        Retry::After(wait) => Some(wait.as_secs_ceil().max(1)),
        Retry::Now | Retry::Never => None,
    }
}

/// What a client may learn of a verdict.
#[derive(Debug)]
pub struct Notice<'v> {
    verdict: &'v Verdict,
    policies: SmallVec<[Policy<'v>; 4]>,
}

impl<'v> Notice<'v> {
    /// The facts of this verdict.
    pub fn of(verdict: &'v Verdict) -> Self {
        let alternative_admits = verdict
            .rulings()
            .iter()
            .any(|ruling| ruling.role == Role::Alternative && ruling.decision.is_admitted());
        let mut notice = Notice { verdict, policies: SmallVec::new() };
        for ruling in verdict.rulings() {
            let refused = !verdict.is_admitted() && !ruling.decision.is_admitted();
            let violated = match ruling.role {
                Role::Required => refused,
                Role::Alternative => refused && !alternative_admits,
                Role::Observed => continue,
            };
            notice.add(ruling, violated);
        }
        notice
    }

    /// The verdict itself.
    pub const fn verdict(&self) -> &'v Verdict {
        self.verdict
    }

    /// Whether the request was refused.
    pub const fn is_refusal(&self) -> bool {
        !self.verdict.is_admitted()
    }

    /// Whether the request was refused because its limits could not be checked, which is not the client's fault.
    pub const fn is_undecided_refusal(&self) -> bool {
        self.is_refusal() && self.verdict.undecided().is_some()
    }

    /// The enforced limits that the request met, in the order of its descriptors.
    pub fn policies(&self) -> &[Policy<'v>] {
        &self.policies
    }

    /// The limits that refused.
    pub fn violated(&self) -> impl Iterator<Item = &Policy<'v>> {
        self.policies.iter().filter(|policy| policy.is_violated())
    }

    /// The limit to name where there is room for one: the one whose refusal lasts longest, or else the one with the
    /// least remaining, concurrency limits after all others.
    pub fn tightest(&self) -> Option<&Policy<'v>> {
        self.policies.iter().min_by_key(|policy| policy.looseness())
    }

    /// When to retry.
    pub fn retry(&self) -> Retry {
        if !self.is_refusal() {
            return Retry::Now;
        }
        match self.tightest().filter(|policy| policy.is_violated()) {
            Some(policy) => policy.retry(),
            // A limit that the request itself brought is not in the rules.
            None if self.verdict.undecided().is_none() => self.verdict.retry(),
            None => Retry::After(UNDECIDED_WAIT),
        }
    }

    /// Whole seconds after which to retry, at least one; [`None`] if the request was admitted, or never will be.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        whole_seconds(self.retry())
    }

    /// Adds the ruling if it is among the tightest, once for each limit.
    fn add(&mut self, ruling: &'v Ruling, violated: bool) {
        let Some(policy) = Policy::of(self.verdict, ruling, violated) else { return };
        let same = self.policies.iter().position(|other| other.limit_id() == policy.limit_id());
        let index = match same {
            Some(index) => Some(index),
            None if self.policies.len() < POLICIES_MAX => None,
            None => {
                let loosest = self.policies.iter().enumerate();
                loosest.max_by_key(|(_, policy)| policy.looseness()).map(|(index, _)| index)
            }
        };
        match index.and_then(|index| self.policies.get_mut(index)) {
            Some(other) if policy.looseness() < other.looseness() => *other = policy,
            Some(_) => {}
            None => self.policies.push(policy),
        }
    }
}
