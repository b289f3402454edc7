//! Decides one request.
//!
//! First the checks that can be decided locally: from slices, counts and cached refusals. Then slices are taken for the
//! leased checks that lack units, and last the remote decides the exact checks atomically, so that its charges are
//! final. If a later check refuses the request, the local charges are reverted.
//!
//! All-or-nothing holds across the modes: the remote charges only if every earlier check admits.

mod fall_back;

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Nanos, Timestamp};
use tokio::time::Instant;

use super::SharedStore;
use super::lease::{CLOCK_SLACK, GrantTimes, SpendOutcome, TakePlan};
use super::lease_terms::{LeaseTerms, consistency_for};
use super::metrics::{add, count};
use super::remote::Remote;
use crate::batch::{
    Answer, Answers, Basis, Batch, Charge, Check, Consistency, OnStoreError, Role, Verb, passes,
};
use crate::counter_store::StoreError;

/// A check's answer, and how to revert it if another check refuses the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProvisionalAnswer {
    pub(super) answer: Answer,
    pub(super) undo: Undo,
}

impl ProvisionalAnswer {
    /// An answer whose charge, if there is one, can be reverted by `undo`.
    fn new(decision: Decision, basis: Basis, undo: Undo) -> Self {
        let undo = if decision.taken > 0 { undo } else { Undo::Nothing };
        ProvisionalAnswer { answer: Answer { decision, basis }, undo }
    }

    /// The same of a check that the remote decided by itself, which knows better when to retry.
    fn decided_by(self, answer: &Answer) -> Self {
        let is_same = answer.decision.is_admitted() == self.is_admitted();
        let decision = if is_same { answer.decision } else { self.answer.decision };
        ProvisionalAnswer { answer: Answer { decision, basis: Basis::Exact }, ..self }
    }

    const fn is_admitted(&self) -> bool {
        self.answer.decision.is_admitted()
    }
}

/// How to revert the charge of a check.
#[derive(Clone, Copy, Debug)]
pub(super) enum Undo {
    /// It charged nothing, or its charge is final.
    Nothing,
    /// Put the units back into the slice that expires then.
    Lease { expires: Timestamp },
    /// Refund the tally.
    Tally,
    /// Refund this node's share.
    Share,
}

/// The answers so far, in the order of the checks.
type Progress = SmallVec<[Option<ProvisionalAnswer>; 2]>;
/// Indexes of checks within their batch.
type Indexes = SmallVec<[usize; 2]>;

impl<R: Remote> SharedStore<R> {
    /// Decides a request without a call, if possible; returns whether it did.
    #[inline]
    pub(super) fn decide_locally(&self, batch: &Batch<'_>, answers: &mut Answers) -> bool {
        let mut progress = Progress::new();
        for check in batch.checks {
            let settled = self.answer_locally(check, batch.now, Nanos::ZERO);
            progress.push(settled);
            if settled.is_none() {
                break;
            }
        }
        self.conclude(batch, &progress, answers)
    }

    /// Decides a request, with calls where they are needed.
    pub(super) async fn decide(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
    ) -> Result<(), StoreError> {
        let within = batch.within.unwrap_or(self.settings.within);
        let deadline = Instant::now() + within;
        let mut progress = Progress::new();
        let (mut takes, mut exact) = (Indexes::new(), Indexes::new());
        for (index, check) in batch.checks.iter().enumerate() {
            let lasting = Nanos::from(within).min(self.leases.usual_wait());
            let settled = self.answer_locally(check, batch.now, lasting);
            if settled.is_none() {
                match consistency_of(check) {
                    Consistency::Leased => takes.push(index),
                    Consistency::Exact | Consistency::Eventual => exact.push(index),
                }
            }
            progress.push(settled);
        }
        let taken = self.take_slices(batch, &takes, &mut progress, deadline).await;
        let result = match taken {
            Ok(_) if self.refuse_from_cache(batch, &exact, &mut progress) => Ok(()),
            Ok(deadline) => self.decide_exact(batch, &exact, &mut progress, deadline).await,
            Err(error) => Err(error),
        };
        if self.conclude(batch, &progress, answers) {
            return Ok(());
        }
        result.and_then(|()| Err(self.breakers.error()))
    }

