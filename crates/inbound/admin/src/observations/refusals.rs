//! The most refused: by limit, and by caller.

use std::fmt::Write;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::quality::RandomState;
use serde::Serialize;
use tidegate_engine::{Entry, Request, Role, Ruling, Verdict};

use super::shards::Shards;
use super::sketch::{Frequent, Sketch};

/// Counters for each row that is shown: more counters make smaller errors.
const COUNTERS_PER_ROW: usize = 16;
/// The most bytes of a caller's key that are kept, without the mark of a cut.
const KEY_BYTES_MAX: usize = 200;
/// The most rows: at a few hundred bytes for each counter they take some megabytes.
pub(super) const TOP_MAX: usize = 1_000;

/// The limit that refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RefusingLimit {
    pub(crate) domain: String,
    pub(crate) rule: String,
    pub(crate) limit: String,
    /// Whether it is in shadow, so that the request passed.
    pub(crate) shadow: bool,
}

/// A refused caller, and the limit that refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RefusedKey {
    #[serde(flatten)]
    pub(crate) by: RefusingLimit,
    /// The entries of the descriptor.
    pub(crate) key: String,
    /// The entries themselves, unless they are long.
    #[serde(skip)]
    pub(crate) entries: Option<Vec<(String, String)>>,
}

/// One row of the most refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TopRow<L> {
    /// Refusals; never too few.
    pub(crate) refusals: u64,
    /// The most by which they are too many.
    pub(crate) error: u64,
    #[serde(flatten)]
    pub(crate) label: L,
}

/// The most refused, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TopReading {
    /// All refusals since counting began.
    pub(crate) refusals: u64,
    /// Refusals that were lost because another thread held the lock.
    pub(crate) missed: u64,
    pub(crate) limits: Vec<TopRow<RefusingLimit>>,
    pub(crate) keys: Vec<TopRow<RefusedKey>>,
}

/// Counts refusals by limit and by caller.
#[derive(Debug)]
pub(super) struct Refusals {
    top: usize,
    hashes: RandomState,
    limits: Shards<Sketch<RefusingLimit>>,
    keys: Shards<Sketch<RefusedKey>>,
}

impl Refusals {
    pub(super) fn new(top: usize) -> Self {
        let top = top.clamp(1, TOP_MAX);
        let counters = Shards::<()>::share_of(top * COUNTERS_PER_ROW);
        Refusals {
            top,
            hashes: RandomState::default(),
            limits: Shards::new(|| Sketch::new(counters)),
            keys: Shards::new(|| Sketch::new(counters)),
        }
    }

    /// Counts the refusals of a verdict.
    pub(super) fn observe(&self, request: &Request<'_>, verdict: &Verdict) {
        if verdict.is_admitted() && !verdict.refused_in_shadow() {
            return;
        }
        for ruling in verdict.rulings() {
            let shadow = ruling.role == Role::Observed;
            // One of several quotas may refuse while the request passes.
            let counts = shadow || !verdict.is_admitted();
            if counts && !ruling.decision.is_admitted() {
                self.refused(request, verdict, ruling, shadow);
            }
        }
    }

    /// Counts the refusals of a request that was admitted before. Those in shadow were counted then.
    pub(super) fn observe_turned_away(&self, request: &Request<'_>, verdict: &Verdict) {
        for ruling in verdict.rulings() {
            if ruling.role != Role::Observed && !ruling.decision.is_admitted() {
                self.refused(request, verdict, ruling, false);
            }
        }
    }

