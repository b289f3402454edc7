//! The lease of one key: the slices that this node holds, and how many units to take next.
//!
//! A key is leased only while that saves calls. A check that has to call the remote anyway takes further units if the
//! key is expected to use some before they expire; otherwise it takes its own cost only, as with an exact limit.
//! Units are renewed ahead only for keys that use several of them in the life of a slice.
//!
//! The expiry of units is in [`super::slices`], the estimate of the demand in [`super::demand`].

use tidegate_algorithms::{Algorithm, Decision, Limit, Nanos, Outcome, Retry, Timestamp};

use super::super::lease_terms::{LONG_LIFE, LeaseTerms, ReturnRule, refilled};
use super::super::transfer::Transfer;
use super::demand::{Demand, Usage};
use super::slices::{CLOCK_SLACK, Slice, Slices};
use crate::batch::Key;

/// How long a slice should last; seven eighths of its life if that is shorter. One whose unused units cost others nothing
/// lasts as long as they can be used.
const LASTING: Nanos = Nanos::from_millis(250);
/// More is taken when the units last about this long, and two round trips: two renewal beats, and the slack by which
/// units expire early. Half a life if that is shorter.
const LEAD: Nanos = Nanos::from_millis(25);
/// A slow key takes up to this many units at once, although they last longer than [`LASTING`].
const SLOW_UNITS: u64 = 8;
/// Uses that a slice must be expected to have beside that of the check, which has to call anyway.
const PAYS_FROM: u64 = 1;
/// So many times the units of a slice remain at the remote where there are enough for all.
const AMPLE: u64 = 4;
/// Units of a slow key that refill in half of their life are not returned.
const REFILLED_FROM: u64 = 2;
/// The same for slices whose unused units are returned, which is one more call; and for slices that are taken ahead,
/// where no use pays for the call.
const PAYS_TWO_CALLS_FROM: u64 = 4;
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
    /// More is taken ahead when so few units remain: the likely use in the lead.
    low_mark: u64,
    /// The most units to keep for [`LONG_LIFE`].
    long_kept: u64,
    /// Units used since the last estimate of the demand, and when that was.
    spent: u64,
    estimated_at: Timestamp,
    /// What remained at the remote after the last call, and when its limit resets.
    left: u64,
    resets: Timestamp,
    granted: Timestamp,
    /// Whether units were taken ahead, so that using up all of them says that there were too few.
    is_leased: bool,
    /// How long the remote takes to answer.
    round_trip: Nanos,
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

/// How many units a check takes from the remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakePlan {
    pub(crate) units: u64,
    /// Whether the units are the check's own cost, and nothing is held: the remote can decide the check itself.
    pub(crate) is_exact: bool,
    /// Whether far more remained at the remote, so that it will probably grant all units or the check's cost.
    pub(crate) is_ample: bool,
}

impl TakePlan {
    /// The check's own cost.
    pub(crate) const fn exact(units: u64) -> Self {
        TakePlan { units, is_exact: true, is_ample: false }
    }
}

/// Circumstances of a grant that are the same for all keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantContext {
    /// The nodes that share what remains.
    pub(crate) nodes: u64,
    /// The longest pause before an empty remote is called again.
    pub(crate) pause_max: Nanos,
    /// How long the remote takes to answer.
    pub(crate) round_trip: Nanos,
}

