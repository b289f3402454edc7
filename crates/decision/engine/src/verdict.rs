//! The engine's answer for a whole request.

use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Nanos, Outcome, Retry};
use tidegate_rules::{LimitId, Rule, RuleId, RuleLimit, Snapshot, WhenOver};
use tidegate_stores::{Answer, AnswerSlot, Basis, Role, passes};

use crate::failure_mode::Undecided;
use crate::loaded::Loaded;

/// The answer for one request: the outcome, every decision behind it, and the
/// rules that they come from.
#[derive(Debug)]
pub struct Verdict {
    pub(crate) loaded: Guard<Arc<Loaded>>,
    pub(crate) outcome: Outcome,
    pub(crate) rulings: Rulings,
    pub(crate) met: Met,
    /// In a box, as what few verdicts have: a verdict is moved some times.
    pub(crate) undecided: Option<Box<Undecided>>,
    pub(crate) switched_off: bool,
    pub(crate) domain_known: bool,
}

/// The decisions of a verdict; two limits are common, more take an allocation.
pub(crate) type Rulings = SmallVec<[Ruling; 2]>;
/// The rule that each descriptor met.
pub(crate) type Met = SmallVec<[Option<RuleId>; 2]>;

/// One limit's decision within a verdict.
#[derive(Clone, Copy, Debug)]
pub struct Ruling {
    /// Which of the request's descriptors met the limit.
    pub descriptor: u32,
    /// The limit; none when the request brought its own.
    pub limit: Option<LimitId>,
    /// What was asked of it.
    pub cost: u64,
    /// What it decided.
    pub decision: Decision,
    /// What the decision rests on.
    pub basis: Basis,
    /// What the decision means for the request.
    pub role: Role,
}

impl Ruling {
    /// Of a check that is not decided yet.
    #[inline(always)]
    pub(crate) const fn begun(
        descriptor: u32,
        limit: Option<LimitId>,
        cost: u64,
        role: Role,
    ) -> Self {
        let Answer { decision, basis } = Answer::BLANK;
        Ruling { descriptor, limit, cost, decision, basis, role }
    }
}

impl AnswerSlot for Ruling {
    #[inline(always)]
    fn put(&mut self, answer: Answer) {
        self.decision = answer.decision;
        self.basis = answer.basis;
    }
}

/// The limit that refused a request, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'v> {
    /// The rule's domain.
    pub domain: &'v str,
    /// The rule's path.
    pub path: &'v str,
    /// The limit's name, if it has one.
    pub limit: Option<&'v str>,
    /// What it decided.
    pub decision: &'v Decision,
}

impl Verdict {
    /// Admits, and says nothing more yet.
    #[inline]
    pub(crate) fn admitting(loaded: Guard<Arc<Loaded>>) -> Self {
        Verdict {
            loaded,
            outcome: Outcome::Admitted,
            rulings: SmallVec::new(),
            met: SmallVec::new(),
            undecided: None,
            switched_off: false,
            domain_known: false,
        }
    }

    /// Says what the rulings come to, and adds those that gave back, which decide nothing.
    #[inline]
    pub(crate) fn settle_outcome(&mut self, given_back: Option<Box<Rulings>>) {
        let all = self.rulings.iter().all(|ruling| ruling.decision.is_admitted());
        self.outcome = if all || self.passes() { Outcome::Admitted } else { Outcome::Refused };
        if let Some(rulings) = given_back {
            self.rulings.extend(*rulings);
            self.rulings.sort_by_key(|ruling| ruling.descriptor);
        }
    }

    #[cold]
    fn passes(&self) -> bool {
        passes(self.rulings.iter().map(|ruling| (ruling.role, ruling.decision.is_admitted())))
    }

