//! One request in, one verdict out.
//!
//! The order of things: one snapshot of the rules for the whole request, the
//! kill switch, matching, one reading of the clock, all checks in one step at
//! the store, the verdict. Whatever goes wrong on the way,
//! panics included, ends in the failure mode.

use std::any::Any;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Holder, Nanos, Period};
use tidegate_rules::{LimitId, OnStoreError, Rule, RuleLimit, Snapshot};
use tidegate_stores::{
    Answered, Answers, Batch, Check, CounterStore, FailureKind, Fingerprinter, MemoryStore, Role,
    StoreError, Verb,
};

use crate::clock::SystemClock;
use crate::failure_mode::{FailureMode, Undecided};
use crate::gather::{Checks, DESCRIPTORS_MAX, Gathered, Listed, Refunded, gather, giving_back};
use crate::loaded::Loaded;
use crate::names;
use crate::observer::Observer;
use crate::permit::Permit;
use crate::request::Request;
use crate::switch::{LimiterKind, Switch, Switches};
use crate::tally::{NearLimit, Tally};
use crate::verdict::{Held, HeldSlots, Met, Ruling, Rulings, Verdict};

/// Run-time switches of limits that are gone are kept up to this many, 24 bytes each.
const SWITCHES_MAX: usize = 100_000;

/// Decides requests by the rules of a snapshot, with counters in a store.
pub struct Engine<S = MemoryStore, C = SystemClock> {
    loaded: ArcSwap<Loaded>,
    store: S,
    clock: C,
    fingerprinter: Fingerprinter,
    failure_mode: FailureMode,
    observer: Option<Arc<dyn Observer>>,
    /// What counts as near a limit, when limits are tallied.
    tallied: Option<NearLimit>,
    switched_off: AtomicBool,
    /// Switches set at run time, kept over a change of rules.
    set: Mutex<Switches>,
    /// The next holder of slots.
    holders: AtomicU64,
    /// Whether batches say what counters are called.
    named: bool,
}

/// Which limits a run-time switch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The domain.
    pub domain: &'a str,
    /// The rule's path, as verdicts show it.
    pub path: &'a str,
    /// One limit by its name, or by its place from 1 if it has none; all limits
    /// of the rule when not given.
    pub limit: Option<&'a str>,
}

/// No limit is called that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no limit of domain `{domain}` is at `{path}`{}", .limit.as_deref().map(|name| format!(" with the name `{name}`")).unwrap_or_default())]
pub struct UnknownTarget {
    domain: String,
    path: String,
    limit: Option<String>,
}

impl<S, C: Clock> Engine<S, C> {
    /// An engine without rules: it admits everything until some are installed.
    pub fn new(store: S, clock: C) -> Self {
        Engine {
            loaded: ArcSwap::from_pointee(Loaded::default()),
            store,
            clock,
            fingerprinter: Fingerprinter::random(),
            failure_mode: FailureMode::default(),
            observer: None,
            tallied: None,
            switched_off: AtomicBool::new(false),
            set: Mutex::default(),
            // Processes that share a store must not give their holders the
            // same numbers: each begins somewhere else. Among a hundred
            // processes with 10,000 requests in flight each, the odds that two
            // ranges touch are one in 10¹¹.
            holders: AtomicU64::new(RandomState::new().hash_one(0_u64)),
            named: false,
        }
    }

    /// The same engine with rules.
    #[must_use]
    pub fn with_rules(self, snapshot: Snapshot) -> Self {
        self.install(snapshot);
        self
    }

    /// The same engine with another answer to what it cannot decide.
    #[must_use]
    pub fn with_failure_mode(self, failure_mode: FailureMode) -> Self {
        Engine { failure_mode, ..self }
    }

