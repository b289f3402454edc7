//! Checks of known keys, decided where their states are.
//!
//! A key is known if it is in the table. Its state is read from its slot, judged, and written back:
//! nothing is inserted, moved or allocated. Concurrency slots are a list in the shard's overflow
//! area; they are judged there as long as the list has room for one more holder. Several checks are
//! one transaction: every shard involved is locked, in shard order so that callers cannot deadlock,
//! all checks are judged, and then all states are written or none.
//!
//! Everything else is left to the general path (`general`, `verbs`): a new key, a key that occurs
//! twice, a state of another kind, a list that would have to grow. The functions then return
//! without having charged anything.
//!
//! One unit of a token bucket is the most frequent check, so [`MemoryStore::take_units`] decides it
//! with less: no [`Check`], no answer slots, and the number of keys is known to the compiler.

use smallvec::SmallVec;
use tidegate_algorithms::{
    BucketState, CheckInput, Decision, Limit, SmallLimit, Timestamp, TokenBucket, TwoStepCheck,
};

use super::MemoryStore;
use super::lock::LockedShard;
use super::shard::{Shard, StateChange, UnitChange};
use super::slot::Pack;
use crate::batch::{Answer, AnswerSlot, Batch, Charge, Check, Key, Verb, passes};
use crate::fingerprint::Fingerprint;

/// Checks of a rule in one transaction; rules with more limits take the general path of the engine.
const RULE_CHECKS_MAX: usize = 4;
/// Checks of a request in one transaction: more than requests have, and few enough for the stack.
const REQUEST_CHECKS_MAX: usize = 16;

/// The result of [`MemoryStore::take_units`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitsOutcome<const N: usize> {
    /// Every bucket had a unit, and it was taken. The states after that, for
    /// [`TokenBucket::unit_admission`].
    Taken([BucketState; N]),
    /// A bucket had no unit left, and nothing was taken. The unchanged states, for
    /// [`TokenBucket::unit_refusal`].
    Refused([BucketState; N]),
}

/// The concurrency limit among the checks of a transaction.
#[derive(Clone, Copy, Debug)]
struct SlotsCheck {
    index: usize,
    decision: Decision,
}

impl MemoryStore {
    /// Takes one unit of each bucket. The keys must be in one shard. Returns `None`, and charges
    /// nothing, if a key is new, occurs twice, or has a state that needs the general path.
    #[inline(always)]
    pub fn take_units<const N: usize>(
        &self,
        buckets: [(Fingerprint, &TokenBucket); N],
        now: Timestamp,
    ) -> Option<UnitsOutcome<N>> {
        let (first, _) = buckets.first()?;
        let mut shard = self.lock(*first);
        let mut units = [UnitChange::NONE; N];
        for (unit, (key, bucket)) in units.iter_mut().zip(&buckets) {
            *unit = shard.judge_unit(*key, bucket, now)?;
        }
        // Limits that share a counter would take one unit together instead of one each.
        for at in 1..N {
            if units[..at].iter().any(|unit| unit.change.slot == units[at].change.slot) {
                return None;
            }
        }
        if units.iter().all(|unit| unit.change.admitted) {
            units.iter().for_each(|unit| shard.overwrite(&unit.change));
            return Some(UnitsOutcome::Taken(units.map(|unit| unit.state)));
        }
        Some(UnitsOutcome::Refused(units.map(|unit| unit.state_before(&shard))))
    }

    /// Decides a check without a holder, and returns only the decision.
    #[inline(always)]
    pub fn decide_one(&self, key: Key, limit: &Limit, cost: u64, now: Timestamp) -> Decision {
        let Key { fingerprint, group } = key;
        if cost == 1
            && let Some(SmallLimit::TokenBucket(bucket)) = limit.small()
            && let Some(outcome) = self.take_units([(fingerprint, bucket)], now)
        {
            return match outcome {
                UnitsOutcome::Taken([after]) => bucket.unit_admission(after, now),
                UnitsOutcome::Refused([state]) => bucket.unit_refusal(state, now),
            };
        }
        self.decide_check(fingerprint, group, limit, cost, now)
    }

    // Takes the parts of the key: a `Key` would be written to the stack before the fast path.
    #[inline(never)]
    fn decide_check(
        &self,
        fingerprint: Fingerprint,
        group: u64,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        self.check_one(&Check::new(Key { fingerprint, group }, limit, cost), now).decision
    }

