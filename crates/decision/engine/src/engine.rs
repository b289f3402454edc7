//! One request in, one verdict out.
//!
//! The order of things: one snapshot of the rules for the whole request, the
//! kill switch, matching, one reading of the clock, all checks in one step at
//! the store, the verdict. Whatever goes wrong on the way, panics included, ends
//! in the failure mode. `here` and `waiting` take the steps, with a store of
//! this process and with one that has to be waited for; what both need is in
//! this file.

mod directly;
mod here;
mod switching;
mod waiting;

pub use switching::{Target, UnknownTarget};

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Holder, Nanos};
use tidegate_rules::{LimitId, OnStoreError, Rule, RuleLimit, Snapshot};
use tidegate_stores::{Fingerprinter, MemoryStore, Role, Verb};

use crate::clock::SystemClock;
use crate::failure_mode::{FailureMode, Undecided};
use crate::gather::{Checks, DESCRIPTORS_MAX, Gathered, Known, Listed, gather};
use crate::loaded::Loaded;
use crate::observer::Observer;
use crate::request::Request;
use crate::switch::Switches;
use crate::tally::{NearLimit, Tally};
use crate::verdict::{Met, Ruling, Rulings, Verdict};

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

    /// The rules in place, as they are used.
    pub(crate) fn loaded(&self) -> Guard<Arc<Loaded>> {
        self.loaded.load()
    }

    /// The store behind the engine.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The engine's clock.
    pub const fn clock(&self) -> &C {
        &self.clock
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

    #[inline]
    pub(crate) fn gather<'s>(
        &self,
        loaded: &'s Loaded,
        request: &Request<'s>,
        known: Option<Known<'_, 's>>,
        listed: &mut Listed<'_>,
        gathered: &mut Gathered<'s, '_>,
    ) {
        let holder = || self.next_holder();
        gather(loaded, &self.fingerprinter, request, known, holder, listed, gathered);
    }

    #[inline]
    fn next_holder(&self) -> Holder {
        // Zero is nobody.
        Holder(self.holders.fetch_add(1, Ordering::Relaxed).max(1))
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
            self.gather(&verdict.loaded, &request, None, &mut listed, &mut gathered);
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
        verdict.undecided = Some(Box::new(undecided));
    }

    /// Counts what was decided, if anybody wants to know.
    #[inline]
    fn count(&self, verb: Verb, loaded: &Loaded, rulings: &[Ruling]) {
        if let Some(near) = self.tallied {
            count(verb, near, loaded, rulings);
        }
    }

    /// Makes the verdict of a request that was admitted for later a refusal, because it may not
    /// wait for so long, counts it as one, and tells the observer; see [`Verdict::refuse_to_wait`].
    pub fn turn_away(&self, request: &Request<'_>, verdict: &mut Verdict, retry: Nanos) {
        let before = verdict.rulings.clone();
        verdict.refuse_to_wait(retry);
        if let Some(near) = self.tallied {
            let after = verdict.rulings.iter().map(|ruling| ruling.decision.is_admitted());
            let turned = before
                .iter()
                .zip(after)
                .filter(|(ruling, admitted)| ruling.decision.is_admitted() && !admitted);
            for (ruling, _) in turned {
                if let Some(tally) = ruling.limit.and_then(|limit| verdict.loaded.tally(limit)) {
                    tally.turn_away(near, ruling.cost, &ruling.decision);
                }
            }
        }
        if let Some(observer) = &self.observer {
            let told = AssertUnwindSafe(|| observer.observe_turned_away(request, verdict));
            let _ = catch_unwind(told);
        }
    }

    /// Descriptors that matched no rule, by domain. Nothing unless the engine is built
    /// [`with_tallies`](Engine::with_tallies). Domains without such descriptors are left out.
    pub fn for_each_unmatched(&self, mut each: impl FnMut(&str, u64)) {
        for (domain, count) in self.loaded.load().unmatched().read() {
            each(domain, count);
        }
    }

    #[inline]
    fn tell(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict) {
        if verdict.met.contains(&None) {
            verdict.loaded.unmatched().count(verb, request, &verdict.met);
        }
        if let Some(observer) = &self.observer {
            // An observer that panics changes no verdict.
            let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(verb, request, verdict)));
        }
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

#[inline]
const fn check_size(request: &Request<'_>) -> Result<(), Undecided> {
    let descriptors = request.descriptors.len();
    if descriptors > DESCRIPTORS_MAX {
        return Err(Undecided::TooManyDescriptors { descriptors });
    }
    Ok(())
}
