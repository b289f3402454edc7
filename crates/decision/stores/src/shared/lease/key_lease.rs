//! The lease of one key: the slices that this node holds, and how many units to take next.
//!
//! The expiry of units is in [`super::slices`], the estimate of the demand in [`super::demand`].

use tidegate_algorithms::{Algorithm, Decision, Limit, Nanos, Outcome, Retry, Timestamp};

use super::super::lease_terms::{LeaseTerms, ReturnRule};
use super::super::transfer::Transfer;
use super::demand::{Demand, Usage};
use super::slices::{CLOCK_SLACK, Slice, Slices};
use crate::batch::Key;

/// How long a slice should last; seven eighths of its life if that is shorter.
const LASTING: Nanos = Nanos::from_millis(250);
/// More is taken when the units last about this long: two renewal beats and the remote's answer. Half a life if that is
/// shorter.
const LEAD: Nanos = Nanos::from_millis(25);
/// After this long a call counts as lost.
const CALL_MAX: Nanos = Nanos::from_millis(200);
/// A key counts as unused if at least this many uses were expected and none came.
const MISSED_MIN: u64 = 3;

/// The lease of one key.
#[derive(Debug)]
pub(crate) struct KeyLease {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) terms: LeaseTerms,
    slices: Slices,
    demand: Demand,
    /// The most units to hold, so that other nodes get their share.
    share: u64,
    /// Units used since the last estimate of the demand, and when that was.
    spent: u64,
    estimated_at: Timestamp,
    /// What remained at the remote after the last call, and when its limit resets.
    left: u64,
    resets: Timestamp,
    granted: Timestamp,
    /// When the call in flight was sent.
    called_at: Option<Timestamp>,
    used: Timestamp,
    /// The remote is not called before, because nothing remains there.
    empty_until: Timestamp,
    /// Whether the key is on the shard's list of keys to renew.
    pub(crate) marked: bool,
    /// Whether the key is in the expiry queue.
    pub(crate) is_queued: bool,
    /// The era of the clock in which the slices were taken.
    pub(crate) era: u64,
}

/// The outcome of paying a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpendOutcome {
    /// Paid from slices; the units can be put back until they expire.
    Paid {
        /// The admission.
        decision: Decision,
        /// When the first of the units expires.
        expires: Timestamp,
        /// Whether to take more soon.
        low: bool,
    },
    /// Nothing remains at the remote.
    Refused(Decision),
    /// Too few units: the remote must be called.
    Short,
}

impl KeyLease {
    /// A lease without units.
    pub(crate) fn new(key: Key, limit: Limit, terms: LeaseTerms, era: u64) -> Self {
        let lasting = LASTING.min(Nanos::new(terms.life.get() / 8 * 7));
        KeyLease {
            key,
            limit,
            terms,
            slices: Slices::default(),
            demand: Demand::new(lasting),
            share: u64::MAX,
            spent: 0,
            estimated_at: Timestamp::EPOCH,
            left: 0,
            resets: Timestamp::EPOCH,
            granted: Timestamp::EPOCH,
            called_at: None,
            used: Timestamp::EPOCH,
            empty_until: Timestamp::EPOCH,
            marked: false,
            is_queued: false,
            era,
        }
    }

    /// The transfer of some units at the tightened limit; `None` of zero units.
    pub(crate) fn transfer(&self, units: u64) -> Option<Transfer> {
        let transfer = || Transfer { key: self.key, limit: self.terms.tightened.clone(), units };
        (units > 0).then(transfer)
    }

    /// All units.
    #[inline]
    pub(crate) fn units(&self) -> u64 {
        self.slices.units()
    }

    /// The units at `then`, if the first slice has not expired by then; otherwise 0.
    #[inline]
    pub(crate) fn units_at(&self, then: Timestamp) -> u64 {
        match self.slices.first_expiry() {
            Some(expires) if expires > then => self.units(),
            Some(_) | None => 0,
        }
    }

    /// Drops expired units; returns how many.
    #[inline]
    pub(crate) fn drop_expired(&mut self, now: Timestamp) -> u64 {
        self.slices.drop_expired(now)
    }

