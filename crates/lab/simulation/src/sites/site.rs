//! One site: its callers, its rule, its fifteen days.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use tidegate_algorithms::{ManualClock, Retry};
use tidegate_engine::{
    Basis, Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Options, Request, Role, Snapshot,
    Source, Verb, WhenFull, compile,
};
use tidegate_insight::{
    BusiestCallers, DemandHit, DemandSample, DemandSummary, EvidenceMinimum, FindingKind,
    LimitEvidence, LimitName, LimitTerms, SpanCounts, dominating_limit, judge,
};

use super::behaviour::{Behaviour, Caller, DAY, HOUR, MINUTE, PERIOD, SECOND, instant};
use crate::chance::Chance;
use crate::replay::hash_entries;

/// The traffic of a site.
const DAYS: u64 = 15;
/// A Monday in 2026.
const START: u64 = 1_791_763_200 * SECOND;

/// A site with one fault or none.
#[derive(Clone, Debug)]
pub struct PlantedSite {
    kind: Option<FindingKind>,
    seed: u64,
}

/// What was found on a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteResult {
    /// The kinds that were found, of all limits.
    pub found: Vec<FindingKind>,
    /// Callers, and those that a suggested limit refuses in the next week; of sites that are too strict.
    pub suggested: (u64, u64),
    /// What the busiest caller would use of a minute without a limit, and the suggested limit; of sites that are too
    /// strict.
    pub headroom: (u64, u64),
    /// Refusals without and with a suggested burst; of sites with bursts.
    pub bursts: (u64, u64),
}

/// The callers of a site and its rule.
struct SitePlan {
    behaviours: Vec<Behaviour>,
    rules: String,
    mode_days: Option<u64>,
    budget_bytes: usize,
    refund_percent: u64,
    /// Callers come with this value of the first key.
    kind_value: &'static str,
}

/// The traffic through one set of rules.
struct SiteRun {
    evidence: Vec<LimitEvidence>,
    refused_callers: u64,
    refusals: u64,
}

impl PlantedSite {
    /// A site with this fault, or a clean one.
    pub const fn new(kind: Option<FindingKind>, seed: u64) -> Self {
        PlantedSite { kind, seed }
    }

    /// Plays the traffic and judges it.
    pub fn run(&self) -> SiteResult {
        let plan = self.plan();
        let played = plan.play(&plan.rules, self.seed, START, DAYS);
        let minimum = EvidenceMinimum::default();
        let findings: Vec<_> =
            played.evidence.iter().flat_map(|evidence| judge(evidence, minimum)).collect();
        let mut result = SiteResult::default();
        for found in &findings {
            result.found.push(found.kind);
        }
        result.found.sort_unstable();
        result.found.dedup();
        let demand = played.evidence.first().and_then(|evidence| evidence.demand.as_ref());
        match (self.kind, demand) {
            (Some(FindingKind::TooStrict), Some(demand)) => {
                let quota = played.evidence.first().map_or(0, |evidence| evidence.terms.quota);
                let suggested = demand.relaxed(quota);
                let wanted = peaks_of(&plan.behaviours, self.seed).last().copied().unwrap_or(0);
                result.headroom = (wanted, suggested);
                let rules = limit_rules(&minute_limit(suggested));
                let next = plan.play(&rules, self.seed, START + DAYS * DAY, 7);
                let callers = u64::try_from(plan.behaviours.len()).unwrap_or(0);
                result.suggested = (callers, next.refused_callers);
            }
            (Some(FindingKind::Bursty), Some(demand)) => {
                let quota = played.evidence.first().map_or(1, |evidence| evidence.terms.quota);
                let rules = limit_rules(&format!(
                    "{{algorithm: token_bucket, unit: minute, requests_per_unit: {quota}, burst: {}}}",
                    demand.burst_needed.max(quota)
                ));
                let next = plan.play(&rules, self.seed, START, DAYS);
                result.bursts = (played.refusals, next.refusals);
            }
            _ => {}
        }
        result
    }

