//! A cache of the fields of admitted requests.
//!
//! Clients of a rule that have used little of it get the same fields, and so does a client that asks seldom. The same
//! figures of the same limits make the same fields, so each thread caches the last ones with the figures that they
//! were made of. On a hit nothing is written, and no name of a limit is looked up.
//!
//! Inserting costs more than writing once, so only fields that are needed a second time are inserted. Where every
//! response differs, the cache stays as it is. Refusals are not cached.

use std::cell::Cell;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use tidegate_engine::{LimitId, Nanos, Role, Ruling, Verdict};

use super::HeaderSet;

/// Entries per thread. With the default set and names of usual length they take 200 kB.
const ENTRIES: usize = 256;

thread_local! {
    static CACHE: [CacheEntry; ENTRIES] = const { [const { CacheEntry::new() }; ENTRIES] };
}

/// One entry of the cache.
struct CacheEntry {
    fields: Cell<Option<Arc<CachedFields>>>,
    /// The hash of the last figures that missed.
    missed: Cell<u64>,
}

/// The fields of a response, and what they were made of.
#[derive(Debug)]
pub(super) struct CachedFields {
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    /// The hash of the figures: compared first.
    hash: u64,
    set: HeaderSet,
    /// The version of the rules: it determines the names of limits.
    version: u64,
    figures: SmallVec<[Figures; 2]>,
}

/// All that a response to an admitted request says of a limit, except its name.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    limit: Option<LimitId>,
    role: Role,
    /// The version of the rules does not determine the length of a month.
    period: Nanos,
    most: u64,
    remaining: u64,
    reset_seconds: u64,
}

/// What the cache has for a verdict.
pub(super) enum CacheLookup {
    /// The fields.
    Hit(Arc<CachedFields>),
    /// Nothing.
    Miss {
        /// Whether the same figures missed before: then they are worth inserting.
        again: bool,
    },
}

impl CacheEntry {
    const fn new() -> Self {
        CacheEntry { fields: Cell::new(None), missed: Cell::new(0) }
    }

    fn look_up(&self, hash: u64, set: HeaderSet, verdict: &Verdict) -> CacheLookup {
        let fields = self.fields.take();
        let known = fields.as_ref().filter(|known| known.hash == hash && known.is_of(set, verdict));
        let found = match known {
            Some(fields) => CacheLookup::Hit(Arc::clone(fields)),
            None => CacheLookup::Miss { again: self.missed.replace(hash) == hash },
        };
        self.fields.set(fields);
        found
    }
}

impl CachedFields {
    /// Looks up the fields of an admitted request.
    pub(super) fn look_up(set: HeaderSet, verdict: &Verdict) -> CacheLookup {
        let hash = hash(verdict);
        let look_up = |cache: &[CacheEntry; ENTRIES]| {
            cache.get(index(hash)).map(|entry| entry.look_up(hash, set, verdict))
        };
        // A thread that is ending has no cache any more.
        let found = CACHE.try_with(look_up).ok().flatten();
        found.unwrap_or(CacheLookup::Miss { again: false })
    }

    /// Inserts the fields of an admitted request.
    #[cold]
    pub(super) fn insert(
        set: HeaderSet,
        verdict: &Verdict,
        fields: Vec<(HeaderName, HeaderValue)>,
    ) -> Arc<Self> {
        let figures = verdict.rulings().iter().map(|ruling| Figures::of(verdict, ruling));
        let (hash, version) = (hash(verdict), verdict.snapshot().version());
        let cached =
            Arc::new(CachedFields { fields, hash, set, version, figures: figures.collect() });
        let _ = CACHE.try_with(|cache| {
            if let Some(entry) = cache.get(index(hash)) {
                entry.fields.set(Some(Arc::clone(&cached)));
            }
        });
        cached
    }

    fn is_of(&self, set: HeaderSet, verdict: &Verdict) -> bool {
        let rulings = verdict.rulings();
        let same = |(known, ruling): (&Figures, &Ruling)| *known == Figures::of(verdict, ruling);
        self.set == set
            && self.version == verdict.snapshot().version()
            && self.figures.len() == rulings.len()
            && self.figures.iter().zip(rulings).all(same)
    }
}

impl Figures {
    #[inline]
    fn of(verdict: &Verdict, ruling: &Ruling) -> Self {
        let limit = verdict.limit(ruling);
        Figures {
            limit: ruling.limit,
            role: ruling.role,
            period: limit.map_or(Nanos::ZERO, |limit| limit.limit.algorithm().period()),
            most: ruling.decision.limit,
            remaining: ruling.decision.remaining,
            reset_seconds: ruling.decision.reset_after.as_secs_ceil(),
        }
    }
}

/// A cheap hash of the figures. Consecutive `remaining` values map to neighbouring entries.
fn hash(verdict: &Verdict) -> u64 {
    let mixed = |sum: u64, ruling: &Ruling| {
        let limit = ruling.limit.map_or(0, |limit| limit.index() as u64);
        let figures = limit.wrapping_mul(37).wrapping_add(ruling.decision.remaining);
        sum.wrapping_mul(31).wrapping_add(figures)
    };
    verdict.rulings().iter().fold(verdict.snapshot().version(), mixed)
}

/// The entry for a hash.
#[expect(clippy::cast_possible_truncation, reason = "less than the number of entries")]
const fn index(hash: u64) -> usize {
    (hash % ENTRIES as u64) as usize
}

#[cfg(test)]
mod tests;
