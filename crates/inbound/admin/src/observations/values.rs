//! Hits by value of the request, for rules that ask for it.
//!
//! A rule with `detailed_metric` or `value_to_metric` has a metric for each value that callers send. There is a maximum
//! of such series; further values are summed in one series for each limit, so that totals stay right and memory stays
//! bounded.

use std::fmt::{self, Write};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use tidegate_engine::{
    Decision, Entry, NearLimit, OTHERS, Request, Role, Ruling, Tally, TallyCell, Verb, Verdict,
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
    /// Whether limits that come with requests are counted, by their descriptors.
    overrides: bool,
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
    pub(super) fn new(series_max: usize, near_millionths: u32, overrides: bool) -> Self {
        Values {
            series_max,
            overrides,
            near: NearLimit::from_millionths(near_millionths),
            hashes: RandomState::default(),
            shards: Shards::new(HashTable::new),
            kept: AtomicUsize::new(0),
            kept_others: AtomicUsize::new(0),
            beyond: AtomicU64::new(0),
        }
    }

    /// Whether limits that come with requests are counted.
    pub(super) const fn counts_overrides(&self) -> bool {
        self.overrides
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
            let descriptor = super::descriptor_of(request, ruling).filter(|each| !each.refund);
            let Some(descriptor) = descriptor else { continue };
            let entries = descriptor.entries;
            let note = |tally: &TallyCell| note(tally, ruling);
            let has_series = match (verdict.rule(ruling), verdict.limit(ruling)) {
                (Some(rule), Some(limit)) if rule.shows_values() => {
                    let labels = |path: String| SeriesLabels {
                        domain: rule.domain().to_owned(),
                        path,
                        limit: super::limit_label(verdict, ruling),
                        one_of_several: rule.limits().len() > 1,
                    };
                    let write = |mut out: &mut dyn Write| rule.write_metric_path(entries, &mut out);
                    self.note_in_series(limit.identity, labels, write, note)
                }
                (Some(_), Some(_)) => true,
                _ if !self.overrides => true,
                // A limit that came with the request: under the name of its descriptor.
                _ => {
                    let labels = |path: String| SeriesLabels {
                        domain: request.domain.to_owned(),
                        path,
                        limit: String::new(),
                        one_of_several: false,
                    };
                    let write = |out: &mut dyn Write| write_path(entries, out);
                    self.note_in_series(request.domain, labels, write, note)
                }
            };
            if !has_series {
                beyond = beyond.saturating_add(ruling.cost);
            }
        }
        beyond
    }

    /// Counts a hit in the series of a path of this group; false if it is one too many, and the hit was counted in the
    /// series of all others of the group. The path is hashed while it is written; it becomes text only for a new series.
    fn note_in_series(
        &self,
        group: impl Hash,
        labels: impl Fn(String) -> SeriesLabels,
        write: impl Fn(&mut dyn Write) -> fmt::Result,
        note: impl Fn(&TallyCell),
    ) -> bool {
        let mut hashed = HashedText(self.hashes.build_hasher());
        group.hash(&mut hashed.0);
        let of_others = hashed.0.clone().finish();
        let _ = write(&mut hashed);
        let path = || {
            let mut path = CappedText::default();
            let _ = write(&mut path);
            path.0
        };
        let of_path = hashed.0.finish();
        let counted = self.count(of_path, &self.kept, self.series_max, &note, || labels(path()));
        if !counted {
            let others = || labels(OTHERS.to_owned());
            self.count(of_others, &self.kept_others, OTHERS_MAX, note, others);
        }
        counted
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

/// Writes the entries of a descriptor as a path, with the values that there are.
fn write_path(entries: &[Entry<'_>], out: &mut dyn Write) -> fmt::Result {
    for (at, entry) in entries.iter().enumerate() {
        let dot = if at > 0 { "." } else { "" };
        let underscore = if entry.value.is_empty() { "" } else { "_" };
        write!(out, "{dot}{}{underscore}{}", entry.key, entry.value)?;
    }
    Ok(())
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