    /// The same engine with someone to tell of every verdict.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        Engine { observer: Some(observer), ..self }
    }

    /// The same engine, counting what each limit lets through and refuses.
    #[must_use]
    pub fn with_tallies(self, near: NearLimit) -> Self {
        let engine = Engine { tallied: Some(near), ..self };
        engine.install(Arc::clone(engine.loaded.load().snapshot()));
        engine
    }

    /// The same engine with a seed given for its fingerprints, so that runs repeat.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        let holders = AtomicU64::new(1);
        Engine { fingerprinter: Fingerprinter::seeded(seed), holders, ..self }
    }

    /// The same engine with fingerprints that are the same in every process,
    /// for a store that several share.
    #[must_use]
    pub fn with_shared_fingerprints(self) -> Self {
        Engine { fingerprinter: Fingerprinter::shared(), ..self }
    }

    /// The same engine, telling the store what each counter is called, for a
    /// store that keeps counters under words.
    #[must_use]
    pub fn with_names(self) -> Self {
        Engine { named: true, ..self }
    }

    /// Puts new rules in place of the old. Requests under way finish with
    /// those they began with; counters and run-time switches stay.
    pub fn install(&self, snapshot: impl Into<Arc<Snapshot>>) {
        let snapshot = snapshot.into();
        let mut set = self.set.lock();
        if set.limits.len() > SWITCHES_MAX {
            // Only now: a limit that is gone by mistake comes back as it was switched.
            let there: HashSet<u64> =
                snapshot.limits().iter().map(|limit| limit.identity).collect();
            set.limits.retain(|identity, _| there.contains(identity));
        }
        let mut loaded = Loaded::new(snapshot, &set);
        if self.tallied.is_some() {
            loaded = loaded.with_tallies(&self.loaded.load());
        }
        self.loaded.store(Arc::new(loaded));
    }

    /// The rules in place.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(self.loaded.load().snapshot())
    }

    /// The version of the rules in place.
    pub fn rules_version(&self) -> u64 {
        self.loaded.load().snapshot().version()
    }

    /// Switches limits at run time, until [`Engine::unset_switch`]. Returns how many.
    ///
    /// # Errors
    /// When no limit is called that.
    pub fn set_switch(&self, target: Target<'_>, switch: Switch) -> Result<usize, UnknownTarget> {
        let switch = Switch { enforce_percent: switch.enforce_percent.min(100), ..switch };
        self.switch_each(target, |set, limit| {
            set.limits.insert(limit.identity, switch);
        })
    }

    /// Takes run-time switches back: the rule files decide again. Returns for how many limits.
    ///
    /// # Errors
    /// When no limit is called that.
    pub fn unset_switch(&self, target: Target<'_>) -> Result<usize, UnknownTarget> {
        self.switch_each(target, |set, limit| {
            set.limits.remove(&limit.identity);
        })
    }

    /// Switches a whole limiter at run time: no limit of its kind does more than this, whatever
    /// its rule says. Limits that requests bring along are not switched.
    pub fn set_limiter(&self, kind: LimiterKind, switch: Switch) {
        let mut set = self.set.lock();
        *set.most_mut(kind) = Switch { enforce_percent: switch.enforce_percent.min(100), ..switch };
        let loaded = self.loaded.load();
        for limit in loaded.snapshot().limits() {
            loaded.set_switch(limit, set.of(limit));
        }
    }

    /// The most that limits of a kind do.
    pub fn limiter(&self, kind: LimiterKind) -> Switch {
        self.set.lock().most(kind)
    }

    /// Switches everything off, or on again: while off, every request is
    /// admitted at once, without rules and without the store.
    pub fn switch_off(&self, off: bool) {
        self.switched_off.store(off, Ordering::Relaxed);
    }

    /// Whether everything is switched off.
    #[inline]
    pub fn is_switched_off(&self) -> bool {
        self.switched_off.load(Ordering::Relaxed)
    }

    /// The store behind the engine.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The engine's clock.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Tells every limit that is switched at run time, and to what.
    pub fn for_each_switch(&self, mut tell: impl FnMut(&Snapshot, &Rule, &RuleLimit, Switch)) {
        let set = self.set.lock();
        let loaded = self.loaded.load();
        for limit in loaded.snapshot().limits() {
            let Some(switch) = set.limits.get(&limit.identity) else { continue };
            let Some(rule) = loaded.snapshot().rule(limit.rule) else { continue };
            tell(loaded.snapshot(), rule, limit, *switch);
        }
    }

    /// What each limit decided so far; nothing unless the engine is built
    /// [`with_tallies`](Engine::with_tallies). Limits that share their counters
    /// (those of a rule's plans) are told once, as the first of them.
    pub fn for_each_tally(&self, mut tell: impl FnMut(&Snapshot, &Rule, &RuleLimit, Tally)) {
        let loaded = self.loaded.load();
        let mut told = HashSet::new();
        for (limit, tally) in loaded.tallied() {
            let Some(rule) = loaded.snapshot().rule(limit.rule) else { continue };
            if told.insert(limit.identity) {
                tell(loaded.snapshot(), rule, limit, tally.read());
            }
        }
    }

    fn switch_each(
        &self,
        target: Target<'_>,
        mut change: impl FnMut(&mut Switches, &RuleLimit),
    ) -> Result<usize, UnknownTarget> {
        let mut set = self.set.lock();
        let loaded = self.loaded.load();
        let snapshot = loaded.snapshot();
        let mut switched = 0;
        for limit in snapshot.limits() {
            let Some(rule) = snapshot.rule(limit.rule) else { continue };
            if rule.domain() != target.domain || rule.path() != target.path {
                continue;
            }
            if target.limit.is_none_or(|name| name == snapshot.limit_name(rule, limit)) {
                change(&mut set, limit);
                loaded.set_switch(limit, set.of(limit));
                switched += 1;
            }
        }
        if switched == 0 {
            return Err(UnknownTarget {
                domain: target.domain.to_owned(),
                path: target.path.to_owned(),
                limit: target.limit.map(ToOwned::to_owned),
            });
        }
        Ok(switched)
    }

    #[inline]
    pub(crate) fn gather<'s>(
        &self,
        loaded: &'s Loaded,
        request: &Request<'s>,
        listed: &mut Listed<'_>,
        gathered: &mut Gathered<'s, '_>,
    ) {
        // Zero is nobody.
        let holder = || Holder(self.holders.fetch_add(1, Ordering::Relaxed).max(1));
        gather(loaded, &self.fingerprinter, request, holder, listed, gathered);
    }

    /// Makes it the verdict of a request that could not be decided.
    #[cold]
    fn give_up(&self, verdict: &mut Verdict, request: &Request<'_>, undecided: Undecided) {
        // What broke may break again: without rules the failure mode alone decides.
        let said = catch_unwind(AssertUnwindSafe(|| {
            let known = request.descriptors.get(..DESCRIPTORS_MAX).unwrap_or(request.descriptors);
            let request = Request { descriptors: known, ..*request };
            let (mut met, mut rulings) = (Met::new(), Rulings::new());
            let mut listed =
                Listed { domain_known: &mut false, met: &mut met, rulings: &mut rulings };
            let mut charged = Checks::new();
            let mut gathered = Gathered::new(&mut charged);
            self.gather(&verdict.loaded, &request, &mut listed, &mut gathered);
            let enforced = rulings.iter().filter(|ruling| ruling.role != Role::Observed);
            let said = |limit: Option<LimitId>| {
                let limit = limit.and_then(|limit| verdict.loaded.snapshot().limit(limit));
                limit.map_or(OnStoreError::Local, |limit| limit.on_store_error)
            };
            enforced.map(|ruling| said(ruling.limit)).collect::<Vec<_>>()
        }));
        verdict.outcome = self.failure_mode.outcome(&said.unwrap_or_default());
        verdict.rulings.clear();
        verdict.met.clear();
        verdict.held.clear();
        verdict.undecided = Some(undecided);
    }

    /// Counts what was decided, and notes the slots that are held now.
    #[inline]
    fn conclude(
        &self,
        batch: &Batch<'_>,
        loaded: &Loaded,
        rulings: &[Ruling],
        held: &mut HeldSlots,
    ) {
        if let Some(near) = self.tallied {
            count(batch.verb, near, loaded, rulings);
        }
        if batch.checks.iter().any(|check| check.holder != Holder::default()) {
            hold(batch.checks, rulings, held);
        }
    }

    /// Makes the verdict of a request that was admitted for later a refusal, because it may not
    /// wait for so long, and tells the observer; see [`Verdict::refuse_to_wait`].
    pub fn turn_away(&self, request: &Request<'_>, verdict: &mut Verdict, retry: Nanos) {
        verdict.refuse_to_wait(retry);
        if let Some(observer) = &self.observer {
            let told = AssertUnwindSafe(|| observer.observe_turned_away(request, verdict));
            let _ = catch_unwind(told);
        }
    }

    #[inline]
    fn tell(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict) {
        if let Some(observer) = &self.observer {
            // An observer that panics changes no verdict.
            let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(verb, request, verdict)));
        }
    }
}

