//! What one node holds of one key: units taken ahead, and how many to take next.
//!
//! How long units live is in [`super::slices`], how many are needed in
//! [`super::demand`].

use tidegate_algorithms::{Decision, Limit, Nanos, Outcome, Retry, Timestamp};

use super::super::terms::{Returns, Terms};
use super::demand::{Demand, Used};
use super::slices::{SLIP, Slice, Slices};
use crate::batch::Key;

/// A slice is meant to last about this long, or seven eighths of its life if that is shorter.
const LASTING: Nanos = Nanos::from_millis(250);
/// More is taken when what is held lasts about this long: two beats of the
/// renewal, and the remote's answer. Half a life if that is shorter.
const LEAD: Nanos = Nanos::from_millis(25);
/// An answer that has not come by then does not come any more.
const ASKING_MAX: Nanos = Nanos::from_millis(200);
/// Nobody uses a key any more that should have been used so often meanwhile.
const MISSED_MIN: u64 = 3;

/// What one node holds of one key.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) terms: Terms,
    slices: Slices,
    demand: Demand,
    /// No more is held than this, for the sake of other nodes.
    share: u64,
    /// Units used since the demand was judged last, and when that was.
    spent: u64,
    judged: Timestamp,
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
    /// Whether somebody looks at the key before its last slice ends.
    pub(crate) watched: bool,
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
        let lasting = LASTING.min(Nanos::new(terms.life.get() / 8 * 7));
        Lease {
            key,
            limit,
            terms,
            slices: Slices::default(),
            demand: Demand::new(lasting),
            share: u64::MAX,
            spent: 0,
            judged: Timestamp::EPOCH,
            left: 0,
            resets: Timestamp::EPOCH,
            granted: Timestamp::EPOCH,
            asking: None,
            used: Timestamp::EPOCH,
            empty_until: Timestamp::EPOCH,
            marked: false,
            watched: false,
            era,
        }
    }

    /// What could be spent if it were now.
    #[inline]
    pub(crate) fn units(&self) -> u64 {
        self.slices.units()
    }

    /// What could still be spent at `then`, if nothing is spent before; what
    /// is spent first must live as long.
    #[inline]
    pub(crate) fn lives_at(&self, then: Timestamp) -> u64 {
        match self.slices.first_end() {
            Some(dies) if dies > then => self.units(),
            Some(_) | None => 0,
        }
    }

    /// Drops what has died; says how much.
    #[inline]
    pub(crate) fn bury(&mut self, now: Timestamp) -> u64 {
        self.slices.bury(now)
    }

    /// Pays a cost from the slices, the first to die first.
    #[inline]
    pub(crate) fn spend(&mut self, cost: u64, now: Timestamp) -> Spend {
        if self.slices.usable(now) < cost {
            let known_empty = now < self.empty_until && now.after(SLIP) >= self.granted;
            return if known_empty {
                Spend::Refused(self.refused(cost, now))
            } else {
                Spend::Short
            };
        }
        let dies = self.slices.spend(cost, now);
        self.spent = self.spent.saturating_add(cost);
        self.used = now;
        let low = self.is_low(now);
        Spend::Paid { decision: self.admitted(cost, now), dies, low }
    }

    /// Puts back what [`Lease::spend`] paid, where it cannot live longer than it would have.
    pub(crate) fn put_back(&mut self, units: u64, dies: Timestamp) -> bool {
        let fits = self.slices.put_back(units, dies);
        if fits {
            self.spent = self.spent.saturating_sub(units);
        }
        fits
    }

    /// How much to ask the remote for, so that `cost` can be paid: up to what
    /// the demand calls for, or only what is missing when somebody asks already.
    pub(crate) fn ask(&mut self, cost: u64, now: Timestamp) -> u64 {
        let missing = cost.saturating_sub(self.slices.usable(now));
        if self.asking.is_some_and(|at| at <= now && now.since(at) < ASKING_MAX) {
            return missing;
        }
        self.judge(now);
        let units = missing.max(self.size(now).saturating_sub(self.lasting(now)));
        if units > 0 {
            self.asking = Some(now);
        } else {
            self.marked = false;
        }
        units
    }

    fn judge(&mut self, now: Timestamp) {
        let passed = now.since(self.judged);
        self.demand.follow(Used { units: self.spent, passed, ran_dry: self.units() == 0 });
        (self.spent, self.judged) = (0, now);
    }

    /// How many units to hold after asking.
    fn size(&self, now: Timestamp) -> u64 {
        let most = self.share.min(self.terms.tightened.algorithm().capacity());
        let most = match self.terms.returns {
            // What is taken now ends with the window.
            Returns::InWindow if self.resets > now => {
                most.min(self.demand.likely_in(self.resets.since(now)))
            }
            Returns::InWindow | Returns::Never | Returns::LessRefill { .. } => most,
        };
        self.demand.size().min(most).max(1)
    }

    /// What a renewal need not replace, because it outlasts the next one. In a
    /// window that is everything: the renewal lets it live on.
    fn lasting(&self, now: Timestamp) -> u64 {
        match self.terms.returns {
            Returns::InWindow => self.units(),
            Returns::Never | Returns::LessRefill { .. } => {
                self.slices.left_at(now.after(self.lead()))
            }
        }
    }

    /// How long before it is needed more is taken.
    fn lead(&self) -> Nanos {
        LEAD.min(Nanos::new(self.terms.life.get() / 2))
    }

    /// Takes in what the remote gave when it was asked at `sent`. `nodes` share
    /// what is left: near the limit slices get small, so that nobody starves.
    pub(crate) fn grant(&mut self, decision: &Decision, sent: Timestamp, nodes: u64, empty: Nanos) {
        self.asking = None;
        self.marked = false;
        self.left = decision.remaining;
        self.resets = sent.after(decision.reset_after);
        self.granted = sent;
        self.share = decision.remaining / nodes.saturating_mul(2).max(1);
        if let Some(span) = self.pause(decision, nodes) {
            self.empty_until = sent.after(span.min(empty));
        }
        let mut slice = self.slice(decision, sent);
        if slice.dies <= sent {
            return;
        }
        if self.terms.returns == Returns::InWindow {
            self.slices.renew(&mut slice, self.terms.life);
        }
        if slice.units > 0 {
            self.slices.add(slice);
        }
    }

    /// How long not to ask again, if the remote has nothing left. Whoever took
    /// the last unit of a bucket leaves the next ones to the other nodes: they
    /// are not lost, only taken a little later.
    fn pause(&self, decision: &Decision, nodes: u64) -> Option<Nanos> {
        let Some((amount, period)) = self.terms.tightened.algorithm().refill() else {
            return match decision.retry {
                Retry::After(span) => Some(span),
                Retry::Now | Retry::Never => None,
            };
        };
        let span = match decision.retry {
            Retry::After(span) => span.get(),
            Retry::Now if decision.remaining == 0 && nodes > 1 => period.as_nanos() / amount.max(1),
            Retry::Now | Retry::Never => return None,
        };
        Some(Nanos::new(span.saturating_mul(nodes.max(1))))
    }

    /// The answer to an ask did not come.
    pub(crate) fn unanswered(&mut self) {
        self.asking = None;
        self.marked = false;
    }

    /// When to look whether the last slice needs a successor: shortly before it
    /// ends, and where it ends with its window once the next window has begun.
    pub(crate) fn look_at(&self) -> Option<Timestamp> {
        let ends = self.slices.last_end()?;
        if self.terms.returns == Returns::InWindow && ends.after(SLIP) >= self.resets {
            return Some(self.resets.after(SLIP));
        }
        Some(Timestamp::from_nanos(ends.as_nanos().saturating_sub(self.lead().get())))
    }

    /// Whether what ends soon should be replaced although nobody asks just now:
    /// the key was used since the last time.
    pub(crate) fn is_wanted(&self, now: Timestamp) -> bool {
        self.spent > 0 && self.may_ask(now)
    }

    /// Takes out what should be given back now, because nobody uses it or it
    /// dies before it is likely to be used. Also says how much of it is lost on
    /// the way.
    pub(crate) fn give_back(&mut self, now: Timestamp, leaving: Leaving) -> (u64, u64) {
        let (mut back, mut lost, mut kept) = (0, 0, 0_u64);
        let (returns, life, demand) = (self.terms.returns, self.terms.life, self.demand);
        let whole = leaving.all || self.is_unused(now);
        for slice in self.slices.iter_mut().filter(|slice| slice.units > 0) {
            let units = slice.returnable(returns, now, leaving.within);
            if whole && units > 0 {
                back += units;
                lost += slice.units - units;
                slice.units = 0;
            } else if now.since(slice.born).get() > life.get() / 2 {
                let likely = demand.likely_in(slice.dies.since(now).min(LASTING));
                let needed = likely.saturating_sub(kept);
                let units = units.min(slice.units.saturating_sub(needed));
                back += units;
                slice.units -= units;
            }
            kept = kept.saturating_add(slice.units);
        }
        (back, lost)
    }

    /// Whether the key is not used any more, as it seems.
    fn is_unused(&self, now: Timestamp) -> bool {
        let (unused, life) = (now.since(self.used.max(self.granted)), self.terms.life.get());
        let missed = || self.demand.expected_in(unused) >= MISSED_MIN;
        unused.get() > life / 2 || (unused.get() > life / 4 && missed())
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
        match algorithm.refill() {
            Some((amount, period)) => {
                let nanos = u128::from(missing) * u128::from(period.as_nanos());
                let nanos = nanos.div_ceil(u128::from(amount.max(1)));
                Retry::After(Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX)))
            }
            None => Retry::After(self.resets.since(now)),
        }
    }

    /// Whether more should be taken before a request has to wait for it.
    #[inline]
    fn is_low(&self, now: Timestamp) -> bool {
        let few = self.demand.likely_in(self.lead()).min(self.size(now) / 2);
        self.units() <= few && self.may_ask(now)
    }

    fn may_ask(&self, now: Timestamp) -> bool {
        !self.marked && self.asking.is_none() && now >= self.empty_until
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
    /// How long giving back may take.
    pub(crate) within: Nanos,
}

#[cfg(test)]
mod tests;
