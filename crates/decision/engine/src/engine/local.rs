//! Deciding on the calling thread, when the counters are in this process.
//!
//! Nothing waits except for the lock of a shard, so a request costs no future.

use std::sync::Arc;

use tidegate_algorithms::{Clock, Tenure};
use tidegate_macros::debug_fields;
use tidegate_rules::Values;
use tidegate_stores::{CounterStore, MemoryStore, Verb};

use super::fast_path::FastPath;
use super::{Engine, RefundRulings, contain};
use crate::failure_mode::Undecided;
use crate::permit::{HeldSlots, Permit};
use crate::prepare::{
    Call, Checks, KnownMatch, PreparedChecks, RefundChecks, VerdictParts, refund_verb,
};
use crate::request::Request;
use crate::verdict::Verdict;

impl<C: Clock> Engine<MemoryStore, C> {
    /// Decides a request, and charges its limits if it is admitted.
    #[inline]
    pub fn check_now(&self, request: &Request<'_>) -> Verdict {
        self.apply_in(&self.store, Verb::Check, request)
    }

    /// Applies a verb to every limit that the request matches.
    #[inline]
    pub fn apply_now(&self, verb: Verb, request: &Request<'_>) -> Verdict {
        self.apply_in(&self.store, verb, request)
    }

    /// Decides a request; the permit holds its slots of concurrency limits for `tenure`, and frees them when dropped.
    #[inline]
    pub fn admit_now(
        self: &Arc<Self>,
        request: &Request<'_>,
        tenure: Tenure,
    ) -> (Verdict, Permit<MemoryStore, C>) {
        self.admit_in(&self.store, request, tenure)
    }
}

/// An engine whose counters are in this process; see [`Engine::local`]. A request costs it no future.
pub struct LocalEngine<'e, S, C> {
    engine: &'e Arc<Engine<S, C>>,
    store: &'e MemoryStore,
}

impl<S: CounterStore, C: Clock> LocalEngine<'_, S, C> {
    /// [`Engine::check`] without a future.
    #[inline]
    pub fn check_now(&self, request: &Request<'_>) -> Verdict {
        self.engine.apply_in(self.store, Verb::Check, request)
    }

    /// [`Engine::admit`] without a future.
    #[inline]
    pub fn admit_now(&self, request: &Request<'_>, tenure: Tenure) -> (Verdict, Permit<S, C>) {
        self.engine.admit_in(self.store, request, tenure)
    }
}

debug_fields!([S, C] LocalEngine<'_, S, C> { engine });

impl<S: CounterStore, C: Clock> Engine<S, C> {
    /// The engine as one that decides on the calling thread, if its counters are in this process.
    #[inline]
    pub fn local(self: &Arc<Self>) -> Option<LocalEngine<'_, S, C>> {
        Some(LocalEngine { engine: self, store: self.store.local()? })
    }

    #[inline]
    pub(super) fn apply_in(
        &self,
        store: &MemoryStore,
        verb: Verb,
        request: &Request<'_>,
    ) -> Verdict {
        let mut verdict = Verdict::admitting(self.rules.load());
        let call = Call { verb, request, tenure: Tenure::TimeToLive };
        self.decide_now(store, &mut verdict, &call, None);
        verdict
    }

    #[inline]
    pub(super) fn admit_in(
        self: &Arc<Self>,
        store: &MemoryStore,
        request: &Request<'_>,
        tenure: Tenure,
    ) -> (Verdict, Permit<S, C>) {
        let mut permit = Permit::empty(self);
        let mut verdict = Verdict::admitting(self.rules.load());
        let call = Call { verb: Verb::Check, request, tenure };
        self.decide_now(store, &mut verdict, &call, Some(permit.slots_mut()));
        (verdict, permit)
    }

    /// Decides a request; slots that it takes are added to `slots`.
    fn decide_now(
        &self,
        store: &MemoryStore,
        verdict: &mut Verdict,
        call: &Call<'_, '_>,
        mut slots: Option<&mut HeldSlots>,
    ) {
        if self.is_switched_off() {
            return self.conclude_switched_off(verdict, call);
        }
        let answered = contain(|| self.ask_now(store, verdict, call, slots.as_deref_mut()));
        self.conclude(verdict, call, slots, answered);
    }

    /// Prepares the checks of a request and lets the store answer them. Returns the rulings of refunds.
    #[inline]
    fn ask_now(
        &self,
        store: &MemoryStore,
        verdict: &mut Verdict,
        call: &Call<'_, '_>,
        mut slots: Option<&mut HeldSlots>,
    ) -> Result<RefundRulings, Box<Undecided>> {
        let mut values = Values::new();
        let tried = self.try_fast_path(store, verdict, call, slots.as_deref_mut(), &mut values);
        let known = match tried {
            FastPath::Decided => return Ok(None),
            FastPath::Matched(rule) => Some(KnownMatch { rule, values: &values }),
            FastPath::NotTried => None,
        };
        let Verdict { rules, domain_known, matched, rulings, decided_at, .. } = verdict;
        let mut checks = Checks::new();
        let mut prepared = PreparedChecks::new(&mut checks);
        let mut parts = VerdictParts { domain_known, matched, rulings };
        self.prepare(rules, call, known, &mut parts, slots, &mut prepared)?;
        *decided_at = prepared.now;
        let mut refund_rulings = None;
        // Refunds first: they make room for the charges.
        if let Some(refund) = prepared.refund.take() {
            let RefundChecks { checks, mut rulings, names } = *refund;
            store.answer_now(&prepared.refund_batch(call.verb, &checks, &names), &mut rulings);
            self.count(refund_verb(call.verb), rules, &rulings);
            refund_rulings = Some(rulings);
        }
        if !prepared.checks.is_empty() {
            store.answer_now(&prepared.batch(call.verb), rulings);
        }
        Ok(refund_rulings)
    }
}