impl<C: Clock> Engine<MemoryStore, C> {
    /// Decides a request, and charges what it uses if it is admitted.
    #[inline]
    pub fn check_now(&self, request: &Request<'_>) -> Verdict {
        self.apply_now(Verb::Check, request)
    }

    /// Applies a verb to every limit that the request meets.
    #[inline]
    pub fn apply_now(&self, verb: Verb, request: &Request<'_>) -> Verdict {
        // Filled where it is returned: a verdict is large enough for its moves to cost.
        let mut verdict = Verdict::admitting(self.loaded.load());
        self.answer_now(&mut verdict, verb, request);
        verdict
    }

    fn answer_now(&self, verdict: &mut Verdict, verb: Verb, request: &Request<'_>) {
        if self.is_switched_off() {
            verdict.switched_off = true;
        } else if let Err(undecided) = self.try_fill_now(verdict, verb, request) {
            self.give_up(verdict, request, undecided);
        }
        self.tell(verb, request, verdict);
    }

    /// Decides a request; the permit holds the slots of concurrency limits, however long that
    /// takes, and gives them back when it is dropped.
    pub fn admit_now(self: &Arc<Self>, request: &Request<'_>) -> (Verdict, Permit<MemoryStore, C>) {
        let mut verdict = self.check_and_hold(request);
        let permit = Permit::of(self, &mut verdict);
        (verdict, permit)
    }

