//! The production engine, and the simulation's own record of it: rules, switches, held permits, and
//! the history of every counter.

use std::sync::Arc;

use tidegate_engine::{
    Basis, Clock, Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, Nanos,
    Options, Percent, Permit, Request, Role, Source, Target, Tenure, Timestamp, Verb, WhenFull,
    compile,
};

use crate::chance::Chance;
use crate::checker::{
    BrokenPromise, ChargeCheck, Checks, DecisionCheck, KillSwitch, MemoryBudget, NeededRefusal,
    NeverFits, Outcome, PeekAgrees, Roles, SlotsInUse, StableEnforcement, SwitchReach,
};
use crate::history::History;
use crate::seen_verdict::SeenVerdict;
use crate::time::SECOND;
use crate::written_rules::{
    DOMAIN, DrawnRequest, ExpectedVerdict, Kind, LimitName, Subject, Switches, Terms, WrittenRules,
    draw_mode, draw_percent, limit_name,
};

/// The smallest budget that a store accepts.
const BUDGET_SMALL: usize = 64 * 1024;
const BUDGET_LARGE: usize = 4 * 1024 * 1024;

type SimulatedEngine = Engine<MemoryStore, Arc<ManualClock>>;

/// The simulated system.
#[derive(Debug)]
pub(crate) struct World {
    engine: Arc<SimulatedEngine>,
    clock: Arc<ManualClock>,
    pub(crate) rules: WrittenRules,
    switches: Switches,
    off: bool,
    /// The instants from which the clock stepped back.
    peaks: Vec<u64>,
    budget_bytes: usize,
    history: History,
    stable_enforcement: StableEnforcement,
    permits: Vec<HeldPermit>,
    permits_given: u64,
    pub(crate) checks: Checks,
    pub(crate) tally: Tally,
}

/// A permit that was not returned yet.
#[derive(Debug)]
struct HeldPermit {
    number: u64,
    permit: Permit<MemoryStore, Arc<ManualClock>>,
    /// The counters whose slots it holds, and their terms at that time.
    slots: Vec<(Subject, Terms)>,
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) on_shared_counters: u64,
    pub(crate) on_no_counter: u64,
}

/// A request's answer and the limits that should apply to it.
#[derive(Debug)]
pub(crate) struct AnsweredCall {
    pub(crate) seen: SeenVerdict,
    pub(crate) expected: Vec<ExpectedVerdict>,
}

impl World {
    /// A world with its first rules.
    pub(crate) fn draw(chance: &mut Chance, rules_max: usize) -> Result<Self, BrokenPromise> {
        let budget_bytes = if chance.one_in(2) { BUDGET_SMALL } else { BUDGET_LARGE };
        let when_full = *chance.pick(&[WhenFull::Approximate, WhenFull::Allow, WhenFull::Deny]);
        let config = MemoryConfig { budget_bytes, when_full, seed: Some(chance.next()) };
        let store = MemoryStore::new(config).map_err(|error| broken("a store", &error))?;
        let start = 1_700_000_000 * SECOND + chance.up_to(1 << 60);
        let clock = Arc::new(ManualClock::at(Timestamp::from_nanos(start)));
        let engine = Engine::new(store, Arc::clone(&clock)).with_seed(chance.next());
        let world = World {
            engine: Arc::new(engine),
            clock,
            rules: WrittenRules::draw(chance, rules_max),
            switches: Switches::new(),
            off: false,
            peaks: Vec::new(),
            budget_bytes,
            history: History::default(),
            stable_enforcement: StableEnforcement::default(),
            permits: Vec::new(),
            permits_given: 0,
            checks: Checks::default(),
            tally: Tally::default(),
        };
        world.install()?;
        Ok(world)
    }

    /// Nanoseconds since the epoch.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// Advances the clock.
    pub(crate) fn advance(&self, nanos: u64) {
        self.clock.advance(Nanos::new(nanos));
    }

    /// Sets the clock back.
    pub(crate) fn step_back(&mut self, nanos: u64) {
        self.peaks.push(self.now());
        self.clock.set(Timestamp::from_nanos(self.now().saturating_sub(nanos)));
    }

    /// Sends a request and checks its answer.
    pub(crate) fn ask(&mut self, asked: &DrawnRequest) -> Result<AnsweredCall, BrokenPromise> {
        let expected = self.rules.expect(asked, &self.switches);
        let before = self.peek(asked);
        let (seen, permit) = with_request(asked, |request| {
            let (verdict, permit) = self.engine.admit_now(request, Tenure::Held);
            (SeenVerdict::of(&verdict), permit)
        });
        let after = self.peek(asked);
        self.count(&seen);
        self.permits_given += 1;
        self.judge(&expected, &before, &seen, &after)?;
        if !permit.is_empty() {
            let number = self.permits_given;
            let held =
                expected.iter().filter(|one| matches!(one.terms.kind, Kind::Concurrency { .. }));
            let slots = held.map(|one| (one.subject.clone(), one.terms)).collect();
            self.permits.push(HeldPermit { number, permit, slots });
        }
        Ok(AnsweredCall { seen, expected })
    }