    fn plan(&self) -> SitePlan {
        let mut chance = Chance::new(self.seed ^ 0xA5A5);
        let callers = chance.between(110, 240);
        let pause = MINUTE / chance.between(10, 25);
        let behaviours = sessions(&mut chance, callers, pause, true);
        let peaks = peaks_of(&behaviours, self.seed);
        let highest = peaks.last().copied().unwrap_or(1);
        let fitting = highest * chance.between(110, 170) / 100;
        let site = SiteDemand { callers, peaks, highest, fitting };
        let mut plan = SitePlan {
            behaviours,
            rules: limit_rules(&minute_limit(fitting)),
            mode_days: None,
            budget_bytes: 16 << 20,
            refund_percent: 0,
            kind_value: "web",
        };
        match self.kind {
            None => plan.make_clean(&mut chance, fitting, highest),
            Some(kind) => plan.plant(kind, &mut chance, &site),
        }
        plan
    }
}

/// The demand of a site's usual callers.
struct SiteDemand {
    callers: u64,
    /// The highest use of a minute by each caller, sorted.
    peaks: Vec<u64>,
    highest: u64,
    /// A limit that fits.
    fitting: u64,
}

impl SiteDemand {
    /// A percentile of the peaks.
    fn at(&self, percent: u64) -> u64 {
        let index = self.peaks.len() * usize::try_from(percent).unwrap_or(50) / 100;
        self.peaks.get(index).copied().unwrap_or(1)
    }
}

impl SitePlan {
    /// Several ways to be clean: room to spare, a few refusals, bursts that fit, one impatient caller that fits.
    fn make_clean(&mut self, chance: &mut Chance, fitting: u64, highest: u64) {
        match chance.between(0, 3) {
            0 => self.rules = limit_rules(&minute_limit(highest * chance.between(105, 120) / 100)),
            1 => {
                let limit = format!(
                    "{{algorithm: sliding_window, unit: minute, requests_per_unit: {fitting}}}"
                );
                self.rules = limit_rules(&limit);
            }
            2 => {
                let limit = format!(
                    "{{algorithm: token_bucket, unit: minute, requests_per_unit: {fitting}, burst: {}}}",
                    fitting * 2
                );
                for _ in 0..chance.between(3, 12) {
                    let size = fitting * 12 / 10;
                    self.behaviours.push(Behaviour::Bursts { gap: 15 * HOUR, size });
                }
                self.rules = limit_rules(&limit);
            }
            _ => self.rules = limit_rules(&minute_limit(fitting)),
        }
    }

    /// Plants a fault that callers feel.
    fn plant(&mut self, kind: FindingKind, chance: &mut Chance, site: &SiteDemand) {
        match kind {
            FindingKind::TooStrict => {
                // Long sessions: the mean over ten windows is that of a session.
                let long = |one: &Behaviour| match *one {
                    Behaviour::Sessions { gap, pause, obedient, .. } => {
                        Behaviour::Sessions { gap: gap * 3, session: 40 * MINUTE, pause, obedient }
                    }
                    other => other,
                };
                self.behaviours = self.behaviours.iter().map(long).collect();
                let limit = site.at(chance.between(30, 70)) * 70 / 100;
                self.rules = limit_rules(&minute_limit(limit));
            }
            FindingKind::OneAbuser => {
                for _ in 0..chance.between(1, 2) {
                    let pause = MINUTE / (site.fitting * chance.between(3, 6));
                    self.behaviours.push(stubborn(12 * HOUR, 10 * MINUTE, pause));
                }
            }
            FindingKind::Bursty => {
                let limit = chance.between(10, 30);
                let bursty = site.callers * chance.between(20, 60) / 100;
                self.behaviours = quiet(chance, site.callers - bursty, limit);
                for _ in 0..bursty {
                    let size = limit * chance.between(20, 45) / 10;
                    self.behaviours.push(Behaviour::Bursts { gap: 20 * HOUR, size });
                }
                self.rules = limit_rules(&minute_limit(limit));
            }
            FindingKind::Boundary => {
                let limit = chance.between(20, 60);
                self.behaviours = quiet(chance, site.callers, limit);
                for _ in 0..chance.between(5, 30) {
                    let half = limit * chance.between(85, 98) / 100;
                    self.behaviours.push(Behaviour::Edges { gap: 12 * HOUR, half });
                }
                self.rules = limit_rules(&minute_limit(limit));
            }
            FindingKind::StubbornCallers => {
                let limit = chance.between(8, 20);
                self.behaviours = quiet(chance, site.callers, limit);
                for _ in 0..site.callers * chance.between(5, 20) / 100 + 4 {
                    let pause = MINUTE / (limit * chance.between(25, 50) / 10);
                    self.behaviours.push(stubborn(30 * HOUR, 25 * MINUTE, pause));
                }
                self.rules = limit_rules(&minute_limit(limit));
            }
            other => self.plant_in_rules(other, chance, site),
        }
    }

