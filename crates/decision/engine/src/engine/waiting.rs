//! Deciding by a store that may have to be waited for.
//!
//! The same steps as on the calling thread, each of which may be given up in between: a request
//! whose caller has gone is decided no further.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use arc_swap::Guard;
use tidegate_algorithms::{Clock, Holder, Period, Tenure};
use tidegate_stores::{AnswerSlot, Answers, Batch, CounterStore, FailureKind, StoreError, Verb};

use super::{Engine, check_size};
use crate::failure_mode::Undecided;
use crate::gather::{Checks, Gathered, Listed, Refunded, giving_back};
use crate::loaded::Loaded;
use crate::names;
use crate::permit::{HeldSlots, Permit, keep_taken, list_slots};
use crate::request::Request;
use crate::verdict::{Met, Ruling, Rulings, Verdict};

impl<S: CounterStore, C: Clock> Engine<S, C> {
    /// Decides a request, and charges what it uses if it is admitted.
    pub async fn check(&self, request: &Request<'_>) -> Verdict {
        self.apply(Verb::Check, request).await
    }

    /// Decides a request that this process works on; the permit holds the slots
    /// of concurrency limits, and gives them back when it is dropped. They are
    /// kept alive until then, however long that takes; should the process die,
    /// they come back when their lease is over.
    pub async fn admit(self: &Arc<Self>, request: &Request<'_>) -> (Verdict, Permit<S, C>)
    where
        S: 'static,
        C: 'static,
    {
        if let Some(admitted) = self.admit_here(request) {
            return admitted;
        }
        let lease = self.store.slot_lease();
        let mut slots = HeldSlots::new();
        let verdict = self.apply_on(lease, Verb::Check, request, &mut slots).await;
        let permit = Permit::of(self, &verdict.loaded, slots);
        permit.hold(lease);
        (verdict, permit)
    }

    /// Decides a request that somebody outside works on, of whom nothing may be
    /// heard any more; the permit gives the slots back when it is dropped. Nobody
    /// keeps them alive: they are worth something for their time to live.
    pub async fn lend(self: &Arc<Self>, request: &Request<'_>) -> (Verdict, Permit<S, C>)
    where
        S: 'static,
        C: 'static,
    {
        if let Some(engine) = self.here() {
            let mut permit = Permit::empty(self);
            let verdict = engine.check_for(request, permit.taking(Tenure::TimeToLive));
            return (verdict, permit);
        }
        let mut slots = HeldSlots::new();
        let verdict = self.apply_on(None, Verb::Check, request, &mut slots).await;
        let permit = Permit::of(self, &verdict.loaded, slots);
        (verdict, permit)
    }

    /// Applies a verb to every limit that the request meets.
    pub async fn apply(&self, verb: Verb, request: &Request<'_>) -> Verdict {
        self.apply_on(None, verb, request, &mut HeldSlots::new()).await
    }

    /// The same, taking slots on a lease if there is one. They are listed once they are taken:
    /// one that is lost on the way comes back when its time is over.
    async fn apply_on(
        &self,
        lease: Option<Period>,
        verb: Verb,
        request: &Request<'_>,
        slots: &mut HeldSlots,
    ) -> Verdict {
        // Held over an await, so counted as a holder rather than guarded.
        let mut verdict = Verdict::admitting(Guard::from_inner(self.loaded.load_full()));
        if self.is_switched_off() {
            verdict.switched_off = true;
        } else {
            let filling = self.try_fill(&mut verdict, lease, verb, request, slots);
            if let Err(undecided) = filling.await {
                self.give_up(&mut verdict, request, undecided);
            }
        }
        self.tell(verb, request, &verdict);
        verdict
    }

    /// Fills a verdict; a panic on the way is an error.
    async fn try_fill(
        &self,
        verdict: &mut Verdict,
        lease: Option<Period>,
        verb: Verb,
        request: &Request<'_>,
        slots: &mut HeldSlots,
    ) -> Result<(), Undecided> {
        check_size(request)?;
        let mut filling = pin!(self.fill(verdict, lease, verb, request, slots));
        let caught = std::future::poll_fn(|context| {
            match catch_unwind(AssertUnwindSafe(|| filling.as_mut().poll(context))) {
                Ok(polled) => polled,
                Err(payload) => std::task::Poll::Ready(Err(Undecided::panicked(&*payload))),
            }
        });
        caught.await
    }

    async fn fill(
        &self,
        verdict: &mut Verdict,
        lease: Option<Period>,
        verb: Verb,
        request: &Request<'_>,
        slots: &mut HeldSlots,
    ) -> Result<(), Undecided> {
        let given_back = self.fill_rulings(verdict, lease, verb, request, slots).await?;
        verdict.settle_outcome(given_back);
        Ok(())
    }

    /// Fills all but the outcome; the rulings of descriptors that give back are returned.
    async fn fill_rulings(
        &self,
        verdict: &mut Verdict,
        lease: Option<Period>,
        verb: Verb,
        request: &Request<'_>,
        slots: &mut HeldSlots,
    ) -> Result<Option<Box<Rulings>>, Undecided> {
        let Verdict { loaded, domain_known, met, rulings, .. } = verdict;
        let loaded: &Loaded = loaded;
        let mut charged = Checks::new();
        let mut gathered = Gathered::new(&mut charged);
        let mut listed = Listed { domain_known, met, rulings };
        self.gather(loaded, request, None, &mut listed, &mut gathered);
        if gathered.is_empty() {
            return Ok(None);
        }
        let now = self.clock.now();
        let Gathered { charge, deadline, charged, refunded } = gathered;
        let within = deadline.map(|deadline| deadline.as_span().into());
        let mut given_back = None;
        if let Some(refunded) = refunded {
            let Refunded { checks, mut rulings } = *refunded;
            let batch = Batch::new(giving_back(verb), charge, now, &checks);
            let names = self.names(loaded, request, met, &rulings);
            let batch = Batch { within, names: &names, ..batch };
            self.settle(&batch, loaded, &mut rulings).await?;
            given_back = Some(rulings);
        }
        if !charged.is_empty() {
            // Nobody renews what nobody holds.
            let held = charged.iter_mut().filter(|check| check.holder != Holder::default());
            held.for_each(|check| check.tenure = lease.into());
            let names = self.names(loaded, request, met, rulings);
            let batch = Batch::new(verb, charge, now, charged);
            let batch = Batch { within, names: &names, ..batch };
            self.settle(&batch, loaded, rulings).await?;
            let taken = rulings.iter().zip(charged.iter());
            list_slots(slots, taken.map(|(ruling, check)| (ruling.limit, *check)));
            keep_taken(slots, rulings);
        }
        Ok(given_back)
    }

    /// What the counters are called in words, if the store wants to know.
    pub(crate) fn names(
        &self,
        loaded: &Loaded,
        request: &Request<'_>,
        met: &Met,
        rulings: &[Ruling],
    ) -> Vec<String> {
        if self.named { names::of(loaded, request, met, rulings) } else { Vec::new() }
    }

    /// Decides checks and finishes their rulings.
    async fn settle(
        &self,
        batch: &Batch<'_>,
        loaded: &Loaded,
        rulings: &mut [Ruling],
    ) -> Result<(), Undecided> {
        let mut answers = Answers::new();
        self.store.apply(batch, &mut answers).await?;
        if answers.len() != batch.checks.len() {
            let reason = "it did not answer every check".to_owned();
            return Err(StoreError::Unavailable { kind: FailureKind::Protocol, reason }.into());
        }
        for (ruling, answer) in rulings.iter_mut().zip(answers) {
            ruling.put(answer);
        }
        self.count(batch.verb, loaded, rulings);
        Ok(())
    }
}