    /// Decides one check.
    #[inline(always)]
    pub fn check_one(&self, check: &Check<'_>, now: Timestamp) -> Answer {
        if let Some(limit) = check.limit.small() {
            let mut shard = self.lock(check.key.fingerprint);
            let (mut change, mut answer) = (StateChange::default(), Answer::BLANK);
            if judge(&shard, limit, check, now, &mut change, |decided| answer = decided) {
                shard.write(&change);
                return answer;
            }
        }
        self.apply_to_key(Verb::Check, check, now)
    }

    /// Whether [`MemoryStore::check_known_keys`] can decide checks of these limits.
    pub fn can_check_known_keys<'l>(limits: impl Iterator<Item = &'l Limit>) -> bool {
        let (mut small, mut slots) = (0, 0);
        for limit in limits {
            match limit.small() {
                Some(_) => small += 1,
                None if has_only_slots(limit) => slots += 1,
                None => return false,
            }
        }
        slots <= 1 && small + slots <= RULE_CHECKS_MAX
    }

    /// Decides the checks of one rule atomically. Returns false, charging nothing, if a key is new
    /// or the general path is needed for another reason. Calls `write(index, check, answer)` for
    /// each check; a second call for the same index replaces the first, because another check
    /// refuses.
    ///
    /// The checks come from an iterator, so that a caller need not build a list of them.
    // Not inlined: inlining spills the registers of the caller's fast path.
    #[inline(never)]
    pub fn check_known_keys<'c>(
        &self,
        charge: Charge,
        now: Timestamp,
        checks: impl Iterator<Item = Check<'c>> + Clone,
        write: impl FnMut(usize, &Check<'c>, Answer),
    ) -> bool {
        let Some(first) = checks.clone().next() else { return true };
        let shard = OneShard(self.lock(first.key.fingerprint));
        transact::<RULE_CHECKS_MAX>(shard, charge, now, checks, write)
    }

    /// The same for the checks of a request.
    #[inline(never)]
    pub(super) fn check_request(&self, batch: &Batch<'_>, slots: &mut [impl AnswerSlot]) -> bool {
        let Batch { charge, now, .. } = *batch;
        let checks = batch.checks.iter().copied();
        let write = |index: usize, _: &Check<'_>, answer| {
            if let Some(slot) = slots.get_mut(index) {
                slot.put(answer);
            }
        };
        let Some(first) = batch.checks.first() else { return true };
        let shard = self.shard_of(first.key.fingerprint);
        let is_elsewhere = |check: &Check<'_>| self.shard_of(check.key.fingerprint) != shard;
        if batch.checks.len() > RULE_CHECKS_MAX || batch.checks.iter().any(is_elsewhere) {
            let shards = SeveralShards::lock(self, batch.checks);
            return shards.is_some_and(|shards| {
                transact::<REQUEST_CHECKS_MAX>(shards, charge, now, checks, write)
            });
        }
        let shard = OneShard(self.shards[shard].lock());
        transact::<RULE_CHECKS_MAX>(shard, charge, now, checks, write)
    }
}

/// Decides up to `MAX` checks. Returns false, charging nothing, if the general path is needed.
#[inline(always)]
fn transact<'c, const MAX: usize>(
    mut shards: impl LockedShards,
    charge: Charge,
    now: Timestamp,
    checks: impl Iterator<Item = Check<'c>> + Clone,
    mut write: impl FnMut(usize, &Check<'c>, Answer),
) -> bool {
    let mut changes = [StateChange::default(); MAX];
    let (mut slots, mut admitted) = (None, true);
    let mut count = 0;
    for (index, check) in checks.clone().enumerate() {
        let Some(change) = changes.get_mut(index) else { return false };
        let Some(shard) = shards.of(index) else { return false };
        let write = |answer| write(index, &check, answer);
        let is_judged = match check.limit.small() {
            Some(limit) => judge(shard, limit, &check, now, change, write),
            None if slots.is_some() => false,
            None => {
                let (key, input) = (check.key.fingerprint, check.input(now));
                let decision = judge_slots(shard, key, check.limit, input, change);
                slots = decision.map(|decision| SlotsCheck { index, decision });
                decision.map(Answer::exact).map(write).is_some()
            }
        };
        if !is_judged {
            return false;
        }
        admitted &= change.admitted;
        count += 1;
    }
    let changes = changes.get(..count).unwrap_or_default();
    if shards.has_duplicate_keys(changes) {
        return false;
    }
    if !admitted && !passes_anyway(charge, checks.clone(), changes) {
        refuse(&mut shards, now, checks, changes, slots, write);
        return true;
    }
    for (index, change) in changes.iter().enumerate() {
        if slots.is_none_or(|slots| slots.index != index)
            && let Some(shard) = shards.of(index)
        {
            shard.write(change);
        }
    }
    if let Some(SlotsCheck { index, decision }) = slots
        && let Some(check) = checks.clone().nth(index)
        && let Some(shard) = shards.of(index)
    {
        charge_slots(shard, changes[index].slot, check.limit, check.input(now), &decision);
    }
    true
}

