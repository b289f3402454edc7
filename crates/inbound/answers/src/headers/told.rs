//! What admitted requests were told before, all fields of an answer together.
//!
//! The clients of a rule that have used little of it are told the same, and so is one that
//! asks seldom. The same figures of the same limits make the same fields, so each thread
//! remembers what it told last and which figures that was for. Who finds its figures there
//! takes the fields as they are: nothing is written, and no name of a limit is looked up.
//!
//! To remember costs more than to write once, so only what is told a second time is
//! remembered. Where every answer says something new, nothing is, and what is remembered stays.
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
    static MEMORY: [Place; ANSWERS] = const { [const { Place::new() }; ANSWERS] };
}

/// Where one answer is remembered.
struct Place {
    told: Cell<Option<Arc<Told>>>,
    /// The sum of the last figures that were not those of the answer.
    missed: Cell<u64>,
}

/// The fields of an answer, and what they were written for.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    /// Of the figures, to tell most others by.
    sum: u64,
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

/// Fields that may be remembered.
pub(super) enum Recalled {
    /// They were told before.
    Known(Arc<Told>),
    /// They are to be written.
    Unknown {
        /// Whether they were asked for before: then they are worth remembering.
        again: bool,
    },
}

impl Place {
    const fn new() -> Self {
        Place { told: Cell::new(None), missed: Cell::new(0) }
    }

    fn recall(&self, sum: u64, set: HeaderSet, verdict: &Verdict) -> Recalled {
        let told = self.told.take();
        let known = told.as_ref().filter(|told| told.sum == sum && told.is_of(set, verdict));
        let recalled = match known {
            Some(told) => Recalled::Known(Arc::clone(told)),
            None => Recalled::Unknown { again: self.missed.replace(sum) == sum },
        };
        self.told.set(told);
        recalled
    }
}

impl Told {
    /// What an admitted request was told, if it is remembered.
    pub(super) fn recall(set: HeaderSet, verdict: &Verdict) -> Recalled {
        let sum = sum(verdict);
        let recall = |memory: &[Place; ANSWERS]| {
            memory.get(place(sum)).map(|place| place.recall(sum, set, verdict))
        };
        // A thread that is ending remembers nothing any more.
        let recalled = MEMORY.try_with(recall).ok().flatten();
        recalled.unwrap_or(Recalled::Unknown { again: false })
    }

    /// Remembers what an admitted request is told.
    #[cold]
    pub(super) fn keep(
        set: HeaderSet,
        verdict: &Verdict,
        fields: Vec<(HeaderName, HeaderValue)>,
    ) -> Arc<Self> {
        let figures = verdict.rulings().iter().map(|ruling| Figures::of(verdict, ruling));
        let (sum, version) = (sum(verdict), verdict.snapshot().version());
        let told = Arc::new(Told { fields, sum, set, version, figures: figures.collect() });
        let _ = MEMORY.try_with(|memory| {
            if let Some(place) = memory.get(place(sum)) {
                place.told.set(Some(Arc::clone(&told)));
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

/// Tells figures of the same rules apart, and lets those that follow each other lie side by side, since requests
/// come one after the other.
fn sum(verdict: &Verdict) -> u64 {
    let mixed = |sum: u64, ruling: &Ruling| {
        let limit = ruling.limit.map_or(0, |limit| limit.index() as u64);
        let figures = limit.wrapping_mul(37).wrapping_add(ruling.decision.remaining);
        sum.wrapping_mul(31).wrapping_add(figures)
    };
    verdict.rulings().iter().fold(verdict.snapshot().version(), mixed)
}

/// Where what was told with figures of this sum is kept, if it is.
#[expect(clippy::cast_possible_truncation, reason = "less than the number of answers")]
const fn place(sum: u64) -> usize {
    (sum % ANSWERS as u64) as usize
}

#[cfg(test)]
mod tests;
