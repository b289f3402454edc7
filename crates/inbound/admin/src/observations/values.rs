//! Hits by value of the request, for rules that ask for it.
//!
//! A rule with `detailed_metric` or `value_to_metric` has a metric for each value that callers send. There is a maximum
//! of such series; further values are summed in one series for each limit, so that totals stay right and memory stays
//! bounded.

use std::fmt::{self, Write};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use tidegate_engine::{
    Decision, NearLimit, OTHERS, Request, Role, Ruling, Tally, TallyCell, Verb, Verdict,
};

use super::shards::Shards;

/// The most bytes of a path that are kept.
const PATH_BYTES_MAX: usize = 512;
/// The most series of sums; further limits have no series at all. Only rules that show values have one, and those are
/// written by hand.
const OTHERS_MAX: usize = 10_000;

/// Hits of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) labels: SeriesLabels,
    pub(crate) tally: Tally,
}

/// The names of a series; ordered as they are listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeriesLabels {
    pub(crate) domain: String,
    pub(crate) path: String,
    pub(crate) limit: String,
    /// Whether its rule has other limits.
    pub(crate) one_of_several: bool,
}

/// Hits by limit and path.
#[derive(Debug)]
pub(super) struct Values {
    series_max: usize,
    near: NearLimit,
    hashes: RandomState,
    shards: Shards<HashTable<SeriesCell>>,
    kept: AtomicUsize,
    kept_others: AtomicUsize,
    beyond: AtomicU64,
}

/// A series that is counted.
#[derive(Debug)]
struct SeriesCell {
    hash: u64,
    labels: SeriesLabels,
    tally: TallyCell,
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
        let beyond = self.note(request, verdict, |tally, ruling| {
            tally.count(verb, self.near, ruling.role, ruling.cost, &ruling.decision);
        });
        self.beyond.fetch_add(beyond, Ordering::Relaxed);
    }

    /// Counts the hits of a request that was admitted and then turned away as refused.
    pub(super) fn observe_turned_away(&self, request: &Request<'_>, verdict: &Verdict) {
        self.note(request, verdict, |tally, ruling| {
            let Ruling { role, cost, decision, .. } = ruling;
            // Which of several quotas had admitted it is not known here.
            if *role == Role::Required && !decision.is_admitted() {
                // The verdict shows the charge as refunded; the count was made before that.
                let remaining = decision.remaining.saturating_sub(*cost);
                tally.turn_away(self.near, *cost, &Decision { remaining, ..*decision });
            }
        });
    }

    /// Calls `note` with the counts of every ruling whose rule shows values. Returns how many hits have no series of
    /// their own.
    fn note(
        &self,
        request: &Request<'_>,
        verdict: &Verdict,
        note: impl Fn(&TallyCell, &Ruling),
    ) -> u64 {
        let mut beyond = 0_u64;
        for ruling in verdict.rulings() {
            let (Some(rule), Some(limit)) = (verdict.rule(ruling), verdict.limit(ruling)) else {
                continue;
            };
            let descriptor = super::descriptor_of(request, ruling);
            let Some(descriptor) = descriptor.filter(|_| rule.shows_values()) else { continue };
            if descriptor.refund {
                continue;
            }
            // The path is hashed while it is written; it becomes text only for a new series.
            let mut hashed = HashedText(self.hashes.build_hasher());
            hashed.0.write_u64(limit.identity);
            let _ = rule.write_metric_path(descriptor.entries, &mut hashed);
            let labels = |path: String| SeriesLabels {
                domain: rule.domain().to_owned(),
                path,
                limit: super::limit_label(verdict, ruling),
                one_of_several: rule.limits().len() > 1,
            };
            let path = || {
                let mut path = CappedText::default();
                let _ = rule.write_metric_path(descriptor.entries, &mut path);
                path.0
            };
            let hash = hashed.0.finish();
            let note = |tally: &TallyCell| note(tally, ruling);
            let counted = self.count(hash, &self.kept, self.series_max, note, || labels(path()));
            if !counted {
                beyond = beyond.saturating_add(ruling.cost);
                let mut hasher = self.hashes.build_hasher();
                hasher.write_u64(limit.identity);
                let others = || labels(OTHERS.to_owned());
                self.count(hasher.finish(), &self.kept_others, OTHERS_MAX, note, others);
            }
        }
        beyond
    }

    /// Counts in the series of this hash; false if it would be one too many.
    fn count(
        &self,
        hash: u64,
        kept: &AtomicUsize,
        kept_max: usize,
        note: impl Fn(&TallyCell),
        labels: impl FnOnce() -> SeriesLabels,
    ) -> bool {
        let mut counted = true;
        self.shards.change(hash, |table| {
            match table.entry(hash, |known| known.hash == hash, |known| known.hash) {
                TableEntry::Occupied(known) => note(&known.get().tally),
                TableEntry::Vacant(slot) => {
                    if kept.fetch_add(1, Ordering::Relaxed) < kept_max {
                        let tally = TallyCell::default();
                        note(&tally);
                        slot.insert(SeriesCell { hash, labels: labels(), tally });
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
        let read =
            |cell: &SeriesCell| Series { labels: cell.labels.clone(), tally: cell.tally.read() };
        self.shards.each(|table| all.extend(table.iter().map(read)));
        all.sort_by(|one, other| one.labels.cmp(&other.labels));
        // Long paths that were cut may have become the same.
        all.dedup_by(|later, first| {
            let same = later.labels == first.labels;
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