    /// What the engine would answer.
    pub(crate) fn peek(&self, asked: &DrawnRequest) -> SeenVerdict {
        with_request(asked, |request| SeenVerdict::of(&self.engine.apply_now(Verb::Peek, request)))
    }

    /// Returns some permits in random order.
    pub(crate) fn give_back(&mut self, chance: &mut Chance, share_percent: u64) {
        let (staying, leaving): (Vec<HeldPermit>, Vec<HeldPermit>) =
            std::mem::take(&mut self.permits)
                .into_iter()
                .partition(|_| !chance.percent(share_percent));
        self.permits = staying;
        let now = self.now();
        for out in leaving {
            drop(out.permit);
            for (subject, terms) in &out.slots {
                self.history.give_back(subject, out.number, *terms, now);
            }
        }
    }

    /// Loads the next version of the rules.
    pub(crate) fn reload(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        self.rules.change(chance);
        self.install()
    }

    /// Sets or removes a run-time switch.
    pub(crate) fn switch(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let limits: Vec<LimitName> =
            self.rules.all_limits().map(|(path, limit)| limit_name(path, limit)).collect();
        if limits.is_empty() {
            return Ok(());
        }
        let one = chance.pick(&limits).clone();
        let whole_rule = chance.one_in(2);
        let target = Target {
            domain: DOMAIN,
            path: &one.path,
            limit: (!whole_rule).then_some(one.name.as_str()),
        };
        let meant =
            |limit: &&LimitName| limit.path == one.path && (whole_rule || limit.name == one.name);
        let meant: Vec<&LimitName> = limits.iter().filter(meant).collect();
        let reached = if chance.one_in(2) {
            self.switches.retain(|limit, _| !meant.contains(&limit));
            self.engine.unset_switch(target)
        } else {
            let mode = draw_mode(chance).with_percent(Percent::new(draw_percent(chance)));
            for limit in &meant {
                self.switches.insert((*limit).clone(), mode);
            }
            self.engine.set_switch(target, mode)
        };
        let finding = SwitchReach { meant: meant.len() }.check(&reached);
        self.checks.note("a switch reaches its limits", finding)
    }

    /// Switches everything off, or on again.
    pub(crate) fn switch_off(&mut self, off: bool) {
        self.off = off;
        self.engine.switch_off(off);
    }

    pub(crate) const fn is_off(&self) -> bool {
        self.off
    }

    /// Sweeps every shard of the store.
    pub(crate) fn sweep(&self) {
        let store = self.engine.store();
        for shard in 0..store.shards() {
            store.sweep(shard, self.clock.now());
        }
    }

    /// Checks the promises that hold between requests.
    pub(crate) fn check_between(&mut self) -> Result<(), BrokenPromise> {
        let stats = self.engine.store().stats();
        self.tally.on_shared_counters = stats.shared;
        self.tally.on_no_counter = stats.unmetered;
        let budget = MemoryBudget { budget_bytes: self.budget_bytes };
        self.checks.note("memory stays within the budget", budget.check(stats.bytes))
    }

    fn install(&self) -> Result<(), BrokenPromise> {
        let source = Source::new("drawn.yaml", self.rules.to_string());
        let snapshot = compile(&[source], &Options::default())
            .map_err(|report| broken("drawn rules compile", &report))?;
        self.engine.install(snapshot);
        Ok(())
    }

    fn count(&mut self, seen: &SeenVerdict) {
        self.tally.requests += 1;
        if seen.admitted {
            self.tally.admitted += 1;
        } else {
            self.tally.refused += 1;
        }
    }

    fn judge(
        &mut self,
        expected: &[ExpectedVerdict],
        before: &SeenVerdict,
        seen: &SeenVerdict,
        after: &SeenVerdict,
    ) -> Result<(), BrokenPromise> {
        let checks = &mut self.checks;
        checks.note("every request is decided", DecisionCheck::check(seen))?;
        let kill_switch = KillSwitch { off: self.off };
        checks.note("the kill switch admits everything", kill_switch.check(seen))?;
        if self.off {
            return Ok(());
        }
        checks.note("rules meet whom they should, by mode", Roles::check(expected, seen))?;
        checks.note("an outcome follows from its rulings", Outcome::check(seen))?;
        for (one, ruling) in expected.iter().zip(&seen.rulings) {
            if (1..100).contains(&one.mode.enforce_percent()) {
                let finding = self.stable_enforcement.check(one, ruling.role);
                checks.note("a share of keys stays the same", finding)?;
            }
        }
        let exact = before.is_exact() && seen.is_exact() && after.is_exact();
        if exact && !is_under_two_plans(expected) {
            checks.note("a peek agrees with the check", PeekAgrees::check(before, seen))?;
            let charging = ChargeCheck { charge: self.rules.charge };
            let finding = charging.check(expected, before, seen, after);
            checks.note("charged once and in full, or not at all", finding)?;
        }
        self.judge_counters(expected, seen, after)
    }

