//! Deciding on the calling thread, for the store that is in this process.
//!
//! Nothing waits here but for the lock of a shard, so a request costs no future and nothing has
//! to be kept while it is decided.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tidegate_algorithms::{Clock, Tenure};
use tidegate_rules::Values;
use tidegate_stores::{Batch, CounterStore, MemoryStore, Verb};

use super::directly::Directly;
use super::{Engine, check_size};
use crate::failure_mode::Undecided;
use crate::gather::{Checks, Gathered, Known, Listed, Refunded, giving_back};
use crate::loaded::Loaded;
use crate::permit::{Permit, Taking, keep_taken, list_slots};
use crate::request::Request;
use crate::verdict::{Ruling, Rulings, Verdict};

impl<C: Clock> Engine<MemoryStore, C> {
    /// Decides a request, and charges what it uses if it is admitted.
    #[inline]
    pub fn check_now(&self, request: &Request<'_>) -> Verdict {
        self.apply_now(Verb::Check, request)
    }

    /// The same, for those who need the verdict only to look at it: it is large, and not moved.
    #[inline]
    pub fn check_with<R>(&self, request: &Request<'_>, look: impl FnOnce(&mut Verdict) -> R) -> R {
        let mut verdict = Verdict::admitting(self.loaded.load());
        self.answer_now(&mut verdict, Verb::Check, request, None);
        look(&mut verdict)
    }

    /// Applies a verb to every limit that the request meets.
    #[inline]
    pub fn apply_now(&self, verb: Verb, request: &Request<'_>) -> Verdict {
        // Filled where it is returned: a verdict is large enough for its moves to cost.
        let mut verdict = Verdict::admitting(self.loaded.load());
        self.answer_now(&mut verdict, verb, request, None);
        verdict
    }

    /// Decides a request; the permit holds the slots of concurrency limits, however long that
    /// takes, and gives them back when it is dropped.
    pub fn admit_now(self: &Arc<Self>, request: &Request<'_>) -> (Verdict, Permit<MemoryStore, C>) {
        let mut permit = Permit::empty(self);
        let verdict = self.check_for(request, permit.taking(Tenure::Held));
        (verdict, permit)
    }

    /// Decides a request for whoever gives its slots back.
    #[inline]
    pub(super) fn check_for(&self, request: &Request<'_>, taking: Taking<'_>) -> Verdict {
        let mut verdict = Verdict::admitting(self.loaded.load());
        self.answer_now(&mut verdict, Verb::Check, request, Some(taking));
        verdict
    }

    fn answer_now(
        &self,
        verdict: &mut Verdict,
        verb: Verb,
        request: &Request<'_>,
        taking: Option<Taking<'_>>,
    ) {
        if self.is_switched_off() {
            verdict.switched_off = true;
        } else if let Err(undecided) = self.try_fill_now(verdict, verb, request, taking) {
            self.give_up(verdict, request, undecided);
        }
        self.tell(verb, request, verdict);
    }

    #[inline]
    fn try_fill_now(
        &self,
        verdict: &mut Verdict,
        verb: Verb,
        request: &Request<'_>,
        taking: Option<Taking<'_>>,
    ) -> Result<(), Undecided> {
        check_size(request)?;
        catch_unwind(AssertUnwindSafe(|| self.fill_now(verdict, verb, request, taking)))
            .map_err(|payload| Undecided::panicked(&*payload))
    }

    #[inline]
    fn fill_now(
        &self,
        verdict: &mut Verdict,
        verb: Verb,
        request: &Request<'_>,
        taking: Option<Taking<'_>>,
    ) {
        let given_back = self.fill_rulings_now(verdict, verb, request, taking);
        verdict.settle_outcome(given_back);
    }

    /// Fills all but the outcome; the rulings of descriptors that give back are returned.
    #[inline]
    fn fill_rulings_now(
        &self,
        verdict: &mut Verdict,
        verb: Verb,
        request: &Request<'_>,
        mut taking: Option<Taking<'_>>,
    ) -> Option<Box<Rulings>> {
        let mut values = Values::new();
        let found = match self.fill_directly(verdict, verb, request, &mut taking, &mut values) {
            Directly::Decided => return None,
            Directly::Met(found) => Some(found),
            Directly::NotTried => None,
        };
        let known = found.map(|found| Known { found, values: &values });
        let Verdict { loaded, domain_known, met, rulings, .. } = verdict;
        let mut charged = Checks::new();
        let mut gathered = Gathered::new(&mut charged);
        let mut listed = Listed { domain_known, met, rulings };
        self.gather(loaded, request, known, &mut listed, &mut gathered);
        if gathered.is_empty() {
            return None;
        }
        let now = self.clock.now();
        let charge = gathered.charge;
        // What is given back makes room for what is charged.
        let given_back = gathered.refunded.take().map(|refunded| {
            let Refunded { checks, mut rulings } = *refunded;
            let batch = Batch::new(giving_back(verb), charge, now, &checks);
            self.settle_now(&batch, loaded, &mut rulings);
            rulings
        });
        match taking {
            Some(Taking { tenure, slots }) => {
                let checks = &mut **gathered.charged;
                checks.iter_mut().for_each(|check| check.tenure = tenure);
                let listed = rulings.iter().zip(checks.iter());
                list_slots(slots, listed.map(|(ruling, check)| (ruling.limit, *check)));
                self.settle_now(&Batch::new(verb, charge, now, checks), loaded, rulings);
                keep_taken(slots, rulings);
            }
            None => {
                let batch = Batch::new(verb, charge, now, gathered.charged);
                self.settle_now(&batch, loaded, rulings);
            }
        }
        given_back
    }

    /// Decides checks and finishes their rulings.
    #[inline]
    fn settle_now(&self, batch: &Batch<'_>, loaded: &Loaded, rulings: &mut [Ruling]) {
        self.store.answer_now(batch, rulings);
        self.count(batch.verb, loaded, rulings);
    }
}

impl<S: CounterStore, C: Clock> Engine<S, C> {
    /// [`Engine::admit`] without a future, if the store decides on the calling thread.
    #[inline]
    pub fn admit_here(self: &Arc<Self>, request: &Request<'_>) -> Option<(Verdict, Permit<S, C>)>
    where
        S: 'static,
        C: 'static,
    {
        let engine = self.here()?;
        let mut permit = Permit::empty(self);
        let verdict = engine.check_for(request, permit.taking(Tenure::Held));
        Some((verdict, permit))
    }

    /// The same, for those who need the verdict only to look at it: it is large, and not moved.
    #[inline]
    pub fn admit_here_with<R>(
        self: &Arc<Self>,
        request: &Request<'_>,
        look: impl FnOnce(&mut Verdict, Permit<S, C>) -> R,
    ) -> Option<R>
    where
        S: 'static,
        C: 'static,
    {
        let engine = self.here()?;
        let mut permit = Permit::empty(self);
        let mut verdict = Verdict::admitting(engine.loaded.load());
        let taking = permit.taking(Tenure::Held);
        engine.answer_now(&mut verdict, Verb::Check, request, Some(taking));
        Some(look(&mut verdict, permit))
    }

    /// This engine, if its store decides on the calling thread: then nothing
    /// has to be kept while it decides, and a request costs no future.
    #[inline]
    pub fn here(&self) -> Option<&Engine<MemoryStore, C>>
    where
        S: 'static,
        C: 'static,
    {
        let engine: &dyn Any = self;
        engine.downcast_ref()
    }
}
