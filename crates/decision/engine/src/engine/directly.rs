//! The short way of the common request: one descriptor, whose rule enforces its limits for
//! everybody and says nothing of other rules.
//!
//! Nothing is written down for the store here: it reads the checks off the rule's limits, which
//! lie side by side, and its answers become rulings where the verdict keeps them. Shorter still is
//! the way of one unit of each limit, where these are one or two token buckets; it is tried first.
//! Whatever is not that simple, a new key included, is left to `here`, and nothing is charged then.

use tidegate_algorithms::{
    BucketState, CheckInput, Clock, Decision, Holder, State, Tenure, Timestamp, TokenBucket,
    UnitOutcome,
};
use tidegate_rules::{RuleId, Values};
use tidegate_stores::{
    Answer, AnswerSlot, Basis, Charge, Fingerprint, MemoryStore, Role, UnitsOutcome, Verb,
};

use super::Engine;
use crate::gather::{MetLimit, charge_of, fingerprint};
use crate::loaded::{BriefLimit, BriefRule};
use crate::permit::{Taking, keep_taken, list_slots};
use crate::request::Request;
use crate::verdict::{Ruling, Rulings, Verdict};

/// How far the short way led.
pub(super) enum Directly {
    /// To the end: all but the outcome is filled.
    Decided,
    /// To the rule that the descriptor met, if any.
    Met(Option<RuleId>),
    /// Nowhere.
    NotTried,
}

/// What is asked of a rule.
struct PlainRule<'s> {
    rule: &'s BriefRule,
    fingerprint: Fingerprint,
    asked: u64,
    charge: Charge,
    now: Timestamp,
}