    /// Checks each counter of the request.
    fn judge_counters(
        &mut self,
        expected: &[ExpectedVerdict],
        seen: &SeenVerdict,
        after: &SeenVerdict,
    ) -> Result<(), BrokenPromise> {
        let now = self.now();
        for (one, ruling) in expected.iter().zip(&seen.rulings) {
            let track = self.history.look(&one.subject, one.terms, now, &self.peaks);
            if ruling.basis != Basis::Exact {
                continue;
            }
            if ruling.taken > 0 {
                track.charge(now, ruling.taken, ruling.delay, ruling.soft);
                track.hold(self.permits_given, ruling.taken);
                self.checks.bound(track).map_err(|broken| about(&one.subject, broken))?;
            } else if !ruling.admitted {
                self.checks.note("never means too large", NeverFits::check(one, ruling))?;
                // An earlier charge of this request to the same counter counts too.
                let alone =
                    expected.iter().filter(|other| other.subject == one.subject).count() == 1;
                if alone && NeededRefusal::can_tell(track) {
                    let finding = NeededRefusal { now, cost: one.cost }.check(track);
                    let noted = self.checks.note("only what does not fit is refused", finding);
                    noted.map_err(|broken| about(&one.subject, broken))?;
                }
            }
        }
        for (one, ruling) in expected.iter().zip(&after.rulings) {
            let track = self.history.look(&one.subject, one.terms, now, &self.peaks);
            let (Kind::Concurrency { limit, .. }, None) = (one.terms.kind, one.terms.soft) else {
                continue;
            };
            if let Some(held) = track.exactly_held()
                && ruling.basis == Basis::Exact
            {
                let finding = SlotsInUse { limit }.check(held, ruling.remaining);
                let noted = self.checks.note("slots in use: admitted less given back", finding);
                noted.map_err(|broken| about(&one.subject, broken))?;
            }
        }
        Ok(())
    }
}

impl AnsweredCall {
    /// How long to wait, if the promised retry can be tested: each limit has its own counter, and
    /// only time decides.
    pub(crate) fn testable_wait(&self) -> Option<u64> {
        let tidegate_engine::Retry::After(wait) = self.seen.retry else { return None };
        let single = self.expected.len() == 1;
        let twins = self.expected.iter().enumerate().any(|(at, one)| {
            self.expected.iter().skip(at + 1).any(|other| other.subject == one.subject)
        });
        // An allowance of another limit may close meanwhile, and under `charge: always` a refusal
        // charges the others.
        let charged = self.seen.rulings.iter().any(|ruling| ruling.taken > 0);
        let enforced = |one: &usize| self.seen.rulings[*one].role != Role::Observed;
        let soft = (0..self.expected.len())
            .filter(enforced)
            .any(|at| self.expected[at].terms.soft.is_some());
        // Slots return when their permit is dropped, at an unknown time.
        let in_flight = |one: &usize| {
            matches!(self.expected[*one].terms.kind, Kind::Concurrency { .. })
                && !self.seen.rulings[*one].admitted
        };
        let slots = (0..self.expected.len()).filter(enforced).any(|at| in_flight(&at));
        let testable = self.seen.is_exact()
            && !slots
            && !twins
            && !charged
            && (single || !soft)
            && !self.seen.admitted;
        testable.then_some(wait.get())
    }
}

/// Whether two limits of a request share a counter. Each adapts it to its own numbers, so even a
/// peek changes it for the other.
fn is_under_two_plans(expected: &[ExpectedVerdict]) -> bool {
    expected.iter().any(|one| {
        let differs =
            |other: &ExpectedVerdict| other.subject == one.subject && other.terms != one.terms;
        expected.iter().any(differs)
    })
}

/// Calls `then` with the engine's form of the request.
fn with_request<R>(asked: &DrawnRequest, then: impl FnOnce(&Request<'_>) -> R) -> R {
    let entries: Vec<Vec<Entry<'_>>> = asked
        .descriptors
        .iter()
        .map(|(entries, _)| entries.iter().map(|(key, value)| Entry { key, value }).collect())
        .collect();
    let descriptors: Vec<Descriptor<'_>> = entries
        .iter()
        .zip(&asked.descriptors)
        .map(|(entries, (_, cost))| Descriptor { cost: *cost, ..Descriptor::new(entries) })
        .collect();
    then(&Request::new(DOMAIN, &descriptors).with_cost(asked.cost))
}

fn broken(promise: &'static str, detail: &impl ToString) -> BrokenPromise {
    BrokenPromise { promise, detail: detail.to_string() }
}

fn about(subject: &Subject, BrokenPromise { promise, detail }: BrokenPromise) -> BrokenPromise {
    BrokenPromise { promise, detail: format!("{detail}: {subject:?}") }
}
