//! Hits by value of the request, for rules that ask for it.
//!
//! A rule with `detailed_metric` or `value_to_metric` wants its metric by the
//! values that callers send. They are kept up to a maximum of series; what
//! comes later is summed in one series for each limit, so that totals stay
//! right and memory stays bounded.

use std::fmt::{self, Write};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use tidegate_engine::{Decision, NearLimit, Outcome, Request, Role, Ruling, Tally, Verb, Verdict};

use super::shards::Shards;
use tidegate_engine::OTHERS;

/// The most bytes of a path that are kept.
const PATH_BYTES_MAX: usize = 512;
/// Series of sums beyond the maximum; a limit more has no series at all. Only
/// rules that show values have any, and those are written by hand.
const OTHERS_MAX: usize = 10_000;

/// Hits of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) domain: String,
    pub(crate) path: String,
    pub(crate) limit: String,
    /// Whether its rule has other limits.
    pub(crate) one_of_several: bool,
    pub(crate) tally: Tally,
}

impl Series {
    fn labels(&self) -> (&str, &str, &str) {
        (&self.domain, &self.path, &self.limit)
    }
}

/// Hits by limit and path.
#[derive(Debug)]
pub(super) struct Values {
    series_max: usize,
    near: NearLimit,
    hashes: RandomState,
    shards: Shards<HashTable<Kept>>,
    kept: AtomicUsize,
    kept_others: AtomicUsize,
    beyond: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    hash: u64,
    series: Series,
    /// The most that was read of each count: none of them falls.
    highest: Tally,
}

impl Kept {
    fn read(&mut self) -> Series {
        let (tally, highest) = (self.series.tally, &mut self.highest);
        highest.within = highest.within.max(tally.within);
        highest.near = highest.near.max(tally.near);
        highest.soft = highest.soft.max(tally.soft);
        let Tally { within, near, soft, .. } = *highest;
        Series { tally: Tally { within, near, soft, ..tally }, ..self.series.clone() }
    }
}

impl Values {
    pub(super) fn new(series_max: usize, near_millionths: u32) -> Self {
        Values {
            series_max,
            near: NearLimit::from_millionths(near_millionths),
            hashes: RandomState::default(),
            shards: Shards::new(HashTable::new),
            kept: AtomicUsize::new(0),
            kept_others: AtomicUsize::new(0),
            beyond: AtomicU64::new(0),
        }
    }

    /// Counts the hits of limits whose rule shows values.
    pub(super) fn observe(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict) {
        let near = self.near;
        let beyond = self.note(request, verdict, |tally, ruling| match verb {
            Verb::Take => add_taken(tally, near, ruling),
            _ => add(tally, near, ruling),
        });
        self.beyond.fetch_add(beyond, Ordering::Relaxed);
    }

    /// Takes the hits of a request that was let through and then turned away for refused.
    pub(super) fn observe_turned_away(&self, request: &Request<'_>, verdict: &Verdict) {
        let near = self.near;
        self.note(request, verdict, |tally, ruling| {
            // Of several quotas nobody knows here which one had let it through.
            if ruling.role == Role::Required && !ruling.decision.is_admitted() {
                turn_away(tally, near, ruling);
            }
        });
    }

    /// Notes something in the series of every ruling whose rule shows values; says how many hits
    /// have no series of their own.
    fn note(
        &self,
        request: &Request<'_>,
        verdict: &Verdict,
        note: impl Fn(&mut Tally, &Ruling),
    ) -> u64 {
        let mut beyond = 0_u64;
        for ruling in verdict.rulings() {
            let (Some(rule), Some(limit)) = (verdict.rule(ruling), verdict.limit(ruling)) else {
                continue;
            };
            let descriptor =
                usize::try_from(ruling.descriptor).ok().and_then(|at| request.descriptors.get(at));
            let Some(descriptor) = descriptor.filter(|_| rule.shows_values()) else { continue };
            if descriptor.refund {
                continue;
            }
            // The path is hashed as it is written; it becomes text only when it is new.
            let mut hashed = HashedText(self.hashes.build_hasher());
            hashed.0.write_u64(limit.identity);
            let _ = rule.write_metric_path(descriptor.entries, &mut hashed);
            let series = |path: String| Series {
                domain: rule.domain().to_owned(),
                path,
                limit: super::limit_label(verdict, ruling),
                one_of_several: rule.limits().len() > 1,
                tally: Tally::default(),
            };
            let path = || {
                let mut path = CappedText::default();
                let _ = rule.write_metric_path(descriptor.entries, &mut path);
                path.0
            };
            let hash = hashed.0.finish();
            let note = |tally: &mut Tally| note(tally, ruling);
            let counted = self.count(hash, &self.kept, self.series_max, note, || series(path()));
            if !counted {
                beyond = beyond.saturating_add(ruling.cost);
                let mut hasher = self.hashes.build_hasher();
                hasher.write_u64(limit.identity);
                let others = || series(OTHERS.to_owned());
                self.count(hasher.finish(), &self.kept_others, OTHERS_MAX, note, others);
            }
        }
        beyond
    }