    /// Plants a fault that is in the rules, the store or the costs.
    fn plant_in_rules(&mut self, kind: FindingKind, chance: &mut Chance, site: &SiteDemand) {
        let fitting = minute_limit(site.fitting);
        match kind {
            FindingKind::NeverMatched => {
                self.rules += &format!(
                    "- key: kind\n  value: gone\n  descriptors:\n  - key: user\n    limits:\n    - {fitting}\n"
                );
            }
            FindingKind::Idle => {
                self.rules = limit_rules(&minute_limit(site.highest * chance.between(3, 12)));
            }
            FindingKind::AlwaysShadow => {
                let limit = site.at(chance.between(50, 85)) * 85 / 100;
                self.rules = limit_rules(&shadow_limit(limit));
                self.mode_days = Some(chance.between(15, 60));
            }
            FindingKind::Ready => {
                self.rules = limit_rules(&shadow_limit(site.fitting));
                self.mode_days = Some(chance.between(8, 30));
            }
            FindingKind::Dominated => {
                let larger = minute_limit(site.fitting * chance.between(1, 9));
                self.rules = limit_rules(&format!("{fitting}\n  - {larger}"));
            }
            FindingKind::SoftAlways => {
                let limit = site.at(50) * 45 / 100;
                self.rules = limit_rules(&format!(
                    "{{unit: minute, requests_per_unit: {limit}, soft: {{over: 900%, for: 1h}}}}"
                ));
            }
            FindingKind::StoreBound => {
                self.budget_bytes = 64 << 10;
                let visit = Behaviour::Bursts { gap: 40 * HOUR, size: 3 };
                self.behaviours = vec![visit; 4_000];
                // A long window, so that counters stay in use.
                self.rules = limit_rules("{unit: day, requests_per_unit: 5}");
            }
            FindingKind::Costless => self.refund_percent = chance.between(36, 70),
            FindingKind::TooStrict
            | FindingKind::OneAbuser
            | FindingKind::Bursty
            | FindingKind::Boundary
            | FindingKind::StubbornCallers => {}
        }
    }

