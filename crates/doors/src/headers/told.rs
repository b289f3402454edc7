//! What admitted requests were told before, all fields of an answer together.
//!
//! The clients of a rule that have used little of it are told the same, and so is one that
//! asks seldom. The same figures of the same limits make the same fields, so each thread
//! remembers what it told last and which figures that was for. Who finds its figures there
//! takes the fields as they are: nothing is written, and no name of a limit is looked up.
//!
//! Refusals are not here: they are written anew.

use std::cell::Cell;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use tidegate_engine::{LimitId, Nanos, Role, Ruling, Verdict};

use super::HeaderSet;

/// Answers that a thread remembers. With the default set and names of usual length they take
/// 200 kB.
const ANSWERS: usize = 256;

thread_local! {
    static MEMORY: [Cell<Option<Arc<Told>>>; ANSWERS] =
        const { [const { Cell::new(None) }; ANSWERS] };
}

/// The fields of an answer, and what they were written for.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    set: HeaderSet,
    /// Of the rules: it says what limits are called.
    version: u64,
    figures: SmallVec<[Figures; 2]>,
}

/// All that an answer to an admitted request says of a limit, but for its name.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    limit: Option<LimitId>,
    role: Role,
    /// The rules' version says nothing of how long a month is.
    period: Nanos,
    most: u64,
    remaining: u64,
    reset_seconds: u64,
}

impl Told {
    /// What was told of an admitted request, or what is told now.
    pub(super) fn recall(
        set: HeaderSet,
        verdict: &Verdict,
        write: impl FnOnce() -> Vec<(HeaderName, HeaderValue)>,
    ) -> Arc<Self> {
        let place = place(verdict);
        // A thread that is ending remembers nothing any more.
        let known = MEMORY.try_with(|memory| {
            let kept = memory.get(place)?;
            let told = kept.take().filter(|told| told.is_of(set, verdict))?;
            kept.set(Some(Arc::clone(&told)));
            Some(told)
        });
        known.ok().flatten().unwrap_or_else(|| Told::first(set, verdict, place, write()))
    }

    #[cold]
    fn first(
        set: HeaderSet,
        verdict: &Verdict,
        place: usize,
        fields: Vec<(HeaderName, HeaderValue)>,
    ) -> Arc<Self> {
        let figures = verdict.rulings().iter().map(|ruling| Figures::of(verdict, ruling));
        let version = verdict.snapshot().version();
        let told = Arc::new(Told { fields, set, version, figures: figures.collect() });
        let _ = MEMORY.try_with(|memory| {
            if let Some(kept) = memory.get(place) {
                kept.set(Some(Arc::clone(&told)));
            }
        });
        told
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

/// Where what was told with these figures is kept, if it is. Figures that follow each other lie
/// side by side, since requests come one after the other.
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are what is wanted")]
fn place(verdict: &Verdict) -> usize {
    let mixed = |sum: usize, ruling: &Ruling| {
        let limit = ruling.limit.map_or(0, |limit| limit.index());
        let figures = limit.wrapping_mul(37).wrapping_add(ruling.decision.remaining as usize);
        sum.wrapping_mul(31).wrapping_add(figures)
    };
    verdict.rulings().iter().fold(0, mixed) % ANSWERS
}

#[cfg(test)]
mod tests;
