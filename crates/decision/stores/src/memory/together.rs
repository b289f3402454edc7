//! Several keys of one request, decided as one.
//!
//! All shards that the keys lie in are locked, in one order for every caller,
//! from the first decision until the last key is given back. First every key is
//! judged, then the request as a whole, then those are charged whom it charges.

use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Timestamp};

use super::in_place::IN_PLACE_MAX;
use super::lock::Held;
use super::shard::{Shard, Wanted};
use super::{Located, MemoryStore, ask};
use crate::batch::{Answer, Answered, Answers, Basis, Batch, Charge, Check, Verb, passes};
use crate::fingerprint::Fingerprint;

impl MemoryStore {
    /// Several keys, all of them known. Says whether it could; if not, nothing is charged.
    #[inline]
    pub(super) fn check_known(&self, batch: &Batch<'_>, places: &mut [impl Answered]) -> bool {
        let Some(first) = batch.checks.first() else { return true };
        let index = self.shard_of(first.key.fingerprint);
        let elsewhere = |check: &Check<'_>| self.shard_of(check.key.fingerprint) != index;
        if batch.checks.len() > IN_PLACE_MAX || batch.checks.iter().any(elsewhere) {
            return self.check_spread(batch, places);
        }
        let checks = batch.checks.iter().copied();
        self.check_in_place(batch.charge, batch.now, checks, |place, _, answer| {
            if let Some(place) = places.get_mut(place) {
                place.put(answer);
            }
        })
    }

    /// Judges several keys as one: all shards are locked, in one order for
    /// every caller, until the last key is given back.
    #[cold]
    pub(super) fn judge_together(&self, batch: &Batch<'_>) -> Answers {
        let Batch { now, checks, .. } = *batch;
        let mut answers = Answers::new();
        let mut indexes: SmallVec<[usize; 4]> =
            checks.iter().map(|check| self.shard_of(check.key.fingerprint)).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let mut shards: SmallVec<[Held<'_>; 4]> =
            indexes.iter().map(|index| self.shards[*index].lock()).collect();
        let shard_at = |key: Fingerprint| {
            let index = self.shard_of(key);
            indexes.iter().position(|locked| *locked == index).unwrap_or(0)
        };

        let mut judged: SmallVec<[Judged; 4]> = SmallVec::new();
        for check in checks {
            let at = shard_at(check.key.fingerprint);
            judged.push(self.judge(&mut shards[at], check, &judged, checks, now));
        }
        let pass = passes(
            checks
                .iter()
                .zip(&judged)
                .map(|(check, judged)| (check.role, judged.decision.is_admitted())),
        );
        for (index, check) in checks.iter().enumerate() {
            let charged = batch.verb == Verb::Check && (pass || batch.charge == Charge::Always);
            let decision = settle_up(check, index, &mut judged, batch, charged);
            answers.push(Answer { decision, basis: judged[index].basis });
        }
        for (index, (check, judged)) in checks.iter().zip(judged).enumerate() {
            let Some(located) = judged.located else {
                continue;
            };
            let at = shard_at(check.key.fingerprint);
            let kept = self.conclude(&mut shards[at], located, judged.decision, now);
            if kept.basis == Basis::Full && judged.basis != Basis::Full {
                // The request is decided; what was not counted must not be called so.
                let same_key = checks.iter().zip(&mut answers).skip(index);
                for (_, answer) in same_key.filter(|(other, _)| other.key == check.key) {
                    answer.basis = Basis::Full;
                }
            }
        }
        answers
    }

    /// Judges one of several keys. A key that stood in the request before is
    /// judged as if the earlier checks had been charged.
    fn judge(
        &self,
        shard: &mut Shard,
        check: &Check<'_>,
        earlier: &[Judged],
        checks: &[Check<'_>],
        now: Timestamp,
    ) -> Judged {
        let before = &checks[..earlier.len()];
        if let Some(twin) = before.iter().position(|other| other.key == check.key) {
            let decision = judge_again(check, twin, earlier, before, now);
            let basis = earlier[twin].basis;
            return Judged { decision, basis, located: None, twin: Some(twin) };
        }
        let ask = ask(check, now);
        let promised = self.promised(check, earlier, before);
        let mut located = self.locate(shard, check, promised, now);
        check.limit.settle(&mut located.loaded.state, now);
        let mut decision = check.limit.decide(&located.loaded.state, ask);
        let basis = located.basis;
        if basis == Basis::Full {
            decision = self.when_full(decision, !located.loaded.is_new());
        }
        Judged { decision, basis, located: Some(located), twin: None }
    }

    /// The places of the same shard that earlier keys of the request will take.
    fn promised(&self, check: &Check<'_>, earlier: &[Judged], before: &[Check<'_>]) -> Wanted {
        let shard = self.shard_of(check.key.fingerprint);
        before.iter().zip(earlier).fold(Wanted::default(), |promised, (other, judged)| {
            let new = judged.located.as_ref().is_some_and(|located| located.loaded.is_new());
            let here = self.shard_of(other.key.fingerprint) == shard;
            if new && here { promised.and(other) } else { promised }
        })
    }
}

/// A key of several that are judged together.
#[derive(Debug)]
struct Judged {
    decision: Decision,
    basis: Basis,
    /// Where it is counted; nowhere of its own when an earlier check has the same key.
    located: Option<Located>,
    twin: Option<usize>,
}

/// Judges a key again on a copy of its state, charged with what came before.
#[cold]
fn judge_again(
    check: &Check<'_>,
    twin: usize,
    earlier: &[Judged],
    before: &[Check<'_>],
    now: Timestamp,
) -> Decision {
    let first = &earlier[twin];
    let Some(located) = first.located.as_ref().filter(|found| found.basis != Basis::Full) else {
        return first.decision;
    };
    let mut state = located.loaded.state.clone();
    for (other, judged) in before.iter().zip(earlier) {
        if other.key != check.key {
            continue;
        }
        // Another plan may judge the same counter by other numbers.
        other.limit.settle(&mut state, now);
        if judged.decision.is_admitted() {
            other.limit.charge(&mut state, ask(other, now), &judged.decision);
        } else {
            other.limit.refuse(&mut state, ask(other, now));
        }
    }
    check.limit.settle(&mut state, now);
    check.limit.decide(&state, ask(check, now))
}

/// Charges one check of a judged request, or says what it would have been told.
fn settle_up(
    check: &Check<'_>,
    index: usize,
    judged: &mut [Judged],
    batch: &Batch<'_>,
    charged: bool,
) -> Decision {
    let holder = judged[index].twin.unwrap_or(index);
    let first_verdict = judged[index].decision;
    let is_twin = judged[index].twin.is_some();
    let Some(located) = judged[holder].located.as_mut().filter(|found| found.basis != Basis::Full)
    else {
        return first_verdict;
    };
    let ask = located.ask(check, batch.now);
    let state = &mut located.loaded.state;
    if is_twin {
        check.limit.settle(state, batch.now);
    }
    if charged {
        // A twin is judged again: the first one's charge is in the state now.
        let decision = if is_twin { check.limit.decide(state, ask) } else { first_verdict };
        if decision.is_admitted() {
            check.limit.charge(state, ask, &decision);
        } else {
            check.limit.refuse(state, ask);
        }
        return decision;
    }
    if batch.verb == Verb::Check && !first_verdict.is_admitted() {
        check.limit.refuse(state, ask);
        return first_verdict;
    }
    check.limit.uncharged(state, ask, first_verdict)
}