    /// Plays days of traffic through rules.
    fn play(&self, rules: &str, seed: u64, start: u64, days: u64) -> SiteRun {
        let sources = [Source::new("rules.yaml", rules)];
        let snapshot = compile(&sources, &Options::default()).unwrap_or_default();
        let snapshot = Arc::new(snapshot);
        let clock = Arc::new(ManualClock::at(instant(start)));
        let config = MemoryConfig {
            budget_bytes: self.budget_bytes,
            when_full: WhenFull::Allow,
            seed: Some(seed),
        };
        let Ok(store) = MemoryStore::new(config) else {
            return SiteRun { evidence: Vec::new(), refused_callers: 0, refusals: 0 };
        };
        let engine = Engine::new(store, Arc::clone(&clock)).with_seed(seed);
        engine.install(Arc::clone(&snapshot));
        let mut chance = Chance::new(seed ^ start);
        let mut callers: Vec<Caller> = self
            .behaviours
            .iter()
            .map(|behaviour| Caller::new(*behaviour, chance.next()))
            .collect();
        let mut events: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        for (index, caller) in callers.iter_mut().enumerate() {
            events.push(Reverse((caller.first(start), index)));
        }
        let mut watch = SiteWatch::new(&snapshot, callers.len());
        let end = start + days * DAY;
        while let Some(Reverse((now, index))) = events.pop() {
            if now >= end {
                break;
            }
            clock.set(instant(now));
            let user = format!("user-{index}");
            let entries = [
                Entry { key: "kind", value: self.kind_value },
                Entry { key: "user", value: &user },
            ];
            let descriptors = [Descriptor::new(&entries)];
            let request = Request::new("site", &descriptors);
            let verdict = engine.check_now(&request);
            watch.count(&verdict, &entries, index, now, now + DAY >= end);
            if verdict.is_admitted()
                && chance.percent(self.refund_percent)
                && self.refund_percent > 0
            {
                engine.apply_now(Verb::Refund, &request);
                watch.refund(now + DAY >= end);
            }
            let retry = (!verdict.is_admitted()).then(|| verdict.retry());
            if let Some(caller) = callers.get_mut(index) {
                events.push(Reverse((caller.next(now, retry), index)));
            }
        }
        watch.evidence(&snapshot, days, self.mode_days)
    }
}

/// What is observed of each limit, as a server would.
struct SiteWatch {
    limits: Vec<(SpanCounts, SpanCounts, DemandSample)>,
    /// Refusals of each caller, of the first limit.
    refusals: Vec<u64>,
    hits: u64,
}

impl SiteWatch {
    fn new(snapshot: &Snapshot, callers: usize) -> Self {
        let of = |_| (SpanCounts::default(), SpanCounts::default(), DemandSample::new(PERIOD));
        SiteWatch {
            limits: snapshot.limits().iter().map(of).collect(),
            refusals: vec![0; callers],
            hits: 0,
        }
    }

