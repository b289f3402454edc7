//! What one node holds of one key: units taken ahead, and how many to take next.
//!
//! Two slices at the most, the older spent first, so that the next one can be
//! there before this one is used up. Every unit has an end: it is spent before
//! that, given back, or lost.

use tidegate_algorithms::{Algorithm, Decision, Limit, Nanos, Outcome, Retry, Timestamp};

use super::super::terms::{Returns, Terms, refilled};
use crate::batch::Key;

/// A slice is meant to last about this long, or seven eighths of its life if that is shorter.
const LASTING: Nanos = Nanos::from_millis(250);
/// More is taken when what is held lasts about this long: two beats of the
/// renewal, and the remote's answer.
const LEAD: Nanos = Nanos::from_millis(25);
/// Demand is not judged by less than this.
const JUDGED_MIN: u64 = 1_000_000;
/// How far a clock may step back unseen. Units end that much earlier.
pub(crate) const SLIP: Nanos = Nanos::from_millis(5);
/// An answer that has not come by then does not come any more.
const ASKING_MAX: Nanos = Nanos::from_millis(200);

/// Units that were taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slice {
    units: u64,
    /// Not after they were taken.
    born: Timestamp,
    /// From when on they may not be used.
    dies: Timestamp,
    /// Not after the window that they belong to ends.
    resets: Timestamp,
}

/// What one node holds of one key.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) terms: Terms,
    older: Slice,
    newer: Slice,
    /// How many units to hold after asking.
    size: u64,
    /// Units used since the remote was asked last.
    spent: u64,
    /// What the remote had left when it was asked last, and when it is unused again.
    left: u64,
    resets: Timestamp,
    granted: Timestamp,
    asking: Option<Timestamp>,
    used: Timestamp,
    /// Nothing is left at the remote until then.
    empty_until: Timestamp,
    /// Whether the key is on the list of those to renew.
    pub(crate) marked: bool,
    /// Which reading of the clock the slices count by.
    pub(crate) era: u64,
}

/// What became of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spend {
    /// Paid from slices; the units may be put back until they die.
    Paid {
        /// What is told.
        decision: Decision,
        /// When the first of the units dies.
        dies: Timestamp,
        /// Whether more should be taken soon.
        low: bool,
    },
    /// The remote has nothing left.
    Refused(Decision),
    /// There is too little here: the remote has to be asked.
    Short,
}

impl Lease {
    /// Nothing yet of this limit.
    pub(crate) fn new(key: Key, limit: Limit, terms: Terms, era: u64) -> Self {
        Lease {
            key,
            limit,
            terms,
            older: Slice::default(),
            newer: Slice::default(),
            size: 1,
            spent: 0,
            left: 0,
            resets: Timestamp::EPOCH,
            granted: Timestamp::EPOCH,
            asking: None,
            used: Timestamp::EPOCH,
            empty_until: Timestamp::EPOCH,
            marked: false,
            era,
        }
    }

    /// What could be spent if it were now.
    pub(crate) const fn units(&self) -> u64 {
        self.older.units.saturating_add(self.newer.units)
    }

    /// What a request of this moment may spend. A slice that was born later says
    /// that the clock was put back, or that the request was held up since it
    /// read the clock. Nobody can tell, so the slice is left alone: in the first
    /// case all slices are void soon.
    #[inline]
    fn usable(&self, now: Timestamp) -> u64 {
        self.older.usable(now).saturating_add(self.newer.usable(now))
    }

    /// What could still be spent at `then`, if nothing is spent before; what
    /// is spent first must live as long.
    #[inline]
    pub(crate) fn lives_at(&self, then: Timestamp) -> u64 {
        let lives = |slice: &Slice| slice.units == 0 || slice.dies > then;
        if lives(&self.older) && lives(&self.newer) { self.units() } else { 0 }
    }

    /// Drops what has died; says how much.
    pub(crate) fn bury(&mut self, now: Timestamp) -> u64 {
        let mut lost = 0;
        for slice in [&mut self.older, &mut self.newer] {
            if slice.units > 0 && slice.dies <= now {
                lost += slice.units;
                slice.units = 0;
            }
        }
        lost
    }

    /// Pays a cost from the slices, the older first.
    #[inline]
    pub(crate) fn spend(&mut self, cost: u64, now: Timestamp) -> Spend {
        if self.usable(now) < cost {
            let known_empty = now < self.empty_until && now.after(SLIP) >= self.granted;
            return if known_empty {
                Spend::Refused(self.refused(cost, now))
            } else {
                Spend::Short
            };
        }
        let from_older = cost.min(self.older.usable(now));
        let from_newer = cost - from_older;
        self.older.units -= from_older;
        self.newer.units -= from_newer;
        self.spent = self.spent.saturating_add(cost);
        self.used = now;
        let dies = if from_older > 0 { self.older.dies } else { self.newer.dies };
        let low = self.is_low(now);
        Spend::Paid { decision: self.admitted(cost, now), dies, low }
    }

