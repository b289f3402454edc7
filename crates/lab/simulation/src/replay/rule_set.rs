//! One set of rules in virtual time, with what its limits did.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fmt::Write;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use foldhash::quality::FixedState;
use tidegate_algorithms::{ManualClock, Nanos, Retry, Tenure, Timestamp};
use tidegate_engine::{
    Basis, ConfigError, Engine, Entry, MemoryConfig, MemoryStore, Permit, Request, Role, Ruling,
    Snapshot, Verb, Verdict,
};
use tidegate_insight::{CALLERS_SAMPLED, DemandHit, DemandSample, RecordedVerb};

use super::exact_window::ExactWindow;
use super::pending::RequestTerms;

/// The counters of one set of rules may take this much memory: 27 million keys.
const STORE_BYTES: usize = 1 << 30;
/// The seed of fingerprints, so that the same input gives the same bytes.
const SEED: u64 = 7;
/// The callers whose demand is known, of all limits together: 10 MB, which the caches of a processor hold in part.
const DEMAND_CALLERS: usize = 1 << 18;
/// The most callers of one limit whose demand is known; of more, a sample.
const LIMIT_CALLERS_MAX: usize = 4_096;
/// The most refused callers of one limit that are counted apart.
const REFUSED_CALLERS_MAX: usize = 1_000_000;
/// The most refused callers that are kept by name.
pub(crate) const NAMED_CALLERS_MAX: usize = 100_000;
/// The longest name of a caller, in bytes.
const NAME_BYTES_MAX: usize = 200;

type ReplayEngine = Engine<MemoryStore, Arc<ManualClock>>;

/// One set of rules in virtual time.
pub(crate) struct RuleSet {
    engine: Arc<ReplayEngine>,
    clock: Arc<ManualClock>,
    snapshot: Arc<Snapshot>,
    /// By the index of the limit.
    pub(crate) limits: Vec<LimitTotals>,
    pub(crate) totals: SetTotals,
    /// The most refused callers, by the hash of limit and caller.
    pub(crate) refused: HashMap<u64, RefusedCaller, foldhash::fast::FixedState>,
    holds_slots: bool,
    held: BinaryHeap<Reverse<TimedSlot>>,
    /// Whether demand and window errors are followed.
    detail: Detail,
}

/// How much a set of rules follows beside its decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Only counts.
    Counts,
    /// Demand of callers, errors of sliding windows, refused callers by name.
    Everything,
}

/// Counts of one set of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetTotals {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) would_refuse: u64,
    pub(crate) soft: u64,
    /// Requests that met no limit.
    pub(crate) unlimited: u64,
    /// Requests that the store could not decide.
    pub(crate) undecided: u64,
}

/// Counts of one limit, in hits.
#[derive(Debug)]
pub(crate) struct LimitTotals {
    pub(crate) admitted: u64,
    pub(crate) near: u64,
    pub(crate) soft: u64,
    pub(crate) refused: u64,
    pub(crate) would_refuse: u64,
    pub(crate) refunded: u64,
    pub(crate) approximate: u64,
    pub(crate) refused_callers: HashSet<u64, foldhash::fast::FixedState>,
    pub(crate) demand: DemandSample,
    pub(crate) window: Option<ExactWindow>,
    per_caller: bool,
}

/// A refused caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedCaller {
    pub(crate) name: Box<str>,
    pub(crate) limit: usize,
    pub(crate) refused: u64,
    pub(crate) first: Timestamp,
}

/// What a set of rules answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetAnswer {
    pub(crate) admitted: bool,
    pub(crate) retry: Retry,
    /// The index of the descriptor that was refused.
    pub(crate) descriptor: usize,
    /// Whether the limit that refused has a counter for each caller.
    pub(crate) per_caller: bool,
    pub(crate) switched_or_undecided: bool,
}

/// A slot of a request in flight.
struct TimedSlot {
    until: Timestamp,
    number: u64,
    _permit: Permit<MemoryStore, Arc<ManualClock>>,
}