/// The locked shards of a transaction.
trait LockedShards {
    /// The shard of a check.
    fn of(&mut self, index: usize) -> Option<&mut Shard>;

    /// Whether two changes are of one key.
    fn has_duplicate_keys(&self, changes: &[StateChange]) -> bool;
}

/// The shard of all checks: the limits of one rule are always in one shard.
struct OneShard<'s>(LockedShard<'s>);

/// The shards of up to [`REQUEST_CHECKS_MAX`] checks.
struct SeveralShards<'s> {
    locks: SmallVec<[LockedShard<'s>; REQUEST_CHECKS_MAX]>,
    /// The index of each check's lock.
    lock_of: [u8; REQUEST_CHECKS_MAX],
}

impl LockedShards for OneShard<'_> {
    #[inline(always)]
    fn of(&mut self, _index: usize) -> Option<&mut Shard> {
        Some(&mut self.0)
    }

    #[inline(always)]
    fn has_duplicate_keys(&self, changes: &[StateChange]) -> bool {
        if let [one, other] = changes {
            return one.slot == other.slot;
        }
        has_duplicates(changes, |index| changes[index].slot)
    }
}

impl<'s> SeveralShards<'s> {
    /// Locks the shards of these checks; `None` if there are too many checks.
    #[inline(always)]
    fn lock(store: &'s MemoryStore, checks: &[Check<'_>]) -> Option<Self> {
        // A check's shard and its index, as one number: sorting these gives the order of locking.
        let mut order = [0; REQUEST_CHECKS_MAX];
        let order = order.get_mut(..checks.len())?;
        for (index, (entry, check)) in order.iter_mut().zip(checks).enumerate() {
            *entry = store.shard_of(check.key.fingerprint) * REQUEST_CHECKS_MAX + index;
        }
        order.sort_unstable();
        let mut shards = SeveralShards { locks: SmallVec::new(), lock_of: [0; REQUEST_CHECKS_MAX] };
        let mut last = None;
        for entry in order {
            let (shard, index) = (*entry / REQUEST_CHECKS_MAX, *entry % REQUEST_CHECKS_MAX);
            if last.replace(shard) != Some(shard) {
                shards.locks.push(store.shards[shard].lock());
            }
            shards.lock_of[index] = u8::try_from(shards.locks.len() - 1).ok()?;
        }
        Some(shards)
    }
}

impl LockedShards for SeveralShards<'_> {
    #[inline(always)]
    fn of(&mut self, index: usize) -> Option<&mut Shard> {
        let lock = usize::from(*self.lock_of.get(index)?);
        self.locks.get_mut(lock).map(|shard| &mut **shard)
    }

    #[inline(always)]
    fn has_duplicate_keys(&self, changes: &[StateChange]) -> bool {
        // Mostly every check has a shard of its own.
        self.locks.len() < changes.len()
            && has_duplicates(changes, |index| (self.lock_of[index], changes[index].slot))
    }
}

#[inline(always)]
fn has_duplicates<T: PartialEq>(changes: &[StateChange], cell: impl Fn(usize) -> T) -> bool {
    (1..changes.len()).any(|at| (0..at).any(|before| cell(before) == cell(at)))
}

