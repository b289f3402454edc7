//! What a client is told of a verdict.
//!
//! Every answer (header fields, problem body, gRPC status) says the same, so it
//! is worked out once, here. A limit in shadow is never told. A limit that
//! several descriptors met is told once, as its tightest.
//!
//! How the words look on the wire is not here.

mod policy;

use smallvec::SmallVec;
use tidegate_engine::{Nanos, Retry, Role, Ruling, Verdict};

pub use policy::{NAME_CHARS_MAX, Policy, PolicyName};

/// The most limits that one answer tells of: with names of usual length the
/// fields stay under a kilobyte. Beyond, the tightest are told.
pub const POLICIES_MAX: usize = 16;

/// After how long to ask again when nobody could decide.
const UNDECIDED_WAIT: Nanos = Nanos::from_secs(1);

/// What a client is told of a verdict.
#[derive(Debug)]
pub struct Notice<'v> {
    verdict: &'v Verdict,
    policies: SmallVec<[Policy<'v>; 4]>,
}

impl<'v> Notice<'v> {
    /// What to tell of this verdict.
    pub fn of(verdict: &'v Verdict) -> Self {
        let one_will_do = verdict
            .rulings()
            .iter()
            .any(|ruling| ruling.role == Role::Alternative && ruling.decision.is_admitted());
        let mut notice = Notice { verdict, policies: SmallVec::new() };
        for ruling in verdict.rulings() {
            let refused = !verdict.is_admitted() && !ruling.decision.is_admitted();
            let violated = match ruling.role {
                Role::Required => refused,
                Role::Alternative => refused && !one_will_do,
                Role::Observed => continue,
            };
            notice.note(ruling, violated);
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

    /// Whether the request was refused because nobody could decide, which is
    /// not the client's fault.
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

    /// The limit to tell of where there is room for one: the one whose refusal
    /// lasts, or else the one with the least remaining, limits of requests in
    /// flight after all others.
    pub fn tightest(&self) -> Option<&Policy<'v>> {
        self.policies.iter().min_by_key(|policy| policy.looseness())
    }

    /// When to ask again.
    pub fn retry(&self) -> Retry {
        if !self.is_refusal() {
            return Retry::Now;
        }
        match self.tightest().filter(|policy| policy.is_violated()) {
            Some(policy) => policy.retry(),
            // A limit that the request brought along is no policy of ours.
            None if self.verdict.undecided().is_none() => self.verdict.retry(),
            None => Retry::After(UNDECIDED_WAIT),
        }
    }

    /// Whole seconds after which to ask again, at least one; none when the
    /// request was admitted, or never will be.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        match self.retry() {
            Retry::After(wait) => Some(wait.as_secs_ceil().max(1)),
            Retry::Now | Retry::Never => None,
        }
    }

    /// One sentence or two on why the request was refused, for a person.
    pub fn detail(&self) -> String {
        let violated = self.tightest().filter(|policy| policy.is_violated());
        let Some(policy) = violated else {
            return "The request could not be checked against its limits.".to_owned();
        };
        match self.retry_after_seconds() {
            Some(1) => format!("{policy}. Try again in 1 second."),
            Some(seconds) => format!("{policy}. Try again in {seconds} seconds."),
            None => format!("{policy}. The request asks for more than it can ever admit."),
        }
    }

    /// Keeps the ruling if it is among the tightest, once for each limit.
    fn note(&mut self, ruling: &'v Ruling, violated: bool) {
        let Some(policy) = Policy::of(self.verdict, ruling, violated) else { return };
        let same = self.policies.iter().position(|other| other.limit_id() == policy.limit_id());
        let place = match same {
            Some(place) => Some(place),
            None if self.policies.len() < POLICIES_MAX => None,
            None => {
                let loosest = self.policies.iter().enumerate();
                loosest.max_by_key(|(_, policy)| policy.looseness()).map(|(place, _)| place)
            }
        };
        match place.and_then(|place| self.policies.get_mut(place)) {
            Some(other) if policy.looseness() < other.looseness() => *other = policy,
            Some(_) => {}
            None => self.policies.push(policy),
        }
    }
}
