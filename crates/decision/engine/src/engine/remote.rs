//! Deciding by any store, which may have to be waited for.
//!
//! The steps are those of `local`; the caller may drop the future at each of them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use arc_swap::Guard;
use tidegate_algorithms::{Clock, Tenure};
use tidegate_stores::{AnswerSlot, Answers, Batch, CounterStore, FailureKind, StoreError, Verb};

use super::{Engine, RefundRulings, contain};
use crate::failure_mode::Undecided;
use crate::permit::{HeldSlots, Permit};
use crate::prepare::{Call, Checks, PreparedChecks, RefundChecks, VerdictParts, refund_verb};
use crate::request::Request;
use crate::verdict::{Ruling, Verdict};

impl<S: CounterStore, C: Clock> Engine<S, C> {
    /// Decides a request, and charges its limits if it is admitted.
    pub async fn check(&self, request: &Request<'_>) -> Verdict {
        self.apply(Verb::Check, request).await
    }

    /// Applies a verb to every limit that the request matches.
    pub async fn apply(&self, verb: Verb, request: &Request<'_>) -> Verdict {
        if let Some(store) = self.store.local() {
            return self.apply_in(store, verb, request);
        }
        let call = Call { verb, request, tenure: Tenure::TimeToLive };
        self.decide(&call, &mut HeldSlots::new()).await
    }

    /// Decides a request; the permit holds its slots of concurrency limits, and frees them when dropped.
    ///
    /// `tenure` says who keeps the slots alive. [`Tenure::Held`]: this process does the work. Slots in a shared store
    /// are taken on its lease and renewed until the permit is dropped; if the process dies, they expire with the lease.
    /// [`Tenure::TimeToLive`]: another process does the work and may never report back. The slots are not renewed; they
    /// expire after the limit's time to live.
    pub async fn admit(
        self: &Arc<Self>,
        request: &Request<'_>,
        tenure: Tenure,
    ) -> (Verdict, Permit<S, C>) {
        if let Some(store) = self.store.local() {
            return self.admit_in(store, request, tenure);
        }
        let lease = match tenure {
            Tenure::Held => self.store.slot_lease(),
            Tenure::Lease(lease) => Some(lease),
            Tenure::TimeToLive => None,
        };
        let mut slots = HeldSlots::new();
        let call = Call { verb: Verb::Check, request, tenure: lease.into() };
        let verdict = self.decide(&call, &mut slots).await;
        let permit = Permit::of(self, &verdict.rules, slots);
        if tenure != Tenure::TimeToLive {
            permit.hold(lease);
        }
        (verdict, permit)
    }

    /// Decides a request; slots that it takes are added to `slots`.
    async fn decide(&self, call: &Call<'_, '_>, slots: &mut HeldSlots) -> Verdict {
        // A full reference, because a guard that lives across an await would occupy one of few debt slots.
        let mut verdict = Verdict::admitting(Guard::from_inner(self.rules.load_full()));
        if self.is_switched_off() {
            self.conclude_switched_off(&mut verdict, call);
            return verdict;
        }
        let answered = {
            let mut asked = pin!(self.ask(&mut verdict, call, slots));
            poll_fn(|context| {
                let polled = contain(|| Ok(asked.as_mut().poll(context)));
                polled.unwrap_or_else(|error| Poll::Ready(Err(error)))
            })
            .await
        };
        if answered.is_err() {
            // Whether they were taken is unknown; they expire by themselves.
            slots.clear();
        }
        self.conclude(&mut verdict, call, Some(slots), answered);
        verdict
    }

    /// Prepares the checks of a request and lets the store answer them. Returns the rulings of refunds.
    async fn ask(
        &self,
        verdict: &mut Verdict,
        call: &Call<'_, '_>,
        slots: &mut HeldSlots,
    ) -> Result<RefundRulings, Box<Undecided>> {
        let Verdict { rules, domain_known, matched, rulings, decided_at, .. } = verdict;
        let mut checks = Checks::new();
        let mut prepared = PreparedChecks::new(&mut checks);
        let mut parts = VerdictParts { domain_known, matched, rulings };
        self.prepare(rules, call, None, &mut parts, Some(slots), &mut prepared)?;
        *decided_at = prepared.now;
        let mut refund_rulings = None;
        // Refunds first: they make room for the charges.
        if let Some(refund) = prepared.refund.take() {
            let RefundChecks { checks, mut rulings, names } = *refund;
            let batch = prepared.refund_batch(call.verb, &checks, &names);
            answer(&self.store, &batch, &mut rulings).await?;
            self.count(refund_verb(call.verb), rules, &rulings);
            refund_rulings = Some(rulings);
        }
        if !prepared.checks.is_empty() {
            answer(&self.store, &prepared.batch(call.verb), rulings).await?;
        }
        Ok(refund_rulings)
    }
}

/// Lets a store answer a batch, and writes its answers to the rulings.
async fn answer<S: CounterStore>(
    store: &S,
    batch: &Batch<'_>,
    rulings: &mut [Ruling],
) -> Result<(), Undecided> {
    let mut answers = Answers::new();
    store.apply(batch, &mut answers).await?;
    if answers.len() != batch.checks.len() {
        let reason = "it did not answer every check".to_owned();
        return Err(StoreError::Unavailable { kind: FailureKind::Protocol, reason }.into());
    }
    for (ruling, answer) in rulings.iter_mut().zip(answers) {
        ruling.put(answer);
    }
    Ok(())
}