    fn count(
        &mut self,
        verdict: &tidegate_engine::Verdict,
        entries: &[Entry<'_>],
        caller: usize,
        now: u64,
        recent: bool,
    ) {
        self.hits += 1;
        for ruling in verdict.rulings() {
            let Some(index) = ruling.limit.map(|limit| limit.index()) else { continue };
            let Some((last, whole, sample)) = self.limits.get_mut(index) else { continue };
            let (decision, cost) = (&ruling.decision, ruling.cost);
            let refused = !decision.is_admitted();
            for counts in [Some(whole), recent.then_some(last)].into_iter().flatten() {
                let used = decision.limit.saturating_sub(decision.remaining);
                counts.within += if refused { 0 } else { cost };
                counts.near += u64::from(!refused && used * 5 > decision.limit * 4);
                counts.soft += u64::from(decision.soft);
                counts.over += if refused { cost } else { 0 };
                counts.shadow += u64::from(refused && ruling.role == Role::Observed);
                counts.approximate += u64::from(ruling.basis != Basis::Exact);
            }
            let fingerprint = hash_entries(entries);
            sample.observe(&DemandHit { fingerprint, cost, refused }, instant(now));
            if let Some(count) = self.refusals.get_mut(caller).filter(|_| refused && index == 0) {
                *count += 1;
            }
        }
    }

    fn refund(&mut self, recent: bool) {
        for (last, whole, _) in &mut self.limits {
            whole.refunded += 1;
            last.refunded += u64::from(recent);
        }
    }

    fn evidence(mut self, snapshot: &Snapshot, days: u64, mode_days: Option<u64>) -> SiteRun {
        let refusals: u64 = self.refusals.iter().sum();
        let refused = self.refusals.iter().filter(|count| **count > 0).count();
        self.refusals.sort_unstable_by(|a, b| b.cmp(a));
        let busiest = BusiestCallers {
            refusals,
            first: self.refusals.first().copied().unwrap_or(0),
            three: self.refusals.iter().take(3).sum(),
        };
        let limits = snapshot.limits().iter().zip(self.limits);
        let evidence = limits.filter_map(|(limit, (recent, whole, sample))| {
            let rule = snapshot.rule(limit.rule)?;
            let terms = LimitTerms::of(rule, limit);
            Some(LimitEvidence {
                limit: LimitName::of(snapshot, rule, limit),
                recent: SpanCounts { seconds: DAY / SECOND, ..recent },
                whole: SpanCounts { seconds: days * DAY / SECOND, ..whole },
                domain_hits: self.hits,
                demand: Some(DemandSummary::of(&sample, &terms)),
                terms,
                busiest: (limit.id.index() == 0 && refusals > 0).then_some(busiest),
                mode_seconds: mode_days.map(|days| days * DAY / SECOND),
                overlap: dominating_limit(snapshot, rule, limit),
                ..LimitEvidence::default()
            })
        });
        let refused_callers = u64::try_from(refused).unwrap_or(u64::MAX);
        SiteRun { evidence: evidence.collect(), refused_callers, refusals }
    }
}

/// Sessions of a few minutes at rates around one request per `pause`.
fn sessions(chance: &mut Chance, callers: u64, pause: u64, obedient: bool) -> Vec<Behaviour> {
    let mut one = |_| {
        // The product of three is skewed, as rates of callers are.
        let skew: u64 = (0..3).map(|_| chance.between(75, 130)).product();
        let pause = pause * 1_000_000 / skew.max(1);
        let session = chance.between(2, 6) * MINUTE;
        Behaviour::Sessions { gap: 100 * HOUR, session, pause: pause.max(1), obedient }
    };
    (0..callers).map(&mut one).collect()
}

/// Callers that stay well below a limit.
fn quiet(chance: &mut Chance, callers: u64, limit: u64) -> Vec<Behaviour> {
    let mut one = |_| {
        let pause = MINUTE * 100 / (limit * chance.between(15, 30));
        Behaviour::Sessions { gap: 40 * HOUR, session: 6 * MINUTE, pause, obedient: true }
    };
    (0..callers).map(&mut one).collect()
}

const fn stubborn(gap: u64, session: u64, pause: u64) -> Behaviour {
    Behaviour::Sessions { gap, session, pause, obedient: false }
}

fn limit_rules(limit: &str) -> String {
    format!(
        "domain: site\ndescriptors:\n- key: kind\n  value: web\n  descriptors:\n  - key: user\n    limits:\n    - {}\n",
        limit.replace("\n  - ", "\n    - ")
    )
}

fn minute_limit(limit: u64) -> String {
    format!("{{unit: minute, requests_per_unit: {}}}", limit.max(1))
}

fn shadow_limit(limit: u64) -> String {
    format!("{{unit: minute, requests_per_unit: {}, mode: shadow}}", limit.max(1))
}

/// The highest use of a minute by each caller without a limit, sorted.
fn peaks_of(behaviours: &[Behaviour], seed: u64) -> Vec<u64> {
    let mut chance = Chance::new(seed ^ START);
    let mut peaks = Vec::new();
    for behaviour in behaviours {
        let mut caller = Caller::new(*behaviour, chance.next());
        let (mut now, mut minute, mut used, mut peak) = (caller.first(START), 0, 0, 0);
        while now < START + DAYS * DAY {
            if now / MINUTE != minute {
                (minute, used) = (now / MINUTE, 0);
            }
            used += 1;
            peak = peak.max(used);
            now = caller.next(now, None::<Retry>);
        }
        peaks.push(peak);
    }
    peaks.sort_unstable();
    peaks
}