    /// Pays a cost from the slices, in the order of their expiry.
    #[inline]
    pub(crate) fn spend(&mut self, cost: u64, now: Timestamp) -> SpendOutcome {
        if self.slices.usable(now) < cost {
            let known_empty = now < self.empty_until && now.after(CLOCK_SLACK) >= self.granted;
            return if known_empty {
                SpendOutcome::Refused(self.refusal(cost, now))
            } else {
                SpendOutcome::Short
            };
        }
        let expires = self.slices.spend(cost, now);
        self.spent = self.spent.saturating_add(cost);
        self.used = now;
        let low = self.is_low(now);
        SpendOutcome::Paid { decision: self.admission(cost, now), expires, low }
    }

    /// Puts back units that [`KeyLease::spend`] paid, so that they expire no later than before.
    pub(crate) fn put_back(&mut self, units: u64, expires: Timestamp) -> bool {
        let fits = self.slices.put_back(units, expires);
        if fits {
            self.spent = self.spent.saturating_sub(units);
        }
        fits
    }

    /// How many units to take so that `cost` can be paid: as many as the demand needs, or only the missing ones if
    /// another call is in flight.
    pub(crate) fn units_to_take(&mut self, cost: u64, now: Timestamp) -> u64 {
        let missing = cost.saturating_sub(self.slices.usable(now));
        if self.called_at.is_some_and(|at| at <= now && now.since(at) < CALL_MAX) {
            return missing;
        }
        self.update_demand(now);
        let units = missing.max(self.size(now).saturating_sub(self.lasting(now)));
        if units > 0 {
            self.called_at = Some(now);
        } else {
            self.marked = false;
        }
        units
    }

    fn update_demand(&mut self, now: Timestamp) {
        let passed = now.since(self.estimated_at);
        self.demand.update(Usage { units: self.spent, passed, ran_dry: self.units() == 0 });
        (self.spent, self.estimated_at) = (0, now);
    }

    /// How many units to hold after a call.
    fn size(&self, now: Timestamp) -> u64 {
        let most = self.share.min(self.terms.tightened.algorithm().capacity());
        let most = match self.terms.returns {
            // Units taken now expire with the window.
            ReturnRule::InWindow if self.resets > now => {
                most.min(self.demand.likely_in(self.resets.since(now)))
            }
            ReturnRule::InWindow | ReturnRule::Never | ReturnRule::LessRefill { .. } => most,
        };
        self.demand.size().min(most).max(1)
    }

    /// Units that a renewal need not replace, because they outlast the next one. In a fixed window those are all: the
    /// renewal extends their life.
    fn lasting(&self, now: Timestamp) -> u64 {
        match self.terms.returns {
            ReturnRule::InWindow => self.units(),
            ReturnRule::Never | ReturnRule::LessRefill { .. } => {
                self.slices.left_at(now.after(self.lead()))
            }
        }
    }

    /// How early more units are taken.
    fn lead(&self) -> Nanos {
        LEAD.min(Nanos::new(self.terms.life.get() / 2))
    }

    /// Adds the slice that the remote granted for the call at `sent`. `nodes` share what remains: near the limit slices
    /// get small, so that no node starves.
    pub(crate) fn grant(
        &mut self,
        decision: &Decision,
        sent: Timestamp,
        nodes: u64,
        pause_max: Nanos,
    ) {
        self.called_at = None;
        self.marked = false;
        self.left = decision.remaining;
        self.resets = sent.after(decision.reset_after);
        self.granted = sent;
        self.share = decision.remaining / nodes.saturating_mul(2).max(1);
        if let Some(span) = self.pause(decision, nodes) {
            self.empty_until = sent.after(span.min(pause_max));
        }
        let mut slice = self.slice(decision, sent);
        if slice.expires <= sent {
            return;
        }
        if self.terms.returns == ReturnRule::InWindow {
            self.slices.renew(&mut slice, self.terms.life);
        }
        if slice.units > 0 {
            self.slices.add(slice);
        }
    }

    /// How long not to call again, if nothing remains at the remote. The node that took the last unit of a bucket
    /// leaves the next ones to the other nodes.
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

    /// Notes that the call in flight was not answered.
    pub(crate) fn on_no_answer(&mut self) {
        self.called_at = None;
        self.marked = false;
    }

