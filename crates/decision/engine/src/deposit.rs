//! What a request was charged, as long as it may still come to nothing.
//!
//! A request that a leaky bucket admits for later is charged when it is decided, and served when
//! its turn has come. Should it go away before, or be turned away because its turn is too far
//! off, its other limits have charged it for nothing. The same holds for one that is let through
//! and then finds no place where it would be worked on. A deposit is what they would give back.
//!
//! Most requests are served, so there is a deposit that costs nothing until it is needed: who was
//! charged in full can be asked for again, as long as the rules are the same.
//!
//! Slots are not in it: a [`Permit`](crate::Permit) holds those. Neither are places in leaky
//! buckets, which have no refund.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::{Clock, Holder};
use tidegate_rules::{LimitId, Snapshot};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CounterStore, Key, MemoryStore, Policy, Verb,
};

use crate::clock::SystemClock;
use crate::engine::Engine;
use crate::gather::{Checks, Gathered, Listed};
use crate::loaded::Loaded;
use crate::request::Request;
use crate::verdict::{Met, Ruling, Rulings, Verdict};

/// What an admitted request was charged by its rates. Dropping it leaves the charge as it is.
#[must_use = "nothing is given back unless it is asked for"]
pub struct Deposit<S: CounterStore = MemoryStore, C: Clock = SystemClock> {
    engine: Arc<Engine<S, C>>,
    loaded: Arc<Loaded>,
    charged: SmallVec<[Charged; 2]>,
    /// What the counters are called in words, if the store wants to know.
    names: Vec<String>,
}

/// What one limit took.
#[derive(Clone, Copy, Debug)]
struct Charged {
    limit: LimitId,
    key: Key,
    policy: Policy,
    amount: u64,
}

impl<S: CounterStore, C: Clock> Engine<S, C> {
    /// What a request was charged, by the verdict that it was given.
    pub fn deposit(self: &Arc<Self>, request: &Request<'_>, verdict: &Verdict) -> Deposit<S, C> {
        let taken = |ruling: &Ruling| {
            // Limits may have been switched since, so their places say nothing.
            let place = usize::try_from(ruling.descriptor).ok()?;
            let said = verdict.rulings_of(place).iter().find(|said| said.limit == ruling.limit)?;
            Some(said.decision.taken)
        };
        self.deposit_of(&verdict.loaded, request, taken)
    }

    /// What a request was charged whose verdict [is gone](Verdict::is_charged_in_full), a moment
    /// ago and by rules of this version. Nothing, if there are others by now.
    pub fn deposit_in_full(
        self: &Arc<Self>,
        request: &Request<'_>,
        rules_version: u64,
    ) -> Deposit<S, C> {
        let loaded = self.loaded();
        let same = loaded.snapshot().version() == rules_version;
        self.deposit_of(&loaded, request, |ruling| same.then_some(ruling.cost))
    }

    /// What limits would give back of what each `took`.
    fn deposit_of(
        self: &Arc<Self>,
        loaded: &Arc<Loaded>,
        request: &Request<'_>,
        took: impl Fn(&Ruling) -> Option<u64>,
    ) -> Deposit<S, C> {
        let (mut met, mut rulings) = (Met::new(), Rulings::new());
        let mut checks = Checks::new();
        let mut gathered = Gathered::new(&mut checks);
        let mut listed = Listed { domain_known: &mut false, met: &mut met, rulings: &mut rulings };
        self.gather(loaded, request, None, &mut listed, &mut gathered);
        let mut charged = SmallVec::new();
        let mut of = Rulings::new();
        for (check, ruling) in checks.iter().zip(&rulings) {
            if let Some(taken) = refundable(check, ruling, loaded.snapshot(), &took) {
                charged.push(taken);
                of.push(*ruling);
            }
        }
        let names = self.names(loaded, request, &met, &of);
        Deposit { engine: Arc::clone(self), loaded: Arc::clone(loaded), charged, names }
    }
}

/// What a check took, if it can be given back.
fn refundable(
    check: &Check<'_>,
    ruling: &Ruling,
    snapshot: &Snapshot,
    took: impl Fn(&Ruling) -> Option<u64>,
) -> Option<Charged> {
    let limit = ruling.limit?;
    let algorithm = snapshot.limit(limit)?.limit.algorithm();
    let is_slot = check.holder != Holder::default();
    if is_slot || !algorithm.is_refundable() {
        return None;
    }
    let amount = took(ruling)?;
    let charged = Charged { limit, key: check.key, policy: check.policy, amount };
    (amount > 0).then_some(charged)
}

impl Verdict {
    /// Whether every limit took what the request cost. Then [`Engine::deposit_in_full`] knows what
    /// was charged without the verdict.
    pub fn is_charged_in_full(&self) -> bool {
        self.rulings().iter().all(|ruling| ruling.decision.taken == ruling.cost)
    }
}

impl<S: CounterStore, C: Clock> Deposit<S, C> {
    /// Whether there is nothing to give back.
    pub fn is_empty(&self) -> bool {
        self.charged.is_empty()
    }

    /// Gives it back. Nobody is told when the store cannot be asked: the charge stays then, which
    /// harms nobody else.
    pub async fn give_back(self) {
        if self.is_empty() {
            return;
        }
        let snapshot = self.loaded.snapshot();
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

impl<S: CounterStore, C: Clock> std::fmt::Debug for Deposit<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deposit").field("charged", &self.charged).finish_non_exhaustive()
    }
}
