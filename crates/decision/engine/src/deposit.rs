//! The charge of an admitted request, while it may still be refunded.
//!
//! A request that a leaky bucket admits for later is charged when it is decided, and served at its turn. If it goes away
//! before, or is refused because its turn is too far off, its other limits have charged it for nothing. The same holds
//! for a request that is admitted and then finds no room at the gate. A deposit lists what these limits refund.
//!
//! Most requests are served, so [`Engine::deposit_in_full`] needs nothing kept from the verdict: it matches the request
//! again, which works while the rules are unchanged.
//!
//! Slots are not part of it: a [`Permit`](crate::Permit) holds those. Neither are turns of leaky buckets, which have no
//! refund.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::{Clock, Holder, Tenure};
use tidegate_macros::debug_fields;
use tidegate_rules::{LimitId, Snapshot};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CounterStore, Key, MemoryStore, Policy, Verb,
};

use crate::active_rules::ActiveRules;
use crate::clock::SystemClock;
use crate::engine::Engine;
use crate::prepare::Call;
use crate::request::Request;
use crate::verdict::{Ruling, Rulings, Verdict};

/// The units that rate limits charged an admitted request. Dropping it keeps the charge.
#[must_use = "the charge stays unless it is given back"]
pub struct Deposit<S: CounterStore = MemoryStore, C: Clock = SystemClock> {
    engine: Arc<Engine<S, C>>,
    rules: Arc<ActiveRules>,
    charged: SmallVec<[ChargedLimit; 2]>,
    /// The counters' names, if the store needs them.
    names: Vec<String>,
}

/// The charge of one limit.
#[derive(Clone, Copy, Debug)]
struct ChargedLimit {
    limit: LimitId,
    key: Key,
    policy: Policy,
    amount: u64,
}

impl<S: CounterStore, C: Clock> Engine<S, C> {
    /// The charge of a request, by its verdict.
    pub fn deposit(self: &Arc<Self>, request: &Request<'_>, verdict: &Verdict) -> Deposit<S, C> {
        let taken = |ruling: &Ruling| {
            // By identity, not by index: modes may have changed since, and with them the list of rulings.
            let index = usize::try_from(ruling.descriptor).ok()?;
            let rulings = verdict.rulings_of(index);
            let before = rulings.iter().find(|before| before.limit == ruling.limit)?;
            Some(before.decision.taken)
        };
        self.deposit_of(&verdict.rules, request, taken)
    }

    /// The charge of a request that was [charged in full](Verdict::is_charged_in_full) by rules of this version. Empty
    /// if the rules have changed since.
    pub fn deposit_in_full(
        self: &Arc<Self>,
        request: &Request<'_>,
        rules_version: u64,
    ) -> Deposit<S, C> {
        let rules = self.active_rules();
        let same = rules.snapshot().version() == rules_version;
        self.deposit_of(&rules, request, |ruling| same.then_some(ruling.cost))
    }

    /// The refundable part of what each limit `took`.
    fn deposit_of(
        self: &Arc<Self>,
        rules: &Arc<ActiveRules>,
        request: &Request<'_>,
        took: impl Fn(&Ruling) -> Option<u64>,
    ) -> Deposit<S, C> {
        let call = Call { verb: Verb::Refund, request, tenure: Tenure::TimeToLive };
        let (matched, rulings, checks) = self.match_only(rules, &call);
        let mut charged = SmallVec::new();
        let mut refunded = Rulings::new();
        for (check, ruling) in checks.iter().zip(&rulings) {
            if let Some(limit) = refundable(check, ruling, rules.snapshot(), &took) {
                charged.push(limit);
                refunded.push(*ruling);
            }
        }
        let names = self.names(rules, request, &matched, &refunded);
        Deposit { engine: Arc::clone(self), rules: Arc::clone(rules), charged, names }
    }
}

/// The charge of a check, if its limit refunds.
fn refundable(
    check: &Check<'_>,
    ruling: &Ruling,
    snapshot: &Snapshot,
    took: impl Fn(&Ruling) -> Option<u64>,
) -> Option<ChargedLimit> {
    let limit = ruling.limit?;
    let algorithm = snapshot.limit(limit)?.limit.algorithm();
    let is_slot = check.holder != Holder::default();
    if is_slot || !algorithm.is_refundable() {
        return None;
    }
    let amount = took(ruling)?;
    let charged = ChargedLimit { limit, key: check.key, policy: check.policy, amount };
    (amount > 0).then_some(charged)
}

impl Verdict {
    /// Whether every limit charged the whole cost. Then [`Engine::deposit_in_full`] works without the verdict.
    pub fn is_charged_in_full(&self) -> bool {
        self.rulings().iter().all(|ruling| ruling.decision.taken == ruling.cost)
    }
}

impl<S: CounterStore, C: Clock> Deposit<S, C> {
    /// Whether there is nothing to refund.
    pub fn is_empty(&self) -> bool {
        self.charged.is_empty()
    }

    /// Refunds it. If the store is unavailable, the charge stays; no error is reported.
    pub async fn give_back(self) {
        if self.is_empty() {
            return;
        }
        let snapshot = self.rules.snapshot();
        let mut checks: SmallVec<[Check<'_>; 2]> = SmallVec::new();
        for charged in &self.charged {
            let Some(limit) = snapshot.limit(charged.limit) else { continue };
            let check = Check::new(charged.key, &limit.limit, charged.amount);
            checks.push(Check { policy: charged.policy, ..check });
        }
        let now = self.engine.clock().now();
        let batch = Batch::new(Verb::Refund, Charge::AllOrNothing, now, &checks);
        let batch = Batch { names: &self.names, ..batch };
        let _ = self.engine.store().apply(&batch, &mut Answers::new()).await;
    }
}

debug_fields!([S: CounterStore, C: Clock] Deposit<S, C> { charged });
