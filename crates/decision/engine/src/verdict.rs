//! The engine's answer for a whole request.

use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Nanos, Outcome, Retry, Timestamp};
use tidegate_rules::{LimitId, Rule, RuleId, RuleLimit, Snapshot, WhenOver};
use tidegate_stores::{Answer, AnswerSlot, Basis, Role, passes};

use crate::active_rules::ActiveRules;
use crate::failure_mode::Undecided;

/// The answer for one request: the outcome, every decision behind it, and the
/// rules that they come from.
#[derive(Debug)]
pub struct Verdict {
    pub(crate) rules: Guard<Arc<ActiveRules>>,
    pub(crate) outcome: Outcome,
    pub(crate) rulings: Rulings,
    pub(crate) matched: MatchedRules,
    /// Boxed, because it is rare and a verdict is moved.
    pub(crate) undecided: Option<Box<Undecided>>,
    /// The instant by which its limits decided; zero if there were none.
    pub(crate) decided_at: Timestamp,
    pub(crate) switched_off: bool,
    pub(crate) domain_known: bool,
}

/// The decisions of a verdict; more than two limits take an allocation.
pub(crate) type Rulings = SmallVec<[Ruling; 2]>;
/// The rule that each descriptor matched.
pub(crate) type MatchedRules = SmallVec<[Option<RuleId>; 2]>;

/// One limit's decision within a verdict.
#[derive(Clone, Copy, Debug)]
pub struct Ruling {
    /// The index of the request's descriptor that matched the limit.
    pub descriptor: u32,
    /// The limit; `None` for a limit that the request carries.
    pub limit: Option<LimitId>,
    /// The cost of the check.
    pub cost: u64,
    /// The limit's decision.
    pub decision: Decision,
    /// What the decision rests on.
    pub basis: Basis,
    /// What the decision means for the request.
    pub role: Role,
}

impl Ruling {
    /// The ruling of a check that is not decided yet.
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

    /// Whether it is of a quota in shadow.
    pub(crate) fn is_quota_in_shadow(&self, snapshot: &Snapshot) -> bool {
        let limit = || self.limit.and_then(|limit| snapshot.limit(limit));
        self.role == Role::Observed && limit().is_some_and(|limit| limit.quota)
    }
}

impl AnswerSlot for Ruling {
    #[inline(always)]
    fn put(&mut self, answer: Answer) {
        self.decision = answer.decision;
        self.basis = answer.basis;
    }
}

/// The limit that refused a request, by its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'v> {
    /// The rule's domain.
    pub domain: &'v str,
    /// The rule's path.
    pub path: &'v str,
    /// The limit's name, if it has one.
    pub limit: Option<&'v str>,
    /// The limit's decision.
    pub decision: &'v Decision,
}

impl Verdict {
    /// A verdict that admits, without rulings yet.
    #[inline]
    pub(crate) fn admitting(rules: Guard<Arc<ActiveRules>>) -> Self {
        Verdict {
            rules,
            outcome: Outcome::Admitted,
            rulings: SmallVec::new(),
            matched: SmallVec::new(),
            undecided: None,
            decided_at: Timestamp::from_nanos(0),
            switched_off: false,
            domain_known: false,
        }
    }

    /// Sets the outcome by the rulings, and adds those of refunds, which decide nothing.
    #[inline]
    pub(crate) fn settle_outcome(&mut self, refund_rulings: Option<Box<Rulings>>) {
        let all = self.rulings.iter().all(|ruling| ruling.decision.is_admitted());
        self.outcome = if all || self.passes() { Outcome::Admitted } else { Outcome::Refused };
        if let Some(rulings) = refund_rulings {
            self.rulings.extend(*rulings);
            self.rulings.sort_by_key(|ruling| ruling.descriptor);
        }
    }

    #[cold]
    fn passes(&self) -> bool {
        let quotas_open = self.quotas_open();
        passes(self.rulings.iter().map(|ruling| {
            let has_room = ruling.role == Role::Alternative && quotas_open;
            (ruling.role, has_room || ruling.decision.is_admitted())
        }))
    }

    /// Whether a quota in shadow keeps the other quotas from refusing the request.
    fn quotas_open(&self) -> bool {
        self.rulings.iter().any(|ruling| ruling.is_quota_in_shadow(self.snapshot()))
    }