impl<C: Clock> Engine<MemoryStore, C> {
    /// Fills all but the outcome, if it can. `values` are those that tell the rule's counters apart.
    #[inline]
    pub(super) fn fill_directly<'r>(
        &self,
        verdict: &mut Verdict,
        verb: Verb,
        request: &Request<'r>,
        taking: &mut Option<Taking<'_>>,
        values: &mut Values<'r>,
    ) -> Directly {
        let Verdict { loaded, domain_known, met, rulings, .. } = verdict;
        let [descriptor] = request.descriptors else { return Directly::NotTried };
        if verb != Verb::Check || descriptor.refund || descriptor.limit.is_some() {
            return Directly::NotTried;
        }
        let Some(domain) = loaded.snapshot().domain(request.domain) else {
            return Directly::NotTried;
        };
        let found = domain.find_id(descriptor.entries, values);
        let rule = found.and_then(|found| loaded.rule(found));
        let Some(rule) = rule.filter(|rule| rule.is_plain) else { return Directly::Met(found) };
        if !rule.limits.iter().all(|limit| limit.switch.is_full()) {
            return Directly::Met(found);
        }
        let asked = PlainRule {
            rule,
            fingerprint: fingerprint(&self.fingerprinter, rule.identity, values),
            asked: descriptor.cost.unwrap_or(request.cost),
            charge: charge_of(domain),
            now: self.clock.now(),
        };
        if self.take_units(&asked, rulings).is_none()
            && !self.decide_plainly(asked, taking, rulings)
        {
            return Directly::Met(found);
        }
        *domain_known = true;
        met.push(found);
        self.count(verb, loaded, rulings);
        Directly::Decided
    }

    /// Asks for one unit of each limit of a rule, if that is all there is to it. `None`, and
    /// nothing left of the attempt, if not.
    #[inline(always)]
    fn take_units(&self, asked: &PlainRule<'_>, rulings: &mut Rulings) -> Option<()> {
        if !asked.rule.takes_units || asked.asked != 1 {
            return None;
        }
        match &*asked.rule.limits {
            [one] => self.take_units_of([(one, one.bucket()?)], asked, rulings),
            [one, other] => {
                let limits = [(one, one.bucket()?), (other, other.bucket()?)];
                self.take_units_of(limits, asked, rulings)
            }
            _ => None,
        }
    }

    // A function of its own: one that does everything has no registers left for what is common.
    #[inline(never)]
    fn take_units_of<const N: usize>(
        &self,
        limits: [(&BriefLimit, &TokenBucket); N],
        asked: &PlainRule<'_>,
        rulings: &mut Rulings,
    ) -> Option<()> {
        let now = asked.now;
        let key = asked.fingerprint;
        let buckets = limits.map(|(limit, bucket)| (key.under(limit.identity), bucket));
        match self.store.take_units(buckets, now)? {
            UnitsOutcome::Taken(states) => {
                for ((limit, bucket), after) in limits.iter().zip(&states) {
                    rulings.push(of_unit(limit, bucket.unit_admission(*after, now)));
                }
                Some(())
            }
            UnitsOutcome::Refused(states) => refuse_units(&limits, &states, asked, rulings),
        }
    }

    /// Asks the store for the limits of a rule. Says whether it could decide; if not, nothing is
    /// left of the attempt.
    #[inline(always)]
    fn decide_plainly(
        &self,
        PlainRule { rule, fingerprint, asked, charge, now }: PlainRule<'_>,
        taking: &mut Option<Taking<'_>>,
        rulings: &mut Rulings,
    ) -> bool {
        let limits = &*rule.limits;
        let holder = if rule.counts_slots { self.next_holder() } else { Holder::default() };
        let tenure = taking.as_ref().map_or(Tenure::TimeToLive, |taking| taking.tenure);
        let checks = limits.iter().map(|limit: &BriefLimit| {
            let holder = if limit.counts_slots { holder } else { Holder::default() };
            MetLimit { limit, fingerprint, asked, role: limit.role }.check(holder, tenure)
        });
        let mut slots = taking.as_mut().map(|taking| &mut *taking.slots);
        if let Some(slots) = slots.as_mut().filter(|_| rule.counts_slots) {
            let ids = limits.iter().map(|limit| Some(limit.id));
            list_slots(slots, ids.zip(checks.clone()));
        }
        let decided = self.store.check_known_keys(charge, now, checks, |place, check, told| {
            if let Some(ruling) = rulings.get_mut(place) {
                // Told again, because another limit refuses.
                return ruling.put(told);
            }
            let Answer { decision, basis } = told;
            let limit = limits.get(place).map(|limit| limit.id);
            let (cost, role) = (check.cost, check.role);
            rulings.push(Ruling { descriptor: 0, limit, cost, decision, basis, role });
        });
        if !decided {
            rulings.clear();
        }
        if let Some(slots) = slots.filter(|_| rule.counts_slots) {
            keep_taken(slots, rulings);
        }
        decided
    }
}

/// A limit's ruling on one unit.
#[inline(always)]
const fn of_unit(limit: &BriefLimit, decision: Decision) -> Ruling {
    let (limit, role, basis) = (Some(limit.id), limit.role, Basis::Exact);
    Ruling { descriptor: 0, limit, cost: 1, decision, basis, role }
}

/// The rulings on units that were not taken because one was missing. `None` where others are
/// charged or the request passes all the same, which takes more than looking at states.
#[cold]
fn refuse_units(
    limits: &[(&BriefLimit, &TokenBucket)],
    states: &[BucketState],
    asked: &PlainRule<'_>,
    rulings: &mut Rulings,
) -> Option<()> {
    let required = limits.iter().all(|(limit, _)| limit.role == Role::Required);
    if asked.charge != Charge::AllOrNothing || !required {
        return None;
    }
    for ((limit, bucket), state) in limits.iter().zip(states) {
        let decision = match bucket.take_unit(*state, asked.now) {
            Some(UnitOutcome::Refused) => bucket.unit_refusal(*state, asked.now),
            // It would have admitted.
            _ => limit.limit.peek(&mut State::Bucket(*state), CheckInput::new(1, asked.now)),
        };
        rulings.push(of_unit(limit, decision));
    }
    Some(())
}