impl PartialEq for TimedSlot {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for TimedSlot {}

impl PartialOrd for TimedSlot {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TimedSlot {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl TimedSlot {
    const fn key(&self) -> (Timestamp, u64) {
        (self.until, self.number)
    }
}

impl RuleSet {
    pub(crate) fn new(snapshot: Arc<Snapshot>, detail: Detail) -> Result<Self, ConfigError> {
        let store = MemoryStore::new(MemoryConfig {
            budget_bytes: STORE_BYTES,
            seed: Some(SEED),
            ..MemoryConfig::default()
        })?;
        let clock = Arc::new(ManualClock::default());
        let engine = Engine::new(store, Arc::clone(&clock)).with_seed(SEED);
        engine.install(Arc::clone(&snapshot));
        let callers = match detail {
            Detail::Counts => 2,
            Detail::Everything => sample_size(snapshot.limits().len()),
        };
        let limits = snapshot.limits().iter().map(|limit| {
            let rule = snapshot.rule(limit.rule);
            let terms = rule.map(|rule| tidegate_insight::LimitTerms::of(rule, limit));
            LimitTotals {
                admitted: 0,
                near: 0,
                soft: 0,
                refused: 0,
                would_refuse: 0,
                refunded: 0,
                approximate: 0,
                refused_callers: HashSet::default(),
                demand: DemandSample::with_size(limit.limit.algorithm().period(), callers),
                window: Some(detail)
                    .filter(|detail| *detail == Detail::Everything)
                    .and_then(|_| ExactWindow::of(&limit.limit)),
                per_caller: terms.is_some_and(|terms| terms.per_caller),
            }
        });
        Ok(RuleSet {
            limits: limits.collect(),
            holds_slots: snapshot.limits().iter().any(|one| one.limit.algorithm().holds_slots()),
            engine: Arc::new(engine),
            clock,
            snapshot,
            totals: SetTotals::default(),
            refused: HashMap::default(),
            held: BinaryHeap::new(),
            detail,
        })
    }

    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Decides a request at its time.
    pub(crate) fn decide(&mut self, request: &Request<'_>, terms: &RequestTerms) -> SetAnswer {
        let now = terms.time;
        if self.holds_slots {
            self.free_slots(now);
        }
        self.clock.set(now);
        let verb = verb_of(terms.verb);
        let verdict = if self.holds_slots && verb == Verb::Check {
            let (verdict, permit) = self.engine.admit_now(request, Tenure::Held);
            let until = now.after(terms.duration.unwrap_or(Nanos::ZERO));
            let number = self.totals.requests;
            self.held.push(Reverse(TimedSlot { until, number, _permit: permit }));
            verdict
        } else {
            self.engine.apply_now(verb, request)
        };
        self.count(request, &verdict, verb, now)
    }

    /// Frees the slots of requests that have ended.
    fn free_slots(&mut self, now: Timestamp) {
        while self.held.peek().is_some_and(|Reverse(slot)| slot.until <= now) {
            if let Some(Reverse(slot)) = self.held.pop() {
                self.clock.set(slot.until);
            }
        }
    }

    fn count(
        &mut self,
        request: &Request<'_>,
        verdict: &Verdict,
        verb: Verb,
        now: Timestamp,
    ) -> SetAnswer {
        let totals = &mut self.totals;
        let admitted = verdict.is_admitted();
        totals.requests += 1;
        totals.refused += u64::from(!admitted);
        totals.would_refuse += u64::from(verdict.refused_in_shadow());
        totals.soft += u64::from(verdict.is_soft());
        totals.unlimited += u64::from(verdict.rulings().is_empty());
        totals.undecided += u64::from(verdict.undecided().is_some());
        for ruling in verdict.rulings() {
            self.count_ruling(request, verb, ruling, now);
        }
        let refused = verdict.rulings().iter().find(|ruling| {
            ruling.role != Role::Observed && !ruling.decision.is_admitted() && !admitted
        });
        let descriptor = refused.and_then(|ruling| usize::try_from(ruling.descriptor).ok());
        SetAnswer {
            admitted,
            retry: verdict.retry(),
            descriptor: descriptor.unwrap_or(0),
            per_caller: refused
                .and_then(|ruling| self.limits.get(ruling.limit?.index()))
                .is_some_and(|limit| limit.per_caller),
            switched_or_undecided: verdict.undecided().is_some() || verdict.is_switched_off(),
        }
    }