    /// Counts in the series of this hash; false when it would be one too many.
    fn count(
        &self,
        hash: u64,
        kept: &AtomicUsize,
        kept_max: usize,
        note: impl Fn(&mut Tally),
        series: impl FnOnce() -> Series,
    ) -> bool {
        let mut counted = true;
        self.shards.change(hash, |table| {
            match table.entry(hash, |known| known.hash == hash, |known| known.hash) {
                Place::Occupied(mut known) => {
                    note(&mut known.get_mut().series.tally);
                }
                Place::Vacant(place) => {
                    if kept.fetch_add(1, Ordering::Relaxed) < kept_max {
                        let mut series = series();
                        note(&mut series.tally);
                        place.insert(Kept { hash, series, highest: Tally::default() });
                    } else {
                        kept.fetch_sub(1, Ordering::Relaxed);
                        counted = false;
                    }
                }
            }
        });
        counted
    }

    /// All series, by domain, path and limit.
    pub(super) fn read(&self) -> Vec<Series> {
        let mut all = Vec::new();
        self.shards.each(|table| all.extend(table.iter_mut().map(Kept::read)));
        all.sort_by(|one, other| one.labels().cmp(&other.labels()));
        // Long paths that were cut may have become the same.
        all.dedup_by(|later, first| {
            let same = later.labels() == first.labels();
            if same {
                first.tally = first.tally.plus(later.tally);
            }
            same
        });
        all
    }

    pub(super) fn beyond(&self) -> u64 {
        self.beyond.load(Ordering::Relaxed)
    }

    pub(super) fn missed(&self) -> u64 {
        self.shards.missed()
    }
}

/// Counts one decision as the engine does for its limits.
fn add(tally: &mut Tally, near: NearLimit, ruling: &Ruling) {
    let add = |count: &mut u64, hits: u64| *count = count.saturating_add(hits);
    let (decision, cost) = (&ruling.decision, ruling.cost);
    if decision.is_admitted() {
        let used = decision.limit.saturating_sub(decision.remaining);
        add(&mut tally.within, cost);
        add(&mut tally.near, near.part(decision.limit, used, cost));
        add(&mut tally.soft, if decision.soft { cost } else { 0 });
    } else {
        add(&mut tally.over, cost);
        add(&mut tally.shadow, if ruling.role == Role::Observed { cost } else { 0 });
    }
}

/// Counts what was there to take as let through, and the rest as refused.
fn add_taken(tally: &mut Tally, near: NearLimit, ruling: &Ruling) {
    let taken = ruling.decision.taken.min(ruling.cost);
    let decision = Decision { outcome: Outcome::Admitted, ..ruling.decision };
    add(tally, near, &Ruling { cost: taken, decision, ..*ruling });
    let decision = Decision { outcome: Outcome::Refused, ..ruling.decision };
    add(tally, near, &Ruling { cost: ruling.cost - taken, decision, ..*ruling });
}

/// Takes a decision that let hits through for a refusal, as the engine does for its limits.
fn turn_away(tally: &mut Tally, near: NearLimit, ruling: &Ruling) {
    let (decision, cost) = (&ruling.decision, ruling.cost);
    // What it was charged is told as given back.
    let used = decision.limit.saturating_sub(decision.remaining).saturating_add(cost);
    tally.within = tally.within.saturating_sub(cost);
    tally.near = tally.near.saturating_sub(near.part(decision.limit, used, cost));
    tally.soft = tally.soft.saturating_sub(if decision.soft { cost } else { 0 });
    tally.over = tally.over.saturating_add(cost);
}

/// Text that is only hashed.
struct HashedText<H>(H);

impl<H: Hasher> Write for HashedText<H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Text up to a maximum; the rest is dropped.
#[derive(Default)]
struct CappedText(String);

impl Write for CappedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = PATH_BYTES_MAX.saturating_sub(self.0.len());
        self.0.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
        Ok(())
    }
}
