//! Counts of verdicts for operators.
//!
//! An observer of the engine: the most refused limits and callers, hits by value for rules that ask for it, undecided
//! requests, requests for unknown domains. All of it is bounded whatever callers send, and an admitted request of rules
//! that show no values costs a few comparisons. The engine itself counts what each limit admits and refuses.

mod demand;
mod metrics;
mod refusals;
mod shards;
mod sketch;
mod unknown;
mod values;

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_engine::{
    Descriptor, FailureKind, Observer, Request, Rule, Ruling, StoreError, Timestamp, Undecided,
    Verb, Verdict,
};

use super::tail::{Tail, TailMode};
use demand::DemandSamples;
use refusals::Refusals;
use tidegate_insight::DemandSample;
use tidegate_macros::defaults;
use tidegate_words::words;
use unknown::UnknownDomains;
use values::Values;

pub use metrics::OBSERVATION_METRICS;
pub(super) use refusals::{RefusedKey, RefusingLimit, TopReading, TopRow, key_text, shortened};
pub(super) use values::Series;

const NANOS_PER_HOUR: u64 = 3_600_000_000_000;
/// The rule label of a limit that came with the request.
const OVERRIDE: &str = "(override)";

defaults! {
    /// How much is kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ObservationsConfig {
        /// How many of the most refused are shown, up to a thousand. Default: 20.
        pub top: usize = 20,
        /// The most series of rules whose metrics show values of requests; further values are summed. Default: 10,000,
        /// a few megabytes.
        pub detailed_series_max: usize = 10_000,
        /// The share of a limit from which its use counts as near the limit in those series, in millionths. Default:
        /// 800,000, as in the engine.
        pub near_millionths: u32 = 800_000,
        /// Which verdicts the tail shows to open pages. Default: refusals.
        pub tail: TailMode,
        /// Whether limits that come with requests have series too, by their descriptors, as in envoyproxy/ratelimit.
        /// Default: no.
        pub overrides: bool,
    }
}

words! {
    /// Why a request could not be decided.
    pub(super) enum Reason {
        StoreTimeout = "store_timeout",
        StoreUnavailable = "store_unavailable",
        Panicked = "panicked",
        TooManyDescriptors = "too_many_descriptors",
    }
}

impl Reason {
    const fn of(undecided: &Undecided) -> Self {
        match undecided {
            Undecided::Store(StoreError::Timeout { .. }) => Reason::StoreTimeout,
            Undecided::Store(StoreError::Upstream { kind: FailureKind::Timeout, .. }) => {
                Reason::StoreTimeout
            }
            Undecided::Store(StoreError::Unavailable { .. } | StoreError::Upstream { .. }) => {
                Reason::StoreUnavailable
            }
            Undecided::Panicked { .. } => Reason::Panicked,
            Undecided::TooManyDescriptors { .. } => Reason::TooManyDescriptors,
        }
    }

    /// Whether the store is to blame.
    pub(super) const fn is_store(self) -> bool {
        matches!(self, Reason::StoreTimeout | Reason::StoreUnavailable)
    }
}

/// Counts of verdicts. Give it to the engine as its observer, and to the debug port to show.
#[derive(Debug)]
pub struct Observations {
    refusals: Refusals,
    values: Values,
    unknown: UnknownDomains,
    undecided: [AtomicU64; Reason::ALL.len()],
    tail: Tail,
    demand: DemandSamples,
    hours: Mutex<RefusalHours>,
}

/// The hours of the most refused: counting begins again with each hour, and the one before is kept.
#[derive(Debug, Default)]
struct RefusalHours {
    /// When this hour's counting began.
    since: Option<Timestamp>,
    before: Option<(Timestamp, TopReading)>,
}

impl Observations {
    /// No counts yet.
    pub fn new(config: ObservationsConfig) -> Self {
        Observations {
            refusals: Refusals::new(config.top),
            values: Values::new(
                config.detailed_series_max,
                config.near_millionths,
                config.overrides,
            ),
            unknown: UnknownDomains::default(),
            undecided: Default::default(),
            tail: Tail::new(config.tail),
            demand: DemandSamples::new(),
            hours: Mutex::default(),
        }
    }