    /// Puts back what [`Lease::spend`] paid, where it cannot live longer than it would have.
    pub(crate) fn put_back(&mut self, units: u64, dies: Timestamp) -> bool {
        let slices = [&mut self.older, &mut self.newer].into_iter();
        let fits = slices.filter(|slice| slice.born < slice.dies && slice.dies <= dies);
        let Some(slice) = fits.max_by_key(|slice| slice.dies) else { return false };
        slice.units = slice.units.saturating_add(units);
        self.spent = self.spent.saturating_sub(units);
        true
    }

    /// How much to ask the remote for, so that `cost` can be paid: up to what
    /// the demand calls for, or only what is missing when somebody asks already.
    pub(crate) fn ask(&mut self, cost: u64, now: Timestamp) -> u64 {
        let missing = cost.saturating_sub(self.usable(now));
        if self.asking.is_some_and(|at| at <= now && now.since(at) < ASKING_MAX) {
            return missing;
        }
        self.asking = Some(now);
        self.follow_demand(now);
        missing.max(self.size.saturating_sub(self.units()))
    }

    /// Judges by what was used since the last time how much is needed next.
    fn follow_demand(&mut self, now: Timestamp) {
        let lasting = u128::from(self.lasting().get());
        let passed = now.since(self.granted).get().max(JUDGED_MIN);
        let demand = u128::from(self.spent) * lasting / u128::from(passed);
        let demand = u64::try_from(demand).unwrap_or(u64::MAX);
        let ran_dry = self.units() == 0 && u128::from(passed) < lasting;
        self.size = if ran_dry {
            // Nobody knows how much more would have been used: double.
            demand.min(self.size.saturating_mul(2))
        } else {
            // A little more than it was, halfway from what was thought before.
            demand.saturating_add(demand / 8).saturating_add(self.size) / 2
        };
        self.size = self.size.min(self.terms.tightened.algorithm().capacity()).max(1);
    }

    /// How long a slice is meant to last.
    fn lasting(&self) -> Nanos {
        LASTING.min(Nanos::new(self.terms.life.get() / 8 * 7))
    }

    /// Takes in what the remote gave when it was asked at `sent`. `nodes` share
    /// what is left: near the limit slices get small, so that nobody starves.
    pub(crate) fn grant(&mut self, decision: &Decision, sent: Timestamp, nodes: u64, empty: Nanos) {
        self.asking = None;
        self.marked = false;
        self.left = decision.remaining;
        self.resets = sent.after(decision.reset_after);
        self.granted = sent;
        self.spent = 0;
        self.size = self.size.min(decision.remaining / nodes.saturating_mul(2).max(1)).max(1);
        if let Some(span) = self.pause(decision, nodes) {
            self.empty_until = sent.after(span.min(empty));
        }
        let slice = self.slice(decision, sent);
        if slice.units == 0 || slice.dies <= sent {
            return;
        }
        if self.newer.units == 0 {
            self.newer = slice;
        } else if self.older.units == 0 {
            (self.older, self.newer) = (self.newer, slice);
        } else {
            // As old as the older of the two: no unit may live longer for it.
            self.newer = Slice {
                units: self.newer.units.saturating_add(slice.units),
                born: self.newer.born.min(slice.born),
                dies: self.newer.dies.min(slice.dies),
                resets: self.newer.resets.min(slice.resets),
            };
        }
        if self.older.dies > self.newer.dies && self.older.units > 0 {
            std::mem::swap(&mut self.older, &mut self.newer);
        }
    }

    /// How long not to ask again, if the remote has nothing left. Whoever took
    /// the last unit of a bucket leaves the next ones to the other nodes: they
    /// are not lost, only taken a little later.
    fn pause(&self, decision: &Decision, nodes: u64) -> Option<Nanos> {
        let Algorithm::TokenBucket(bucket) = self.terms.tightened.algorithm() else {
            return match decision.retry {
                Retry::After(span) => Some(span),
                Retry::Now | Retry::Never => None,
            };
        };
        let span = match decision.retry {
            Retry::After(span) => span.get(),
            Retry::Now if decision.remaining == 0 && nodes > 1 => {
                bucket.period().as_nanos() / bucket.amount().max(1)
            }
            Retry::Now | Retry::Never => return None,
        };
        Some(Nanos::new(span.saturating_mul(nodes.max(1))))
    }