    /// Decides a check without a call, if possible, from units that do not expire within `lasting`.
    #[inline]
    fn answer_locally(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        lasting: Nanos,
    ) -> Option<ProvisionalAnswer> {
        match check.policy.consistency {
            Consistency::Exact => None,
            Consistency::Leased => match self.leases.spend(check, now, lasting) {
                SpendOutcome::Paid { decision, expires, .. } => {
                    let undo = Undo::Lease { expires };
                    Some(ProvisionalAnswer::new(decision, Basis::Leased, undo))
                }
                SpendOutcome::Refused(decision) => {
                    count(&self.counters.cached);
                    Some(ProvisionalAnswer::new(decision, Basis::Leased, Undo::Nothing))
                }
                SpendOutcome::Short => None,
            },
            Consistency::Eventual if self.is_unreachable(check) => None,
            Consistency::Eventual if consistency_of(check) != Consistency::Eventual => None,
            Consistency::Eventual => {
                let decision = self.tallies.check(check, self.remote.remote_time(now))?;
                Some(ProvisionalAnswer::new(decision, Basis::Eventual, Undo::Tally))
            }
        }
    }

    /// Whether the breaker of the check's route is open.
    #[inline]
    pub(super) fn is_unreachable(&self, check: &Check<'_>) -> bool {
        self.breakers.is_open(self.remote.route(check.key))
    }