    /// Admitted or refused.
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may go on.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.outcome, Outcome::Admitted)
    }

    /// Every limit's decision, in the order of the descriptors.
    pub fn rulings(&self) -> &[Ruling] {
        &self.rulings
    }

    /// The decisions of the limits that one descriptor met, by its place in the request.
    pub fn rulings_of(&self, descriptor: usize) -> &[Ruling] {
        let of = |ruling: &Ruling| ruling.descriptor as usize;
        let first = self.rulings.partition_point(|ruling| of(ruling) < descriptor);
        let rest = self.rulings.get(first..).unwrap_or_default();
        let count = rest.iter().take_while(|ruling| of(ruling) == descriptor).count();
        rest.get(..count).unwrap_or_default()
    }

    /// Whether the rules know the request's domain.
    pub const fn domain_is_known(&self) -> bool {
        self.domain_known
    }

    /// The rule that each descriptor met, in their order.
    pub fn met(&self) -> impl Iterator<Item = Option<&Rule>> {
        self.met.iter().map(|met| met.and_then(|rule| self.snapshot().rule(rule)))
    }

    /// Who refused: of the limits whose refusal counts, the one to wait longest
    /// for. None when it is a limit that the request brought along.
    pub fn refusal(&self) -> Option<Refusal<'_>> {
        if self.is_admitted() {
            return None;
        }
        let ruling = self.refused_by()?;
        let limit = self.limit(ruling)?;
        let rule = self.snapshot().rule(limit.rule)?;
        Some(Refusal {
            domain: rule.domain(),
            path: rule.path(),
            limit: limit.name.map(|name| self.snapshot().name(name)),
            decision: &ruling.decision,
        })
    }

    /// When the same request would be admitted, if nothing else is charged meanwhile.
    pub fn retry(&self) -> Retry {
        match self.refused_by() {
            Some(ruling) if !self.is_admitted() => ruling.decision.retry,
            _ => Retry::Now,
        }
    }

    /// The ruling that a client should be told about: the one that refused, or
    /// else the enforced one with the least remaining.
    pub fn tightest(&self) -> Option<&Ruling> {
        if !self.is_admitted() {
            return self.refused_by();
        }
        let enforced = self.rulings.iter().filter(|ruling| ruling.role != Role::Observed);
        enforced.min_by_key(|ruling| ruling.decision.remaining)
    }

    /// How long the admitted request should wait for its turn: the longest delay of its limits.
    pub fn delay(&self) -> Nanos {
        let enforced = self.rulings.iter().filter(|ruling| ruling.role != Role::Observed);
        enforced.map(|ruling| ruling.decision.delay).max().unwrap_or(Nanos::ZERO)
    }

    /// Makes it the refusal of a request that would have to wait, and is not let wait: the limits
    /// that delay it refuse it, or else those that let others wait for them. They would not if it
    /// asked again after `retry`. What it was charged is told as given back, which is left to the
    /// caller: see [`Engine::deposit`](crate::Engine::deposit).
    pub fn refuse_to_wait(&mut self, retry: Nanos) {
        let delayed = self.delay() > Nanos::ZERO;
        let Verdict { loaded, rulings, .. } = self;
        for ruling in rulings {
            let limit = ruling.limit.and_then(|limit| loaded.snapshot().limit(limit));
            let decision = &mut ruling.decision;
            let waits = match delayed {
                true => decision.delay > Nanos::ZERO,
                false => limit.is_some_and(|limit| limit.when_over == WhenOver::Delay),
            };
            if waits && ruling.role != Role::Observed {
                decision.outcome = Outcome::Refused;
                decision.retry = Retry::After(retry);
                decision.delay = Nanos::ZERO;
            }
            decision.remaining = decision.remaining.saturating_add(decision.taken);
            decision.taken = 0;
        }
        self.outcome = Outcome::Refused;
    }

    /// Whether a limit in shadow would have refused the request.
    pub fn refused_in_shadow(&self) -> bool {
        self.rulings
            .iter()
            .any(|ruling| ruling.role == Role::Observed && !ruling.decision.is_admitted())
    }

    /// Whether a limit admitted only on its soft allowance.
    pub fn is_soft(&self) -> bool {
        self.rulings.iter().any(|ruling| ruling.role != Role::Observed && ruling.decision.soft)
    }

    /// Why nothing could be decided, if so; the outcome is then the failure mode's.
    pub const fn undecided(&self) -> Option<&Undecided> {
        match &self.undecided {
            Some(undecided) => Some(&**undecided),
            None => None,
        }
    }

    /// Whether the shared store could not be asked for a part of this verdict,
    /// so that something else decided instead.
    pub fn is_degraded(&self) -> bool {
        matches!(self.undecided(), Some(Undecided::Store(_)))
            || self.rulings.iter().any(|ruling| ruling.basis.is_degraded())
    }

    /// Whether the kill switch answered.
    pub const fn is_switched_off(&self) -> bool {
        self.switched_off
    }

    /// The rules that the whole verdict rests on.
    pub fn snapshot(&self) -> &Snapshot {
        self.loaded.snapshot()
    }

    /// The limit of a ruling of this verdict.
    pub fn limit(&self, ruling: &Ruling) -> Option<&RuleLimit> {
        self.snapshot().limit(ruling.limit?)
    }

    /// The rule of a ruling of this verdict.
    pub fn rule(&self, ruling: &Ruling) -> Option<&Rule> {
        self.snapshot().rule(self.limit(ruling)?.rule)
    }

    /// Who to wait longest for: a required limit that refuses, or, when every
    /// alternative refuses, the one of them to wait shortest for.
    fn refused_by(&self) -> Option<&Ruling> {
        let of = |role| self.rulings.iter().filter(move |ruling| ruling.role == role);
        let refuses = |ruling: &&Ruling| !ruling.decision.is_admitted();
        let required = of(Role::Required).filter(refuses).max_by_key(|ruling| wait(ruling));
        let exhausted = of(Role::Alternative).all(|ruling| refuses(&ruling));
        let alternative =
            of(Role::Alternative).filter(|_| exhausted).min_by_key(|ruling| wait(ruling));
        required.into_iter().chain(alternative).max_by_key(|ruling| wait(ruling))
    }
}

/// For comparing: never is the longest wait.
fn wait(ruling: &Ruling) -> u64 {
    match ruling.decision.retry {
        Retry::Now => 0,
        Retry::After(wait) => wait.get(),
        Retry::Never => u64::MAX,
    }
}