    /// The answer to an ask did not come.
    pub(crate) fn unanswered(&mut self) {
        self.asking = None;
        self.marked = false;
    }

    /// Takes out what should be given back now, because nobody uses it or it
    /// dies soon. Also says how much of it is lost on the way.
    pub(crate) fn give_back(&mut self, now: Timestamp, leaving: Leaving) -> (u64, u64) {
        let (mut back, mut lost) = (0, 0);
        let idle = now.since(self.used.max(self.granted)).get() > self.terms.life.get() / 4;
        let (returns, life) = (self.terms.returns, self.terms.life);
        for slice in [&mut self.older, &mut self.newer] {
            let dying = slice.dies.since(now) <= leaving.soon
                && now.since(slice.born).get() > life.get() / 2;
            if slice.units == 0 || !(idle || dying || leaving.all) {
                continue;
            }
            let units = slice.returnable(returns, now, leaving.within);
            if units > 0 {
                back += units;
                lost += slice.units - units;
                slice.units = 0;
            }
        }
        (back, lost)
    }

    /// Whether nothing is held and nobody has asked for a while.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        let last = self.used.max(self.granted);
        self.units() == 0 && (now.since(last) > Nanos::from_secs(2) || now.after(SLIP) < last)
    }

    /// A refusal of what cannot be paid.
    pub(crate) fn refused(&self, cost: u64, now: Timestamp) -> Decision {
        let have = self.units();
        Decision {
            outcome: Outcome::Refused,
            retry: self.retry(cost, cost.saturating_sub(have), now),
            taken: 0,
            ..self.admitted(0, now)
        }
    }

    fn admitted(&self, cost: u64, now: Timestamp) -> Decision {
        let limit = self.terms.tightened.algorithm().capacity();
        Decision {
            outcome: Outcome::Admitted,
            limit,
            remaining: self.units().saturating_add(self.left).min(limit),
            taken: cost,
            retry: Retry::Now,
            reset_after: self.resets.since(now),
            delay: Nanos::ZERO,
            soft: false,
        }
    }

    /// About when the remote can give what is missing.
    fn retry(&self, cost: u64, missing: u64, now: Timestamp) -> Retry {
        let algorithm = self.terms.tightened.algorithm();
        if cost > algorithm.capacity() {
            return Retry::Never;
        }
        match algorithm {
            Algorithm::TokenBucket(bucket) => {
                let nanos = u128::from(missing) * u128::from(bucket.period().as_nanos());
                let nanos = nanos.div_ceil(u128::from(bucket.amount().max(1)));
                Retry::After(Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX)))
            }
            _ => Retry::After(self.resets.since(now)),
        }
    }

    /// Whether more should be taken before a request has to wait for it.
    fn is_low(&self, now: Timestamp) -> bool {
        let lead = u128::from(self.size) * u128::from(LEAD.get())
            / u128::from(self.lasting().get().max(1));
        let few = u128::from(self.units()) <= lead;
        let late = self.newer.dies.since(now) < LEAD && self.units() > 0;
        (few || late) && !self.marked && self.asking.is_none() && now >= self.empty_until
    }

    fn slice(&self, decision: &Decision, sent: Timestamp) -> Slice {
        let resets = sent.after(decision.reset_after);
        let dies = sent.after(Nanos::new(self.terms.life.get().saturating_sub(SLIP.get())));
        let ends = Timestamp::from_nanos(resets.as_nanos().saturating_sub(SLIP.get()));
        let dies = match self.terms.returns {
            Returns::InWindow => dies.min(ends),
            Returns::Never | Returns::LessRefill { .. } => dies,
        };
        Slice { units: decision.taken, born: sent, dies, resets }
    }
}

/// How urgent it is to give back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    /// Whether everything should be given back.
    pub(crate) all: bool,
    /// How long until somebody looks again.
    pub(crate) soon: Nanos,
    /// How long giving back may take.
    pub(crate) within: Nanos,
}

impl Slice {
    /// How many of the units a request of this moment may spend.
    #[inline]
    fn usable(&self, now: Timestamp) -> u64 {
        if now.after(SLIP) < self.born { 0 } else { self.units }
    }

    /// How many of the units the remote may count as never taken.
    fn returnable(&self, returns: Returns, now: Timestamp, within: Nanos) -> u64 {
        match returns {
            Returns::Never => 0,
            Returns::LessRefill { amount, period } => {
                let age = now.since(self.born).get().saturating_add(within.get());
                self.units.saturating_sub(refilled(amount, period, Nanos::new(age)))
            }
            Returns::InWindow => {
                let lasts = now.after(within).after(SLIP) < self.resets;
                if lasts { self.units } else { 0 }
            }
        }
    }
}

#[cfg(test)]
mod tests;