/// Judges the check of a known key whose state is in its slot; returns false if it is not.
// Calls `write` where the decision is made: a decision that is returned is copied.
#[inline(always)]
fn judge(
    shard: &Shard,
    limit: SmallLimit<'_>,
    check: &Check<'_>,
    now: Timestamp,
    change: &mut StateChange,
    write: impl FnOnce(Answer),
) -> bool {
    match limit {
        SmallLimit::TokenBucket(bucket) => {
            if check.cost == 1
                && let Some(unit) = shard.judge_unit(check.key.fingerprint, bucket, now)
            {
                *change = unit.change;
                write(Answer::exact(unit.decision(bucket, now)));
                return true;
            }
            judge_state(shard, bucket, check, now, change, write)
        }
        SmallLimit::LeakyBucket(bucket) => judge_state(shard, bucket, check, now, change, write),
        SmallLimit::FixedWindow(window) => judge_state(shard, window, check, now, change, write),
    }
}

#[inline(always)]
fn judge_state<L: TwoStepCheck<State: Pack>>(
    shard: &Shard,
    limit: &L,
    check: &Check<'_>,
    now: Timestamp,
    change: &mut StateChange,
    write: impl FnOnce(Answer),
) -> bool {
    let input = check.input(now);
    let judged = shard.judge(check.key.fingerprint, limit, input);
    let Some((found, usage)) = judged else { return false };
    *change = found;
    write(Answer::exact(limit.decision(usage, input)));
    true
}

/// Judges the slots of a known key, if they are in the overflow area and their list has room.
// Not given the whole check: it would have to be written to memory for the call.
#[inline(never)]
fn judge_slots(
    shard: &mut Shard,
    key: Fingerprint,
    limit: &Limit,
    input: CheckInput,
    change: &mut StateChange,
) -> Option<Decision> {
    let slot = shard.find(key)?;
    let state = shard.overflow_state_at(slot)?;
    if !has_only_slots(limit) || !state.is_slots() || state.growth_bytes() > 0 {
        return None;
    }
    limit.settle(state, input.now);
    let decision = limit.decide(state, input);
    *change = StateChange::in_overflow(slot, decision.is_admitted());
    Some(decision)
}

/// Takes judged slots if they were admitted; the shard must not have changed since.
#[inline(never)]
fn charge_slots(
    shard: &mut Shard,
    slot: usize,
    limit: &Limit,
    input: CheckInput,
    decision: &Decision,
) {
    let Some(state) = shard.overflow_state_at(slot) else { return };
    if decision.is_admitted() {
        limit.charge(state, input, decision);
    } else {
        limit.refuse(state, input);
    }
}

/// Notes that judged slots are not taken. Returns the decision if it differs from the one already
/// written.
#[cold]
fn refuse_slots(
    shard: &mut Shard,
    check: &Check<'_>,
    slot: usize,
    decision: Decision,
    now: Timestamp,
) -> Option<Decision> {
    let state = shard.overflow_state_at(slot)?;
    if decision.is_admitted() {
        return Some(check.limit.uncharged(state, check.input(now), decision));
    }
    check.limit.refuse(state, check.input(now));
    None
}

/// Whether a limit's state is a list of slots, without a soft allowance.
pub(super) fn has_only_slots(limit: &Limit) -> bool {
    limit.algorithm().holds_slots() && limit.soft().is_none()
}

/// Whether all checks are charged although one of them refuses.
#[cold]
fn passes_anyway<'c>(
    charge: Charge,
    checks: impl Iterator<Item = Check<'c>>,
    changes: &[StateChange],
) -> bool {
    charge == Charge::Always
        || passes(checks.zip(changes).map(|(check, change)| (check.role, change.admitted)))
}

/// Charges no check, and writes new answers for the checks that had been admitted.
#[cold]
fn refuse<'c>(
    shards: &mut impl LockedShards,
    now: Timestamp,
    checks: impl Iterator<Item = Check<'c>>,
    changes: &[StateChange],
    slots: Option<SlotsCheck>,
    mut write: impl FnMut(usize, &Check<'c>, Answer),
) {
    for (index, (check, change)) in checks.zip(changes).enumerate() {
        let Some(shard) = shards.of(index) else { continue };
        let decision = match slots.filter(|slots| slots.index == index) {
            Some(slots) => refuse_slots(shard, &check, change.slot, slots.decision, now),
            None if change.admitted => {
                Some(check.limit.peek(&mut shard.state_at(change.slot), check.input(now)))
            }
            None => {
                // A limit may count refused costs.
                shard.write(change);
                None
            }
        };
        if let Some(decision) = decision {
            write(index, &check, Answer::exact(decision));
        }
    }
}
