//! One request in, one verdict out.
//!
//! A request uses one snapshot of the rules and one reading of the clock. Three steps decide it: `prepare` matches its
//! descriptors and lists the checks, the store answers them all in one step, `conclude` makes the verdict. Any failure
//! in between, including a panic, is settled by the failure mode. `local` and `remote` differ only in how they ask the
//! store: on the calling thread, or by awaiting it.

mod fast_path;
mod local;
mod remote;
mod switches;

pub use local::LocalEngine;
pub use switches::{Target, UnknownTarget};

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

use crate::active_rules::ActiveRules;
use crate::clock::SystemClock;
use crate::counter_names::counter_names;
use crate::failure_mode::{FailureMode, Undecided};
use crate::observer::Observer;
use crate::permit::{HeldSlots, keep_taken, list_slots};
use crate::prepare::{Call, DESCRIPTORS_MAX, KnownMatch, PreparedChecks, VerdictParts};
use crate::request::Request;
use crate::run_time_modes::RunTimeModes;
use crate::tally::{NearLimit, Tally};
use crate::verdict::{MatchedRules, Ruling, Rulings, Verdict};

/// Run-time modes of removed limits are kept up to this many, 24 bytes each.
const RUN_TIME_MODES_MAX: usize = 100_000;

/// The rulings of refunds; few requests have any.
type RefundRulings = Option<Box<Rulings>>;

/// Decides requests by the rules of a snapshot, with counters in a store.
pub struct Engine<S = MemoryStore, C = SystemClock> {
    rules: ArcSwap<ActiveRules>,
    store: S,
    clock: C,
    pub(crate) fingerprinter: Fingerprinter,
    failure_mode: FailureMode,
    /// The policy of limits that requests carry.
    pub(crate) on_store_error: OnStoreError,
    observer: Option<Arc<dyn Observer>>,
    /// When a hit is near its limit; `None` unless limits are tallied.
    tallied: Option<NearLimit>,
    switched_off: AtomicBool,
    /// Modes set at run time, kept over a change of rules.
    run_time_modes: Mutex<RunTimeModes>,
    /// The next holder of slots.
    holders: AtomicU64,
    /// Whether batches carry the names of counters.
    named: bool,
    descriptors_max: usize,
}

impl<S, C: Clock> Engine<S, C> {
    /// An engine without rules: it admits everything until rules are installed.
    pub fn new(store: S, clock: C) -> Self {
        Engine {
            rules: ArcSwap::from_pointee(ActiveRules::default()),
            store,
            clock,
            fingerprinter: Fingerprinter::random(),
            failure_mode: FailureMode::default(),
            on_store_error: OnStoreError::default(),
            observer: None,
            tallied: None,
            switched_off: AtomicBool::new(false),
            run_time_modes: Mutex::default(),
            // A random start, so that processes that share a store do not use the same holder numbers. Among a hundred
            // processes with 10,000 requests in flight each, two ranges overlap with a probability of 10⁻¹¹.
            holders: AtomicU64::new(RandomState::new().hash_one(0_u64)),
            named: false,
            descriptors_max: DESCRIPTORS_MAX,
        }
    }

    /// The same engine with rules.
    #[must_use]
    pub fn with_rules(self, snapshot: Snapshot) -> Self {
        self.install(snapshot);
        self
    }

    /// The same engine with another failure mode.
    #[must_use]
    pub fn with_failure_mode(self, failure_mode: FailureMode) -> Self {
        Engine { failure_mode, ..self }
    }

    /// The same engine with another policy for limits that requests carry, while the shared store is unavailable.
    #[must_use]
    pub fn with_on_store_error(self, on_store_error: OnStoreError) -> Self {
        Engine { on_store_error, ..self }
    }