    /// When to check whether the last slice needs a successor: shortly before it expires; if it expires with its
    /// window, after the next window has begun.
    pub(crate) fn check_at(&self) -> Option<Timestamp> {
        let ends = self.slices.last_expiry()?;
        if self.terms.returns == ReturnRule::InWindow && ends.after(CLOCK_SLACK) >= self.resets {
            return Some(self.resets.after(CLOCK_SLACK));
        }
        Some(Timestamp::from_nanos(ends.as_nanos().saturating_sub(self.lead().get())))
    }

    /// Whether to replace units that expire soon: the key was used since the last estimate.
    pub(crate) fn is_wanted(&self, now: Timestamp) -> bool {
        self.spent > 0 && self.may_call(now)
    }

    /// Takes out the units to return, because the key is unused or they will probably expire unused. The second number
    /// is the units that are lost.
    pub(crate) fn take_returnable(&mut self, now: Timestamp, options: ReturnOptions) -> (u64, u64) {
        let (mut back, mut lost, mut kept) = (0, 0, 0_u64);
        let (returns, life, demand) = (self.terms.returns, self.terms.life, self.demand);
        let whole = options.all || self.is_unused(now);
        for slice in self.slices.iter_mut().filter(|slice| slice.units > 0) {
            let units = slice.returnable(returns, now, options.within);
            if whole && units > 0 {
                back += units;
                lost += slice.units - units;
                slice.units = 0;
            } else if now.since(slice.taken_at).get() > life.get() / 2 {
                let likely = demand.likely_in(slice.expires.since(now).min(LASTING));
                let needed = likely.saturating_sub(kept);
                let units = units.min(slice.units.saturating_sub(needed));
                back += units;
                slice.units -= units;
            }
            kept = kept.saturating_add(slice.units);
        }
        (back, lost)
    }

    /// Whether the key is probably not used any more.
    fn is_unused(&self, now: Timestamp) -> bool {
        let (unused, life) = (now.since(self.used.max(self.granted)), self.terms.life.get());
        let missed = || self.demand.expected_in(unused) >= MISSED_MIN;
        unused.get() > life / 2 || (unused.get() > life / 4 && missed())
    }

    /// Whether nothing is held and the key was not used for a while.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        let last = self.used.max(self.granted);
        self.units() == 0
            && (now.since(last) > Nanos::from_secs(2) || now.after(CLOCK_SLACK) < last)
    }

    /// The refusal of a cost that cannot be paid.
    pub(crate) fn refusal(&self, cost: u64, now: Timestamp) -> Decision {
        let retry = self.retry(cost, cost.saturating_sub(self.units()), now);
        Decision { outcome: Outcome::Refused, retry, ..self.admission(0, now) }
    }

    fn admission(&self, cost: u64, now: Timestamp) -> Decision {
        let limit = self.terms.tightened.algorithm().capacity();
        let remaining = self.units().saturating_add(self.left).min(limit);
        Decision::admitted(limit, cost, remaining, self.resets.since(now))
    }

    /// About when the remote can grant the missing units.
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

    /// Whether to take more before a request has to wait for it.
    #[inline]
    fn is_low(&self, now: Timestamp) -> bool {
        let few = self.demand.likely_in(self.lead()).min(self.size(now) / 2);
        self.units() <= few && self.may_call(now)
    }

    fn may_call(&self, now: Timestamp) -> bool {
        !self.marked && self.called_at.is_none() && now >= self.empty_until
    }

    fn slice(&self, decision: &Decision, sent: Timestamp) -> Slice {
        let resets = sent.after(decision.reset_after);
        let expires =
            sent.after(Nanos::new(self.terms.life.get().saturating_sub(CLOCK_SLACK.get())));
        let ends = Timestamp::from_nanos(resets.as_nanos().saturating_sub(CLOCK_SLACK.get()));
        let expires = match self.terms.returns {
            ReturnRule::InWindow => expires.min(ends),
            ReturnRule::Never | ReturnRule::LessRefill { .. } => expires,
        };
        Slice { units: decision.taken, taken_at: sent, expires, resets }
    }
}

/// Which units to return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReturnOptions {
    /// Whether to return all units.
    pub(crate) all: bool,
    /// The deadline of the call that returns them.
    pub(crate) within: Nanos,
}

#[cfg(test)]
mod tests;