    fn refused(&self, request: &Request<'_>, verdict: &Verdict, ruling: &Ruling, shadow: bool) {
        let descriptor = super::descriptor_of(request, ruling);
        let entries = descriptor.map_or(&[][..], |descriptor| descriptor.entries);
        let identity = verdict.limit(ruling).map(|limit| limit.identity);
        let by = || RefusingLimit {
            domain: shortened(request.domain),
            rule: super::rule_label(verdict, ruling).to_owned(),
            limit: super::limit_label(verdict, ruling),
            shadow,
        };
        let mut hasher = self.hashes.build_hasher();
        (request.domain, identity, shadow).hash(&mut hasher);
        let hash = hasher.finish();
        self.limits.change(hash, |sketch| sketch.count(hash, by));
        for entry in entries {
            (entry.key, entry.value).hash(&mut hasher);
        }
        let hash = hasher.finish();
        self.keys.change(hash, |sketch| {
            sketch.count(hash, || RefusedKey {
                by: by(),
                key: key_text(entries),
                entries: whole_entries(entries),
            });
        });
    }

    pub(super) fn read(&self) -> TopReading {
        let mut refusals = 0;
        self.keys.each(|sketch| refusals += sketch.observed());
        TopReading {
            refusals,
            missed: self.missed(),
            limits: rows(&self.limits, self.top),
            keys: rows(&self.keys, self.top),
        }
    }

    /// A reading with the counts of an earlier one.
    pub(super) fn joined(&self, mut now: TopReading, before: &TopReading) -> TopReading {
        now.refusals = now.refusals.saturating_add(before.refusals);
        join(&mut now.limits, &before.limits, self.top);
        join(&mut now.keys, &before.keys, self.top);
        now
    }

    pub(super) fn clear(&self) {
        self.limits.each(Sketch::clear);
        self.keys.each(Sketch::clear);
    }

    pub(super) fn missed(&self) -> u64 {
        self.limits.missed().saturating_add(self.keys.missed())
    }
}

fn rows<L: Clone>(shards: &Shards<Sketch<L>>, top: usize) -> Vec<TopRow<L>> {
    let mut rows = Vec::new();
    // A hash is always counted in the same shard, so no two rows are the same.
    shards.each(|sketch| {
        rows.extend(sketch.rows().map(|Frequent { label, count, error }| TopRow {
            refusals: count,
            error,
            label: label.clone(),
        }));
    });
    rows.sort_by_key(|row| std::cmp::Reverse(row.refusals));
    rows.truncate(top);
    rows
}

/// Adds the counts of rows with the same label.
fn join<L: Clone + PartialEq>(rows: &mut Vec<TopRow<L>>, before: &[TopRow<L>], top: usize) {
    for row in before {
        match rows.iter_mut().find(|known| known.label == row.label) {
            Some(known) => {
                known.refusals = known.refusals.saturating_add(row.refusals);
                known.error = known.error.saturating_add(row.error);
            }
            None => rows.push(row.clone()),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.refusals));
    rows.truncate(top);
}

/// The entries, if they are short enough to be kept whole.
fn whole_entries(entries: &[Entry<'_>]) -> Option<Vec<(String, String)>> {
    let bytes: usize = entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
    let pair = |entry: &Entry<'_>| (entry.key.to_owned(), entry.value.to_owned());
    (bytes <= KEY_BYTES_MAX).then(|| entries.iter().map(pair).collect())
}

/// The key of a caller as text, such as `user="7" path="/x"`. Unprintable characters are escaped; a long text is cut.
pub(crate) fn key_text(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    for (at, entry) in entries.iter().enumerate() {
        let space = if at > 0 { " " } else { "" };
        let Entry { key, value } = entry;
        let (key, value) = (start_of(key), start_of(value));
        let _ = write!(text, "{space}{}={value:?}", key.escape_debug());
        if text.len() > KEY_BYTES_MAX {
            break;
        }
    }
    shortened(&text)
}

/// The part that can be shown: the rest of a long text is not even escaped.
fn start_of(text: &str) -> &str {
    text.get(..text.floor_char_boundary(KEY_BYTES_MAX)).unwrap_or_default()
}

pub(crate) fn shortened(text: &str) -> String {
    let start = start_of(text);
    let mark = if start.len() < text.len() { "…" } else { "" };
    format!("{start}{mark}")
}
