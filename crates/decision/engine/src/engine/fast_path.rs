//! The fast path of the common request: one descriptor, whose rule enforces its limits for every caller and refers to no
//! other rule.
//!
//! No batch is built: the store reads the checks off the rule's limits, which lie side by side, and its answers become
//! rulings in the verdict. Faster still is one unit of each limit where these are one or two token buckets; that is
//! tried first. Everything else, including a new key, is left to the general path, with nothing charged.

use tidegate_algorithms::{
    BucketState, CheckInput, Clock, Decision, Holder, State, Tenure, Timestamp, TokenBucket,
    UnitOutcome,
};
use tidegate_rules::{RuleId, Values};
use tidegate_stores::{
    Answer, AnswerSlot, Basis, Charge, Fingerprint, MemoryStore, Role, UnitsOutcome, Verb,
};

use super::Engine;
use crate::active_rules::{HotLimit, HotRule};
use crate::permit::{HeldSlots, list_slots};
use crate::prepare::{Call, MatchedLimit, fingerprint};
use crate::verdict::{Ruling, Rulings, Verdict};

/// How far the fast path got.
pub(super) enum FastPath {
    /// Every limit has its ruling.
    Decided,
    /// The descriptor was matched, with this rule if any; nothing was charged.
    Matched(Option<RuleId>),
    /// The request is not of this kind.
    NotTried,
}

/// One request to the limits of a plain rule.
struct PlainCheck<'s> {
    rule: &'s HotRule,
    fingerprint: Fingerprint,
    cost: u64,
    tenure: Tenure,
    charge: Charge,
    now: Timestamp,
}

impl<S, C: Clock> Engine<S, C> {
    /// Fills the verdict except for its outcome, if it can. `values` receives the values that select the rule's counters.
    #[inline]
    pub(super) fn try_fast_path<'r>(
        &self,
        store: &MemoryStore,
        verdict: &mut Verdict,
        call: &Call<'_, 'r>,
        slots: Option<&mut HeldSlots>,
        values: &mut Values<'r>,
    ) -> FastPath {
        let Verdict { rules, domain_known, matched, rulings, decided_at, .. } = verdict;
        let request = call.request;
        let [descriptor] = request.descriptors else { return FastPath::NotTried };
        if call.verb != Verb::Check || descriptor.refund || descriptor.limit.is_some() {
            return FastPath::NotTried;
        }
        let Some(domain) = rules.snapshot().domain(request.domain) else {
            return FastPath::NotTried;
        };
        let now = self.clock.now();
        let id = domain.find_id(descriptor.entries, now, values);
        let rule = id.and_then(|id| rules.rule(id));
        let Some(rule) = rule.filter(|rule| rule.is_plain) else { return FastPath::Matched(id) };
        if !rule.limits.iter().all(|limit| limit.mode.is_enforced()) {
            return FastPath::Matched(id);
        }
        let check = PlainCheck {
            rule,
            fingerprint: fingerprint(&self.fingerprinter, rule.identity, values),
            cost: descriptor.cost.unwrap_or(request.cost),
            tenure: call.tenure,
            charge: domain.charge(),
            now,
        };
        *decided_at = check.now;
        if take_units(store, &check, rulings).is_none()
            && !self.check_known_keys(store, check, slots, rulings)
        {
            return FastPath::Matched(id);
        }
        *domain_known = true;
        matched.push(id);
        FastPath::Decided
    }

    /// Lets the store decide the limits of a rule in place. Returns false, with nothing charged, if it cannot.
    #[inline(always)]
    fn check_known_keys(
        &self,
        store: &MemoryStore,
        PlainCheck { rule, fingerprint, cost, tenure, charge, now }: PlainCheck<'_>,
        mut slots: Option<&mut HeldSlots>,
        rulings: &mut Rulings,
    ) -> bool {
        let limits = &*rule.limits;
        let holder = if rule.holds_slots { self.next_holder() } else { Holder::default() };
        let checks = limits.iter().map(|limit: &HotLimit| {
            let holder = if limit.holds_slots { holder } else { Holder::default() };
            MatchedLimit { limit, fingerprint, cost, role: limit.role }.check(holder, tenure)
        });
        if let Some(slots) = slots.as_mut().filter(|_| rule.holds_slots) {
            let ids = limits.iter().map(|limit| Some(limit.id));
            list_slots(slots, ids.zip(checks.clone()));
        }
        let decided = store.check_known_keys(charge, now, checks, |index, check, answer| {
            if let Some(ruling) = rulings.get_mut(index) {
                // The second answer for a check, because another limit refused.
                return ruling.put(answer);
            }
            let Answer { decision, basis } = answer;
            let limit = limits.get(index).map(|limit| limit.id);
            let (cost, role) = (check.cost, check.role);
            rulings.push(Ruling { descriptor: 0, limit, cost, decision, basis, role });
        });
        if !decided {
            rulings.clear();
            if let Some(slots) = slots {
                slots.clear();
            }
        }
        decided
    }
}