    /// Admitted or refused.
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may go on.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.outcome, Outcome::Admitted)
    }

    /// The instant by which its limits decided; [`None`] if it met no limit.
    pub fn decided_at(&self) -> Option<Timestamp> {
        (self.decided_at.as_nanos() > 0).then_some(self.decided_at)
    }

    /// Every limit's decision, in the order of the descriptors.
    pub fn rulings(&self) -> &[Ruling] {
        &self.rulings
    }

    /// The decisions of the limits that one descriptor matched, by its index in the request.
    pub fn rulings_of(&self, descriptor: usize) -> &[Ruling] {
        let of = |ruling: &Ruling| ruling.descriptor as usize;
        let first = self.rulings.partition_point(|ruling| of(ruling) < descriptor);
        let rest = self.rulings.get(first..).unwrap_or_default();
        let count = rest.iter().take_while(|ruling| of(ruling) == descriptor).count();
        rest.get(..count).unwrap_or_default()
    }

    /// Whether the rules have the request's domain.
    pub const fn domain_is_known(&self) -> bool {
        self.domain_known
    }

    /// The rule that each descriptor matched, in their order.
    pub fn matched_rules(&self) -> impl Iterator<Item = Option<&Rule>> {
        self.matched.iter().map(|id| id.and_then(|rule| self.snapshot().rule(rule)))
    }

    /// The limit that refused: of several, the one with the longest wait. `None` when it is a limit that the request
    /// carries.
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

    /// When the same request would be admitted, if nothing else is charged until then.
    pub fn retry(&self) -> Retry {
        match self.refused_by() {
            Some(ruling) if !self.is_admitted() => ruling.decision.retry,
            _ => Retry::Now,
        }
    }

    /// The ruling to report to a client: the one that refused, or else the enforced one with the least remaining.
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

    /// Turns the verdict into the refusal of a request that would have to wait and may not. The limits that delay it
    /// refuse it, or else those with `when_over: delay`; they would admit it after `retry`. Rulings report the charge
    /// as refunded; the caller refunds it, see [`Engine::deposit`](crate::Engine::deposit).
    pub fn refuse_to_wait(&mut self, retry: Nanos) {
        let delayed = self.delay() > Nanos::ZERO;
        let Verdict { rules, rulings, .. } = self;
        for ruling in rulings {
            let limit = ruling.limit.and_then(|limit| rules.snapshot().limit(limit));
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

    /// Why the request could not be decided, if so; the outcome is then that of the failure mode.
    pub const fn undecided(&self) -> Option<&Undecided> {
        match &self.undecided {
            Some(undecided) => Some(&**undecided),
            None => None,
        }
    }

    /// Whether the shared store was unavailable for a part of this verdict, so that something else decided instead.
    pub fn is_degraded(&self) -> bool {
        matches!(self.undecided(), Some(Undecided::Store(_)))
            || self.rulings.iter().any(|ruling| ruling.basis.is_degraded())
    }

    /// Whether the engine was switched off.
    pub const fn is_switched_off(&self) -> bool {
        self.switched_off
    }

    /// The rules by which the request was decided.
    pub fn snapshot(&self) -> &Snapshot {
        self.rules.snapshot()
    }

    /// The limit of a ruling of this verdict.
    pub fn limit(&self, ruling: &Ruling) -> Option<&RuleLimit> {
        self.snapshot().limit(ruling.limit?)
    }

    /// The rule of a ruling of this verdict.
    pub fn rule(&self, ruling: &Ruling) -> Option<&Rule> {
        self.snapshot().rule(self.limit(ruling)?.rule)
    }

    /// The refusing limit with the longest wait: a required one, or, when every alternative refuses, the alternative
    /// with the shortest wait.
    fn refused_by(&self) -> Option<&Ruling> {
        let of = |role| self.rulings.iter().filter(move |ruling| ruling.role == role);
        let refuses = |ruling: &&Ruling| !ruling.decision.is_admitted();
        let required = of(Role::Required).filter(refuses).max_by_key(|ruling| wait(ruling));
        let exhausted = of(Role::Alternative).all(|ruling| refuses(&ruling)) && !self.quotas_open();
        let alternative =
            of(Role::Alternative).filter(|_| exhausted).min_by_key(|ruling| wait(ruling));
        required.into_iter().chain(alternative).max_by_key(|ruling| wait(ruling))
    }
}

/// The wait as a number; never is the longest.
fn wait(ruling: &Ruling) -> u64 {
    match ruling.decision.retry {
        Retry::Now => 0,
        Retry::After(wait) => wait.get(),
        Retry::Never => u64::MAX,
    }
}