    /// The same engine with an observer of every verdict.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        Engine { observer: Some(observer), ..self }
    }

    /// The same engine, counting the admitted and refused hits of each limit.
    #[must_use]
    pub fn with_tallies(self, near: NearLimit) -> Self {
        let engine = Engine { tallied: Some(near), ..self };
        engine.install(Arc::clone(engine.rules.load().snapshot()));
        engine
    }

    /// The same engine with seeded fingerprints, so that runs repeat.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        let holders = AtomicU64::new(1);
        Engine { fingerprinter: Fingerprinter::seeded(seed), holders, ..self }
    }

    /// The same engine with fingerprints that are equal in every process, for a shared store.
    #[must_use]
    pub fn with_shared_fingerprints(self) -> Self {
        Engine { fingerprinter: Fingerprinter::shared(), ..self }
    }

    /// The same engine, passing counter names to the store, for a store that keeps counters under readable keys.
    #[must_use]
    pub fn with_names(self) -> Self {
        Engine { named: true, ..self }
    }

    /// The same engine for requests with up to this many descriptors.
    #[must_use]
    pub fn with_descriptors_max(self, descriptors_max: usize) -> Self {
        Engine { descriptors_max, ..self }
    }

    /// Replaces the rules. Requests in flight finish with the rules they started with; counters and run-time modes stay.
    pub fn install(&self, snapshot: impl Into<Arc<Snapshot>>) {
        let snapshot = snapshot.into();
        let mut set = self.run_time_modes.lock();
        if set.limits.len() > RUN_TIME_MODES_MAX {
            // Only above the maximum: a limit that is removed by mistake gets its mode back when it returns.
            let present: HashSet<u64> =
                snapshot.limits().iter().map(|limit| limit.identity).collect();
            set.limits.retain(|identity, _| present.contains(identity));
        }
        let mut rules = ActiveRules::new(snapshot, &set);
        if self.tallied.is_some() {
            rules = rules.with_tallies(&self.rules.load());
        }
        self.rules.store(Arc::new(rules));
    }

    /// The rules in use.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(self.rules.load().snapshot())
    }

    /// The version of the rules in use.
    pub fn rules_version(&self) -> u64 {
        self.rules.load().snapshot().version()
    }

    pub(crate) fn active_rules(&self) -> Guard<Arc<ActiveRules>> {
        self.rules.load()
    }

    /// The store behind the engine.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The engine's clock.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Calls `visit` with the tally of each limit; never unless the engine is built
    /// [`with_tallies`](Engine::with_tallies). Limits that share counters (those of a rule's plans) are visited once,
    /// as the first of them.
    pub fn for_each_tally(&self, mut visit: impl FnMut(&Snapshot, &Rule, &RuleLimit, Tally)) {
        let rules = self.rules.load();
        let mut visited = HashSet::new();
        for (limit, tally) in rules.tallied() {
            let Some(rule) = rules.snapshot().rule(limit.rule) else { continue };
            if visited.insert(limit.identity) {
                visit(rules.snapshot(), rule, limit, tally.read());
            }
        }
    }

    /// Prepares the checks of a request. Slots that they may take are listed before the store is asked, so that a
    /// permit frees them whatever happens next.
    #[inline]
    fn prepare<'s>(
        &self,
        rules: &'s ActiveRules,
        call: &Call<'_, 's>,
        known: Option<KnownMatch<'_, 's>>,
        verdict: &mut VerdictParts<'_>,
        slots: Option<&mut HeldSlots>,
        prepared: &mut PreparedChecks<'s, '_>,
    ) -> Result<(), Undecided> {
        let descriptors = call.request.descriptors.len();
        if descriptors > self.descriptors_max {
            return Err(Undecided::TooManyDescriptors { descriptors });
        }
        self.gather(rules, call, known, verdict, prepared);
        if prepared.is_empty() {
            return Ok(());
        }
        if let Some(slots) = slots {
            let checks = verdict.rulings.iter().zip(prepared.checks.iter());
            list_slots(slots, checks.map(|(ruling, check)| (ruling.limit, *check)));
        }
        if self.named {
            self.name_counters(rules, call.request, verdict, prepared);
        }
        Ok(())
    }

    #[cold]
    fn name_counters(
        &self,
        rules: &ActiveRules,
        request: &Request<'_>,
        verdict: &VerdictParts<'_>,
        prepared: &mut PreparedChecks<'_, '_>,
    ) {
        prepared.names = self.names(rules, request, verdict.matched, verdict.rulings);
        if let Some(refund) = &mut prepared.refund {
            refund.names = self.names(rules, request, verdict.matched, &refund.rulings);
        }
    }

    /// The names of the rulings' counters; none unless the store needs them.
    pub(crate) fn names(
        &self,
        rules: &ActiveRules,
        request: &Request<'_>,
        matched: &MatchedRules,
        rulings: &[Ruling],
    ) -> Vec<String> {
        if self.named { counter_names(rules, request, matched, rulings) } else { Vec::new() }
    }

    #[inline]
    pub(crate) fn next_holder(&self) -> Holder {
        // Zero means no holder.
        Holder(self.holders.fetch_add(1, Ordering::Relaxed).max(1))
    }

    /// Ends a request: counts its decisions, keeps the slots that were taken and settles the outcome, by the failure
    /// mode if the store did not answer; then calls the observer.
    #[inline]
    fn conclude(
        &self,
        verdict: &mut Verdict,
        call: &Call<'_, '_>,
        slots: Option<&mut HeldSlots>,
        answered: Result<RefundRulings, Box<Undecided>>,
    ) {
        match answered {
            Ok(refund_rulings) => {
                self.count(call.verb, &verdict.rules, &verdict.rulings);
                if let Some(slots) = slots.filter(|slots| !slots.is_empty()) {
                    keep_taken(slots, &verdict.rulings);
                }
                verdict.settle_outcome(refund_rulings);
            }
            Err(undecided) => self.apply_failure_mode(verdict, call, undecided),
        }
        self.observe(call, verdict);
    }

    /// Ends a request while everything is switched off.
    #[cold]
    fn conclude_switched_off(&self, verdict: &mut Verdict, call: &Call<'_, '_>) {
        verdict.switched_off = true;
        self.observe(call, verdict);
    }

    /// Settles a request that could not be decided.
    #[cold]
    fn apply_failure_mode(
        &self,
        verdict: &mut Verdict,
        call: &Call<'_, '_>,
        undecided: Box<Undecided>,
    ) {
        // Matching again may panic again: then the failure mode alone decides.
        let policies = catch_unwind(AssertUnwindSafe(|| {
            let all = call.request.descriptors;
            let descriptors = all.get(..self.descriptors_max).unwrap_or(all);
            let request = Request { descriptors, ..*call.request };
            let call = Call { request: &request, ..*call };
            let (_, rulings, _) = self.match_only(&verdict.rules, &call);
            let enforced = rulings.iter().filter(|ruling| ruling.role != Role::Observed);
            let policy = |limit: Option<LimitId>| {
                let limit = limit.and_then(|limit| verdict.rules.snapshot().limit(limit));
                limit.map_or(self.on_store_error, |limit| limit.on_store_error)
            };
            enforced.map(|ruling| policy(ruling.limit)).collect::<Vec<_>>()
        }));
        verdict.outcome = self.failure_mode.outcome(&policies.unwrap_or_default());
        verdict.rulings.clear();
        verdict.matched.clear();
        verdict.undecided = Some(undecided);
    }

    /// Counts decisions in the tallies of their limits, if limits are tallied.
    #[inline]
    fn count(&self, verb: Verb, rules: &ActiveRules, rulings: &[Ruling]) {
        let Some(near) = self.tallied else { return };
        for ruling in rulings {
            if let Some(tally) = ruling.limit.and_then(|limit| rules.tally(limit)) {
                tally.count(verb, near, ruling.role, ruling.cost, &ruling.decision);
            }
        }
    }

    /// Turns the verdict of a request that was admitted for later into a refusal, because it may not wait that long.
    /// Counts the refusal and calls the observer; see [`Verdict::refuse_to_wait`].
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
                if let Some(tally) = ruling.limit.and_then(|limit| verdict.rules.tally(limit)) {
                    tally.turn_away(near, ruling.cost, &ruling.decision);
                }
            }
        }
        if let Some(observer) = &self.observer {
            let call = AssertUnwindSafe(|| observer.observe_turned_away(request, verdict));
            let _ = catch_unwind(call);
        }
    }

    #[inline]
    fn observe(&self, call: &Call<'_, '_>, verdict: &Verdict) {
        if verdict.matched.contains(&None) {
            verdict.rules.unmatched().count(call.verb, call.request, &verdict.matched);
        }
        if let Some(observer) = &self.observer {
            // A panic of the observer changes no verdict.
            let Call { verb, request, .. } = *call;
            let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(verb, request, verdict)));
        }
    }
}

impl<S, C> std::fmt::Debug for Engine<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("rules_version", &self.rules.load().snapshot().version())
            .field("failure_mode", &self.failure_mode)
            .finish_non_exhaustive()
    }
}

/// Runs `ask` with its panics as errors. They are boxed: a smaller result costs a request fewer instructions.
#[inline]
fn contain<T>(ask: impl FnOnce() -> Result<T, Box<Undecided>>) -> Result<T, Box<Undecided>> {
    catch_unwind(AssertUnwindSafe(ask))
        .unwrap_or_else(|payload| Err(Box::new(Undecided::panicked(&*payload))))
}