    /// Begins a second, and each hour the counts of the most refused. Called once a second.
    pub fn tick(&self, now: Timestamp) {
        self.tail.tick(now.as_millis());
        let mut hours = self.hours.lock();
        let hour = |at: Timestamp| at.as_nanos() / NANOS_PER_HOUR;
        match hours.since {
            Some(since) if hour(since) == hour(now) => {}
            Some(since) => {
                hours.before = Some((since, self.refusals.read()));
                self.refusals.clear();
                hours.since = Some(now);
            }
            None => hours.since = Some(now),
        }
    }

    /// The sampled callers of a limit, if it is sampled.
    pub(super) fn demand_of(&self, identity: u64) -> Option<DemandSample> {
        self.demand.read(identity)
    }

    /// The tail of verdicts.
    pub(super) const fn tail(&self) -> &Tail {
        &self.tail
    }

    /// The most refused limits and callers of this hour and the one before.
    pub(super) fn recent(&self) -> TopReading {
        let reading = self.refusals.read();
        match &self.hours.lock().before {
            Some((_, before)) => self.refusals.joined(reading, before),
            None => reading,
        }
    }

    /// When the counts of [`Observations::recent`] began.
    pub(super) fn recent_since(&self) -> Option<Timestamp> {
        let hours = self.hours.lock();
        hours.before.as_ref().map(|(since, _)| *since).or(hours.since)
    }

    /// Forgets all refusals.
    pub(super) fn clear_top(&self) {
        self.refusals.clear();
        self.hours.lock().before = None;
    }

    /// Hits by value.
    pub(super) fn values(&self) -> Vec<Series> {
        self.values.read()
    }

    /// How many hits by value have no series of their own.
    pub(super) fn hits_beyond_series(&self) -> u64 {
        self.values.beyond()
    }

    /// How many observations were lost because another thread held the lock.
    pub(super) fn missed(&self) -> u64 {
        [self.refusals.missed(), self.values.missed(), self.demand.missed()]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Unknown domains, each with the number of descriptors in requests for it.
    pub(super) fn unknown_domains(&self) -> Vec<(String, u64)> {
        self.unknown.read()
    }

    pub(super) fn undecided(&self, reason: Reason) -> u64 {
        self.undecided.get(reason as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Default for Observations {
    fn default() -> Self {
        Observations::new(ObservationsConfig::default())
    }
}

impl Observer for Observations {
    fn observe(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict) {
        if verdict.is_switched_off() {
            return;
        }
        if !matches!(verb, Verb::Peek | Verb::Refund | Verb::Reset) {
            self.tail.observe(request, verdict);
        }
        if let Some(undecided) = verdict.undecided() {
            if let Some(count) = self.undecided.get(Reason::of(undecided) as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        if !verdict.domain_is_known() {
            return self.unknown.count(request.domain, request.descriptors.len());
        }
        match verb {
            Verb::Check | Verb::Take | Verb::Charge => {}
            // These are neither admitted nor refused.
            Verb::Peek | Verb::Refund | Verb::Reset => return,
        }
        self.refusals.observe(request, verdict);
        self.demand.observe(request, verdict);
        if self.values.counts_overrides() || verdict.snapshot().shows_values() {
            self.values.observe(verb, request, verdict);
        }
    }

    fn observe_turned_away(&self, request: &Request<'_>, verdict: &Verdict) {
        self.tail.observe(request, verdict);
        self.refusals.observe_turned_away(request, verdict);
        if self.values.counts_overrides() || verdict.snapshot().shows_values() {
            self.values.observe_turned_away(request, verdict);
        }
    }
}

/// The descriptor that a ruling is about.
fn descriptor_of<'r>(request: &Request<'r>, ruling: &Ruling) -> Option<&'r Descriptor<'r>> {
    request.descriptors.get(usize::try_from(ruling.descriptor).ok()?)
}

/// The path of a ruling's rule.
pub(super) fn rule_label<'v>(verdict: &'v Verdict, ruling: &Ruling) -> &'v str {
    verdict.rule(ruling).map_or(OVERRIDE, Rule::path)
}

/// The label of a ruling's limit.
pub(super) fn limit_label(verdict: &Verdict, ruling: &Ruling) -> String {
    match (verdict.rule(ruling), verdict.limit(ruling)) {
        (Some(rule), Some(limit)) => verdict.snapshot().limit_name(rule, limit).into_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
