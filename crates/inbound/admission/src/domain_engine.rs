//! An engine and the domain whose rules apply.

use std::sync::Arc;

use tidegate_engine::{Clock, CounterStore, Deposit, Engine, Nanos, Permit, Tenure, Verb, Verdict};

use crate::description::RequestDescription;

/// An engine and the domain whose rules limit the requests of a door.
#[derive(Debug)]
pub struct DomainEngine<'e, S, C> {
    /// Decides.
    pub engine: &'e Arc<Engine<S, C>>,
    /// Whose rules apply.
    pub domain: &'e str,
}

impl<S: CounterStore, C: Clock> DomainEngine<'_, S, C> {
    /// Decides on the calling thread; [`None`] if the store has to be awaited.
    #[inline]
    pub fn admit_now(&self, description: &RequestDescription) -> Option<(Verdict, Permit<S, C>)> {
        let engine = self.engine.local()?;
        Some(
            description
                .with_request(self.domain, |request| engine.admit_now(request, Tenure::Held)),
        )
    }

    /// Decides, and awaits the store.
    pub async fn admit(&self, description: &RequestDescription) -> (Verdict, Permit<S, C>) {
        let entries = description.entries();
        let descriptors = description.descriptors(&entries);
        self.engine.admit(&description.request(self.domain, &descriptors), Tenure::Held).await
    }

    /// Applies a verb to the limits that the request meets.
    pub async fn apply(&self, verb: Verb, description: &RequestDescription) -> Verdict {
        let entries = description.entries();
        let descriptors = description.descriptors(&entries);
        self.engine.apply(verb, &description.request(self.domain, &descriptors)).await
    }

    /// What a verdict charged, to be refunded.
    pub fn deposit(&self, description: &RequestDescription, verdict: &Verdict) -> Deposit<S, C> {
        description.with_request(self.domain, |request| self.engine.deposit(request, verdict))
    }

    /// What was charged in full by rules of this version, to be refunded.
    pub fn deposit_in_full(
        &self,
        description: &RequestDescription,
        rules_version: u64,
    ) -> Deposit<S, C> {
        description.with_request(self.domain, |request| {
            self.engine.deposit_in_full(request, rules_version)
        })
    }

    /// Turns an admission for later into a refusal, in the verdict and in the engine's counts.
    pub fn turn_away(&self, description: &RequestDescription, verdict: &mut Verdict, retry: Nanos) {
        description.with_request(self.domain, |request| {
            self.engine.turn_away(request, verdict, retry);
        });
    }
}

impl<S, C> Clone for DomainEngine<'_, S, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, C> Copy for DomainEngine<'_, S, C> {}