    fn count_ruling(&mut self, request: &Request<'_>, verb: Verb, ruling: &Ruling, now: Timestamp) {
        let Some(index) = ruling.limit.map(|limit| limit.index()) else { return };
        let Some(totals) = self.limits.get_mut(index) else { return };
        let (cost, decision) = (ruling.cost, &ruling.decision);
        let descriptor = usize::try_from(ruling.descriptor).unwrap_or(usize::MAX);
        let descriptor = request.descriptors.get(descriptor);
        if verb == Verb::Refund || descriptor.is_some_and(|descriptor| descriptor.refund) {
            totals.refunded += cost;
            return;
        }
        let admitted = decision.is_admitted();
        if admitted {
            totals.admitted += cost;
            totals.soft += if decision.soft { cost } else { 0 };
            let used = decision.limit.saturating_sub(decision.remaining);
            totals.near +=
                if used.saturating_mul(5) > decision.limit.saturating_mul(4) { cost } else { 0 };
        } else if ruling.role == Role::Observed {
            totals.would_refuse += cost;
        } else {
            totals.refused += cost;
        }
        totals.approximate += if ruling.basis == Basis::Exact { 0 } else { cost };
        let entries = descriptor.map_or(&[][..], |descriptor| descriptor.entries);
        if self.detail == Detail::Counts && admitted {
            return;
        }
        let caller = if totals.per_caller { hash_entries(entries) } else { 0 };
        if self.detail == Detail::Everything {
            totals
                .demand
                .observe(&DemandHit { fingerprint: caller, cost, refused: !admitted }, now);
            if let Some(window) = &mut totals.window {
                window.compare(caller, cost, admitted, now);
            }
        }
        if !admitted {
            if totals.refused_callers.len() < REFUSED_CALLERS_MAX {
                totals.refused_callers.insert(caller);
            }
            self.name_refused(index, caller, entries, cost, now);
        }
    }

    fn name_refused(
        &mut self,
        limit: usize,
        caller: u64,
        entries: &[Entry<'_>],
        cost: u64,
        now: Timestamp,
    ) {
        let key = caller.rotate_left(7) ^ u64::try_from(limit).unwrap_or(0);
        if let Some(known) = self.refused.get_mut(&key) {
            known.refused += cost;
        } else if self.refused.len() < NAMED_CALLERS_MAX {
            let name = name_of(entries).into();
            self.refused.insert(key, RefusedCaller { name, limit, refused: cost, first: now });
        }
    }
}

impl std::fmt::Debug for RuleSet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RuleSet").field("totals", &self.totals).finish_non_exhaustive()
    }
}

/// The callers that are sampled of each of so many limits.
fn sample_size(limits: usize) -> usize {
    (DEMAND_CALLERS / limits.max(1)).clamp(CALLERS_SAMPLED, LIMIT_CALLERS_MAX)
}

const fn verb_of(verb: RecordedVerb) -> Verb {
    match verb {
        RecordedVerb::Check => Verb::Check,
        RecordedVerb::Take => Verb::Take,
        RecordedVerb::Charge => Verb::Charge,
        RecordedVerb::Refund => Verb::Refund,
        RecordedVerb::Reset => Verb::Reset,
    }
}

/// The hash of a descriptor: equal in every run.
pub(crate) fn hash_entries(entries: &[Entry<'_>]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    for Entry { key, value } in entries {
        (key, value).hash(&mut hasher);
    }
    hasher.finish()
}

/// A descriptor as text, such as `user=7 path=/x`, cut if it is long.
pub(crate) fn name_of(entries: &[Entry<'_>]) -> String {
    let mut name = String::new();
    for Entry { key, value } in entries {
        let space = if name.is_empty() { "" } else { " " };
        let _ = write!(name, "{space}{}={}", key.escape_debug(), value.escape_debug());
        if name.len() > NAME_BYTES_MAX {
            name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
            name.push('…');
            break;
        }
    }
    name
}