    /// Decides a request for whoever gives its slots back.
    #[inline]
    fn check_and_hold(&self, request: &Request<'_>) -> Verdict {
        let verdict = self.check_now(request);
        // Only now that there is somebody to give them back: what goes wrong before costs a
        // slot its time to live, and no more.
        for slot in &verdict.held {
            self.store.hold_slots(slot.key, slot.holder);
        }
        verdict
    }

    #[inline]
    fn try_fill_now(
        &self,
        verdict: &mut Verdict,
        verb: Verb,
        request: &Request<'_>,
    ) -> Result<(), Undecided> {
        check_size(request)?;
        catch_unwind(AssertUnwindSafe(|| self.fill_now(verdict, verb, request)))
            .map_err(|payload| Undecided::panicked(&*payload))
    }

    #[inline]
    fn fill_now(&self, verdict: &mut Verdict, verb: Verb, request: &Request<'_>) {
        let given_back = self.fill_rulings_now(verdict, verb, request);
        verdict.settle_outcome(given_back);
    }

    /// Fills all but the outcome; the rulings of descriptors that give back are returned.
    #[inline]
    fn fill_rulings_now(
        &self,
        verdict: &mut Verdict,
        verb: Verb,
        request: &Request<'_>,
    ) -> Option<Box<Rulings>> {
        let Verdict { loaded, domain_known, met, rulings, held, .. } = verdict;
        let mut charged = Checks::new();
        let mut gathered = Gathered::new(&mut charged);
        let mut listed = Listed { domain_known, met, rulings };
        self.gather(loaded, request, &mut listed, &mut gathered);
        if gathered.is_empty() {
            return None;
        }
        let now = self.clock.now();
        let charge = gathered.charge;
        // What is given back makes room for what is charged.
        let given_back = gathered.refunded.take().map(|refunded| {
            let Refunded { checks, mut rulings } = *refunded;
            let batch = Batch::new(giving_back(verb), charge, now, &checks);
            self.settle_now(&batch, loaded, &mut rulings, held);
            rulings
        });
        self.settle_now(&Batch::new(verb, charge, now, gathered.charged), loaded, rulings, held);
        given_back
    }