impl KeyLease {
    /// A lease without units, created at `now`.
    pub(crate) fn new(key: Key, limit: Limit, terms: LeaseTerms, era: u64, now: Timestamp) -> Self {
        let lasting = LASTING.min(Nanos::new(terms.life.get() / 8 * 7));
        KeyLease {
            key,
            limit,
            terms,
            slices: Slices::default(),
            demand: Demand::new(lasting),
            share: u64::MAX,
            low_mark: 0,
            long_kept: 0,
            spent: 0,
            estimated_at: now,
            left: 0,
            resets: Timestamp::EPOCH,
            granted: Timestamp::EPOCH,
            is_leased: false,
            round_trip: Nanos::ZERO,
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
        (units > 0).then(|| Transfer {
            key: self.key,
            limit: self.terms.tightened.clone(),
            units,
            is_ample: self.has_ample(units),
        })
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

    /// How many units to take for a check of this cost: as many as the demand needs; only the missing ones if a slice
    /// does not pay off, or if another call is in flight.
    pub(crate) fn take_for_check(&mut self, cost: u64, now: Timestamp) -> TakePlan {
        let missing = cost.saturating_sub(self.slices.usable(now));
        let is_exact = missing == cost;
        let only_missing = TakePlan { units: missing, is_exact, is_ample: false };
        if self.has_call_in_flight(now) {
            return only_missing;
        }
        self.update_demand(now);
        self.is_leased = self.expects_in_slice(self.pays_from(now), now);
        if !self.is_leased {
            return only_missing;
        }
        let units = missing.max(self.size(now).saturating_sub(self.lasting(now)));
        self.called_at = Some(now);
        let is_ample = self.has_ample(units);
        TakePlan { units, is_exact: is_exact && units == missing, is_ample }
    }

    /// How many units to take ahead.
    pub(crate) fn take_ahead(&mut self, now: Timestamp) -> u64 {
        self.marked = false;
        if self.has_call_in_flight(now) {
            return 0;
        }
        self.update_demand(now);
        let units = self.size(now).saturating_sub(self.lasting(now));
        if units > 0 {
            self.called_at = Some(now);
        }
        units
    }

    /// Whether far more than these units remained at the remote.
    const fn has_ample(&self, units: u64) -> bool {
        self.left / AMPLE >= units
    }

    /// Whether a call was sent that may still be answered.
    fn has_call_in_flight(&self, now: Timestamp) -> bool {
        self.called_at.is_some_and(|at| at <= now && now.since(at) < CALL_MAX)
    }

    /// Whether a slice that is taken now is expected to have so many uses.
    fn expects_in_slice(&self, units: u64, now: Timestamp) -> bool {
        self.demand.expects(units, self.usable_for(now))
    }

    /// How many uses a slice needs that a check takes.
    fn pays_from(&self, now: Timestamp) -> u64 {
        if self.returns_unused(now) { PAYS_TWO_CALLS_FROM } else { PAYS_FROM }
    }

    /// Whether the few unused units of a slow key would be returned: not those that refill, or whose window ends, about
    /// as soon as they would be back.
    fn returns_unused(&self, now: Timestamp) -> bool {
        match self.terms.returns {
            ReturnRule::Never => false,
            ReturnRule::LessRefill { amount, period } => {
                refilled(amount, period, Nanos::new(self.terms.life.get() / 2)) < REFILLED_FROM
            }
            ReturnRule::InWindow => self.is_scarce(now) || self.window_left(now) > self.terms.life,
        }
    }

    /// Whether less than half of the limit remains at the remote.
    fn is_scarce(&self, now: Timestamp) -> bool {
        let algorithm = self.terms.tightened.algorithm();
        let is_over = self.terms.returns == ReturnRule::InWindow && self.resets <= now;
        !is_over && self.left < algorithm.capacity() / 2
    }

    /// How long the window lasts; a whole one if the last that is known is over.
    fn window_left(&self, now: Timestamp) -> Nanos {
        match self.resets.since(now) {
            Nanos::ZERO => self.terms.tightened.algorithm().period(),
            left => left,
        }
    }

    /// How long units that are taken now can be used.
    fn usable_for(&self, now: Timestamp) -> Nanos {
        let delay = CLOCK_SLACK.get().saturating_add(self.round_trip.get());
        let life = match self.terms.returns {
            ReturnRule::InWindow => self.terms.life.min(self.window_left(now)),
            ReturnRule::LessRefill { .. } if self.demand.size_for(LONG_LIFE) <= self.long_kept => {
                LONG_LIFE
            }
            ReturnRule::Never | ReturnRule::LessRefill { .. } => self.terms.life,
        };
        Nanos::new(life.get().saturating_sub(delay))
    }

    fn update_demand(&mut self, now: Timestamp) {
        let passed = now.since(self.estimated_at);
        let ran_dry = self.is_leased && self.units() == 0;
        self.demand.update(Usage { units: self.spent, passed, ran_dry });
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
        let usable = self.usable_for(now);
        let needed = if usable > LASTING {
            let slow = self.demand.size_for(usable).min(SLOW_UNITS);
            self.demand.size_for(self.needed_for(usable, now)).max(slow)
        } else {
            self.demand.size_for(self.demand.lasting().min(usable))
        };
        // Half of it lasts until the next renewal comes, unless it expires before.
        let on_the_way = self.demand.likely_in(self.lead()).saturating_mul(2);
        let needed = needed.max(on_the_way.min(self.demand.size_for(usable)));
        needed.min(most).max(1)
    }

    /// How long the units of a call should last, of the time in which they can be used: all of it, if unused ones cost
    /// others nothing.
    fn needed_for(&self, usable: Nanos, now: Timestamp) -> Nanos {
        let is_free = match self.terms.returns {
            ReturnRule::Never => false,
            ReturnRule::LessRefill { .. } => self.demand.size_for(LONG_LIFE) <= self.long_kept,
            ReturnRule::InWindow => self.lets_units_expire(now),
        };
        if is_free { usable } else { LASTING.min(usable) }
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
        let lead = LEAD.get().saturating_add(self.round_trip.get().saturating_mul(2));
        Nanos::new(lead.min(self.terms.life.get() / 2))
    }

    /// Adds the slice that the remote granted for the call at `sent`. The nodes share what remains: near the limit
    /// slices get small, so that no node starves.
    pub(crate) fn grant(&mut self, decision: &Decision, sent: Timestamp, context: GrantContext) {
        let GrantContext { nodes, pause_max, round_trip } = context;
        self.round_trip = round_trip;
        self.long_kept = self.terms.long_kept(nodes);
        self.called_at = None;
        self.marked = false;
        self.left = decision.remaining;
        self.resets = sent.after(decision.reset_after);
        self.granted = sent;
        self.share = decision.remaining / nodes.saturating_mul(2).max(1);
        self.low_mark = self.demand.likely_in(self.lead()).min(self.size(sent) / 2);
        if let Some(span) = self.pause(decision, nodes) {
            self.empty_until = sent.after(span.min(pause_max));
        }
        let mut slice = self.slice(decision, sent);
        if slice.expires <= sent {
            return;
        }
        if self.terms.returns == ReturnRule::InWindow {
            self.slices.renew(&mut slice, self.terms.scarce_life);
        }
        if slice.units > 0 {
            self.slices.add(slice);
        }
    }

    /// How long not to call again, if nothing remains at the remote. The node that took the last unit of a bucket
    /// leaves the next ones to the other nodes.
    fn pause(&self, decision: &Decision, nodes: u64) -> Option<Nanos> {
        if decision.taken == 0 && decision.remaining > 0 {
            // Too little for this check, which was not cut: enough for smaller ones.
            return None;
        }
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

    /// Whether to replace units that expire soon: the key was used since the last estimate, and will use several.
    pub(crate) fn is_wanted(&self, now: Timestamp) -> bool {
        self.spent > 0 && self.may_call(now) && self.pays_ahead(now)
    }

    /// Whether units are taken ahead, before a check needs them.
    pub(crate) fn pays_ahead(&self, now: Timestamp) -> bool {
        self.expects_in_slice(PAYS_TWO_CALLS_FROM, now)
    }

    /// Takes out the units to return, because the key is unused or they will probably expire unused. The second number
    /// is the units that are lost.
    pub(crate) fn take_returnable(&mut self, now: Timestamp, options: ReturnOptions) -> (u64, u64) {
        let (mut back, mut lost, mut kept) = (0, 0, 0_u64);
        if !options.all && (self.has_call_in_flight(now) || self.lets_units_expire(now)) {
            return (back, lost);
        }
        let (returns, life, demand) = (self.terms.returns, self.return_span(now), self.demand);
        let kept_for = self.needed_for(LONG_LIFE, now);
        let whole = options.all || self.is_unused(now);
        for slice in self.slices.iter_mut().filter(|slice| slice.units > 0) {
            let units = slice.returnable(returns, now, options.within);
            if whole && units > 0 {
                back += units;
                lost += slice.units - units;
                slice.units = 0;
            } else if now.since(slice.taken_at).get() > life.get() / 2 {
                let likely = demand.likely_in(slice.expires.since(now).min(kept_for));
                let needed = likely.saturating_sub(kept);
                let units = units.min(slice.units.saturating_sub(needed));
                back += units;
                slice.units -= units;
            }
            kept = kept.saturating_add(slice.units);
        }
        (back, lost)
    }

    /// Whether unused units are left to expire with their window: it ends soon, and enough remains for others.
    fn lets_units_expire(&self, now: Timestamp) -> bool {
        self.terms.returns == ReturnRule::InWindow && !self.returns_unused(now)
    }

    /// The span whose parts decide when units are returned.
    fn return_span(&self, now: Timestamp) -> Nanos {
        if self.is_scarce(now) { self.terms.scarce_life } else { self.terms.life }
    }

    /// Whether the key is probably not used any more.
    fn is_unused(&self, now: Timestamp) -> bool {
        let (unused, life) = (now.since(self.used.max(self.granted)), self.return_span(now).get());
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

    pub(crate) fn admission(&self, cost: u64, now: Timestamp) -> Decision {
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
        self.units() <= self.low_mark && self.may_call(now) && self.pays_ahead(now)
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
            ReturnRule::LessRefill { .. }
                if self.units().saturating_add(decision.taken) <= self.long_kept =>
            {
                sent.after(LONG_LIFE)
            }
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