/// Takes one unit of each limit of a rule, if the rule has one or two token buckets and the request costs one. `None`,
/// with nothing charged, if not.
#[inline(always)]
fn take_units(store: &MemoryStore, check: &PlainCheck<'_>, rulings: &mut Rulings) -> Option<()> {
    if !check.rule.takes_units || check.cost != 1 {
        return None;
    }
    match &*check.rule.limits {
        [one] => take_units_of(store, [(one, one.bucket()?)], check, rulings),
        [one, other] => {
            let limits = [(one, one.bucket()?), (other, other.bucket()?)];
            take_units_of(store, limits, check, rulings)
        }
        _ => None,
    }
}

// Not inlined: inlining spills the caller's registers.
#[inline(never)]
fn take_units_of<const N: usize>(
    store: &MemoryStore,
    limits: [(&HotLimit, &TokenBucket); N],
    check: &PlainCheck<'_>,
    rulings: &mut Rulings,
) -> Option<()> {
    let now = check.now;
    let buckets = limits.map(|(limit, bucket)| (check.fingerprint.under(limit.identity), bucket));
    match store.take_units(buckets, now)? {
        UnitsOutcome::Taken(states) => {
            for ((limit, bucket), after) in limits.iter().zip(&states) {
                rulings.push(unit_ruling(limit, bucket.unit_admission(*after, now)));
            }
            Some(())
        }
        UnitsOutcome::Refused(states) => refuse_units(&limits, &states, check, rulings),
    }
}

/// A limit's ruling on one unit.
#[inline(always)]
const fn unit_ruling(limit: &HotLimit, decision: Decision) -> Ruling {
    let (limit, role, basis) = (Some(limit.id), limit.role, Basis::Exact);
    Ruling { descriptor: 0, limit, cost: 1, decision, basis, role }
}

/// The rulings on units that were not taken because one limit had none. `None` if the refusal charges other limits or
/// the request passes nevertheless: the general path decides those.
#[cold]
fn refuse_units(
    limits: &[(&HotLimit, &TokenBucket)],
    states: &[BucketState],
    check: &PlainCheck<'_>,
    rulings: &mut Rulings,
) -> Option<()> {
    let required = limits.iter().all(|(limit, _)| limit.role == Role::Required);
    if check.charge != Charge::AllOrNothing || !required {
        return None;
    }
    for ((limit, bucket), state) in limits.iter().zip(states) {
        let decision = match bucket.take_unit(*state, check.now) {
            Some(UnitOutcome::Refused) => bucket.unit_refusal(*state, check.now),
            // This limit would have admitted.
            _ => limit.limit.peek(&mut State::Bucket(*state), CheckInput::new(1, check.now)),
        };
        rulings.push(unit_ruling(limit, decision));
    }
    Some(())
}