    /// Decides checks and finishes their rulings.
    #[inline]
    fn settle_now(
        &self,
        batch: &Batch<'_>,
        loaded: &Loaded,
        rulings: &mut [Ruling],
        held: &mut HeldSlots,
    ) {
        self.store.answer_now(batch, rulings);
        self.conclude(batch, loaded, rulings, held);
    }
}

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
        let mut verdict = self.apply_on(lease, Verb::Check, request).await;
        let permit = Permit::held(self, &mut verdict, lease);
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
        let mut verdict = match self.here() {
            Some(engine) => engine.check_now(request),
            None => self.check(request).await,
        };
        let permit = Permit::of(self, &mut verdict);
        (verdict, permit)
    }

    /// [`Engine::admit`] without a future, if the store decides on the calling thread.
    #[inline]
    pub fn admit_here(self: &Arc<Self>, request: &Request<'_>) -> Option<(Verdict, Permit<S, C>)>
    where
        S: 'static,
        C: 'static,
    {
        let mut verdict = self.here()?.check_and_hold(request);
        let permit = Permit::of(self, &mut verdict);
        Some((verdict, permit))
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

    /// Applies a verb to every limit that the request meets.
    pub async fn apply(&self, verb: Verb, request: &Request<'_>) -> Verdict {
        self.apply_on(None, verb, request).await
    }

    /// The same, taking slots on a lease if there is one.
    async fn apply_on(&self, lease: Option<Period>, verb: Verb, request: &Request<'_>) -> Verdict {
        // Held over an await, so counted as a holder rather than guarded.
        let mut verdict = Verdict::admitting(Guard::from_inner(self.loaded.load_full()));
        if self.is_switched_off() {
            verdict.switched_off = true;
        } else if let Err(undecided) = self.try_fill(&mut verdict, lease, verb, request).await {
            self.give_up(&mut verdict, request, undecided);
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
    ) -> Result<(), Undecided> {
        check_size(request)?;
        let mut filling = pin!(self.fill(verdict, lease, verb, request));
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
    ) -> Result<(), Undecided> {
        let given_back = self.fill_rulings(verdict, lease, verb, request).await?;
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
    ) -> Result<Option<Box<Rulings>>, Undecided> {
        let Verdict { loaded, domain_known, met, rulings, held, .. } = verdict;
        let loaded: &Loaded = loaded;
        let mut charged = Checks::new();
        let mut gathered = Gathered::new(&mut charged);
        let mut listed = Listed { domain_known, met, rulings };
        self.gather(loaded, request, &mut listed, &mut gathered);
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
            self.settle(&batch, loaded, &mut rulings, held).await?;
            given_back = Some(rulings);
        }
        if !charged.is_empty() {
            // Nobody renews what nobody holds.
            let slots = charged.iter_mut().filter(|check| check.holder != Holder::default());
            slots.for_each(|check| check.lease = lease);
            let names = self.names(loaded, request, met, rulings);
            let batch = Batch::new(verb, charge, now, charged);
            let batch = Batch { within, names: &names, ..batch };
            self.settle(&batch, loaded, rulings, held).await?;
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
        held: &mut HeldSlots,
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
        self.conclude(batch, loaded, rulings, held);
        Ok(())
    }
}

impl<S, C> std::fmt::Debug for Engine<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("rules_version", &self.loaded.load().snapshot().version())
            .field("failure_mode", &self.failure_mode)
            .finish_non_exhaustive()
    }
}

/// Counts decisions in the tallies of their limits.
fn count(verb: Verb, near: NearLimit, loaded: &Loaded, rulings: &[Ruling]) {
    for ruling in rulings {
        if let Some(tally) = ruling.limit.and_then(|limit| loaded.tally(limit)) {
            tally.count(verb, near, ruling.role, ruling.cost, &ruling.decision);
        }
    }
}

/// Notes the slots that checks have taken.
fn hold(checks: &[Check<'_>], rulings: &[Ruling], held: &mut HeldSlots) {
    for (check, ruling) in checks.iter().zip(rulings) {
        let cost = ruling.decision.taken;
        if let Some(limit) = ruling.limit
            && check.holder != Holder::default()
            && cost > 0
        {
            held.push(Held { limit, key: check.key, holder: check.holder, cost });
        }
    }
}

#[inline]
const fn check_size(request: &Request<'_>) -> Result<(), Undecided> {
    let descriptors = request.descriptors.len();
    if descriptors > DESCRIPTORS_MAX {
        return Err(Undecided::TooManyDescriptors { descriptors });
    }
    Ok(())
}