    /// Takes slices for leased checks that lack units, or lets the remote decide a check whose key is used rarely.
    /// Returns the deadline for the rest of the request: held units that a check uses must not expire before.
    async fn take_slices(
        &self,
        batch: &Batch<'_>,
        takes: &Indexes,
        progress: &mut Progress,
        mut deadline: Instant,
    ) -> Result<Instant, StoreError> {
        if takes.is_empty() {
            return Ok(deadline);
        }
        let now = batch.now;
        let wanted: SmallVec<[(usize, &Check<'_>, LeaseTerms, TakePlan); 2]> = takes
            .iter()
            .filter_map(|index| {
                let check = batch.checks.get(*index)?;
                let terms = LeaseTerms::of(check.limit)?;
                Some((*index, check, terms, self.leases.take_for_check(check, now)))
            })
            .collect();
        let mut checks: SmallVec<[Check<'_>; 2]> = SmallVec::new();
        for (_, check, terms, plan) in &wanted {
            let (limit, cost, role) = (&terms.tightened, plan.units, Role::Required);
            checks.push(Check { limit, cost, role, ..**check });
            if plan.units < check.cost {
                let life = Nanos::new(terms.life.get().saturating_sub(CLOCK_SLACK.get()));
                deadline = deadline.min(Instant::now() + Duration::from(life));
            }
        }
        // The script has a fast path for one check. It takes all units or none, so that it may have to be sent again.
        let is_exact = matches!(wanted.as_slice(), [(_, _, _, plan)] if plan.is_exact);
        let is_whole = matches!(wanted.as_slice(), [(_, _, _, plan)] if plan.is_ample && !is_exact);
        let verb = if is_exact || is_whole { Verb::Check } else { Verb::Take };
        let take = Batch { verb, charge: Charge::Always, checks: &checks, names: &[], ..*batch };
        let (results, round_trip) = self.send_takes(&take, is_whole, deadline).await;
        let times = GrantTimes { sent: now, replied: now.after(round_trip) };
        for ((index, check, terms, _), result) in wanted.iter().zip(results) {
            progress[*index] = Some(match result {
                Ok(answer) => {
                    let paid = self.spend_taken(check, terms, &answer.decision, times);
                    if is_exact { paid.decided_by(&answer) } else { paid }
                }
                Err(error) => {
                    self.leases.on_no_answer(check.key.fingerprint);
                    self.fall_back(Verb::Check, check, now, error)?
                }
            });
        }
        Ok(deadline)
    }

    /// Sends takes; returns how long that took. One that `is_whole` is sent again as a take if it is refused.
    async fn send_takes(
        &self,
        take: &Batch<'_>,
        is_whole: bool,
        deadline: Instant,
    ) -> (Vec<Result<Answer, StoreError>>, Nanos) {
        let sent = Instant::now();
        let mut results = self.breakers.apply_each(&self.remote, take, deadline).await;
        let is_refused =
            matches!(results.as_slice(), [Ok(answer)] if !answer.decision.is_admitted());
        if is_whole && is_refused {
            let take = Batch { verb: Verb::Take, ..*take };
            results = self.breakers.apply_each(&self.remote, &take, deadline).await;
        }
        let round_trip = Nanos::from(sent.elapsed());
        if results.iter().any(Result::is_ok) {
            self.leases.note_round_trip(round_trip);
        }
        (results, round_trip)
    }

    fn spend_taken(
        &self,
        check: &Check<'_>,
        terms: &LeaseTerms,
        granted: &Decision,
        times: GrantTimes,
    ) -> ProvisionalAnswer {
        let (decision, expires) =
            self.leases.grant_and_spend(check, terms, granted, times, self.nodes.live());
        if check.policy.on_store_error == OnStoreError::Local {
            let check = Check { limit: &terms.tightened, ..*check };
            self.outage.learn(&check, granted, self.remote.remote_time(times.sent));
        }
        let basis =
            if expires.is_none() && decision.is_admitted() { Basis::Exact } else { Basis::Leased };
        // Units without a slice cannot be put back; they count as lost.
        let expires = expires.unwrap_or(Timestamp::EPOCH);
        ProvisionalAnswer::new(decision, basis, Undo::Lease { expires })
    }

    /// Refuses the exact checks if there are cached refusals for all of them; returns whether it did. Otherwise all are
    /// sent, because the answer says what remains of each.
    fn refuse_from_cache(
        &self,
        batch: &Batch<'_>,
        exact: &Indexes,
        progress: &mut Progress,
    ) -> bool {
        let cached: Option<SmallVec<[Decision; 2]>> = exact
            .iter()
            .map(|index| self.refusal_cache.refusal(batch.checks.get(*index)?, batch.now))
            .collect();
        let Some(cached) = cached else { return false };
        for (index, decision) in exact.iter().zip(cached) {
            count(&self.counters.cached);
            progress[*index] = Some(ProvisionalAnswer::new(decision, Basis::Exact, Undo::Nothing));
        }
        true
    }

    /// Decides the exact checks at the remote, atomically.
    async fn decide_exact(
        &self,
        batch: &Batch<'_>,
        exact: &Indexes,
        progress: &mut Progress,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let (verb, alternatives) = remaining_verb(batch, progress);
        let checks: SmallVec<[Check<'_>; 2]> = exact
            .iter()
            .filter_map(|index| batch.checks.get(*index))
            .map(|check| match check.role {
                Role::Alternative => Check { role: alternatives, ..*check },
                Role::Required | Role::Observed => *check,
            })
            .collect();
        let names: SmallVec<[String; 0]> =
            exact.iter().filter_map(|index| batch.names.get(*index)).cloned().collect();
        let call = Batch { verb, checks: &checks, names: &names, ..*batch };
        let mut decided = Answers::new();
        let result = self.breakers.apply(&self.remote, &call, &mut decided, deadline).await;
        if let Err(error) = result {
            for (index, check) in exact.iter().zip(&checks) {
                progress[*index] = Some(self.fall_back(verb, check, batch.now, error.clone())?);
            }
            return Ok(());
        }
        self.learn(&call, &decided);
        for (index, answer) in exact.iter().zip(decided) {
            progress[*index] = Some(ProvisionalAnswer { answer, undo: Undo::Nothing });
        }
        Ok(())
    }

    /// Caches the remote's answers, for refusals and for an outage.
    fn learn(&self, batch: &Batch<'_>, answers: &Answers) {
        let remote_now = self.remote.remote_time(batch.now);
        for (index, (check, answer)) in batch.checks.iter().zip(answers).enumerate() {
            let earlier = batch.checks.get(..index).unwrap_or_default();
            let later = batch.checks.get(index + 1..).unwrap_or_default();
            // The second check on a key sees the charge of the first, so its answer is not the key's state.
            let is_duplicate = earlier.iter().chain(later).any(|other| other.key == check.key);
            if is_duplicate {
                self.refusal_cache.remove(check.key.fingerprint);
            } else {
                self.refusal_cache.insert(check, &answer.decision, batch.now);
            }
            if check.policy.on_store_error == OnStoreError::Local {
                self.outage.learn(check, &answer.decision, remote_now);
            }
            if consistency_of(check) == Consistency::Eventual && !self.regions.is_empty() {
                // Beyond `keys_max`: no region but this one counts it.
                add(&self.counters.dropped, answer.decision.taken);
            }
        }
    }

    /// Pushes the answers if every check has one; returns whether it did. Reverts the charges if not, or if the
    /// request is not charged.
    fn conclude(&self, batch: &Batch<'_>, progress: &Progress, answers: &mut Answers) -> bool {
        let is_complete = progress.iter().flatten().count() == batch.checks.len();
        let is_charged =
            is_complete && (batch.charge == Charge::Always || may_pass(batch, progress));
        for (check, settled) in batch.checks.iter().zip(progress) {
            let Some(ProvisionalAnswer { mut answer, undo }) = *settled else { continue };
            if !is_charged && self.revert(check, undo, batch.now) {
                let decision = &mut answer.decision;
                let left = decision.remaining.saturating_add(decision.taken);
                (decision.remaining, decision.taken) = (left.min(decision.limit), 0);
            }
            if is_complete {
                answers.push(answer);
            }
        }
        is_complete
    }

    /// Reverts the charge of one check; returns whether there was one.
    fn revert(&self, check: &Check<'_>, undo: Undo, now: Timestamp) -> bool {
        match undo {
            Undo::Nothing => return false,
            Undo::Lease { expires } => self.leases.put_back(check, expires),
            Undo::Tally => self.tallies.uncharge(check, self.remote.remote_time(now)),
            Undo::Share => {
                let now = self.remote.remote_time(now);
                self.outage.uncharge(check, now);
                if consistency_of(check) == Consistency::Eventual {
                    self.tallies.uncharge(check, now);
                }
            }
        }
        true
    }
}

/// The mode in which the check's limit is kept.
#[inline]
pub(super) fn consistency_of(check: &Check<'_>) -> Consistency {
    consistency_for(check.policy.consistency, check.limit)
}

/// Whether the request passes if all checks without an answer admit.
#[inline]
fn may_pass(batch: &Batch<'_>, progress: &Progress) -> bool {
    let checks = batch.checks.iter().zip(progress);
    passes(checks.map(|(check, settled)| (check.role, settled.is_none_or(|it| it.is_admitted()))))
}

/// The verb for the checks without an answer, and the role of alternatives among them: [`Role::Observed`] once another
/// alternative has admitted.
fn remaining_verb(batch: &Batch<'_>, progress: &Progress) -> (Verb, Role) {
    let is_refused = batch.charge == Charge::AllOrNothing && !may_pass(batch, progress);
    let mut answered = batch.checks.iter().zip(progress);
    let alternative_admits = answered.any(|(check, settled)| {
        check.role == Role::Alternative && settled.is_some_and(|settled| settled.is_admitted())
    });
    let role = if alternative_admits { Role::Observed } else { Role::Alternative };
    (if is_refused { Verb::Peek } else { Verb::Check }, role)
}
