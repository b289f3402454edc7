//! The way of one request.
//!
//! First what can be decided here: slices, counts, refusals that are known.
//! Then the remote is asked for what is missing of leased limits, and last for
//! the exact ones, in one step, so that what it charges is final. A request
//! that is refused after all gets back what it had reserved here.
//!
//! All-or-nothing holds across the modes: the remote is only asked to charge
//! when everything decided before it admits.

mod fall_back;
mod standing;

use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Nanos, Timestamp};
use tokio::time::Instant;

use super::SharedStore;
use super::lease::{SLIP, Spend};
use super::metrics::count;
use super::remote::Remote;
use super::terms::{Terms, consistency_for};
use crate::batch::{
    Answer, Answers, Basis, Batch, Charge, Check, Consistency, OnStoreError, Role, Verb, passes,
};
use crate::counter_store::StoreError;
use standing::Standing;

/// A check's answer, and what to do when its request is refused after all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub(super) answer: Answer,
    pub(super) undo: Undo,
}

/// How to take back what a check reserved.
#[derive(Clone, Copy, Debug)]
pub(super) enum Undo {
    /// It charged nothing, or what it charged is final.
    Nothing,
    /// Put units back into the slice, which dies then.
    Lease { dies: Timestamp },
    /// Take a count back.
    Tally,
    /// Take a count of this node's share back.
    Share,
}

/// What is settled so far, in the order of the checks.
type Progress = SmallVec<[Option<Settled>; 2]>;
/// Positions of checks within their batch.
type Positions = SmallVec<[usize; 2]>;

impl<R: Remote> SharedStore<R> {
    /// Decides a request without asking, if that is possible; says whether it was.
    #[inline]
    pub(super) fn decide_here(&self, batch: &Batch<'_>, answers: &mut Answers) -> bool {
        let mut undo: SmallVec<[Undo; 2]> = SmallVec::new();
        let first = answers.len();
        for check in batch.checks {
            let Some(settled) = self.settle_here(check, batch.now, Nanos::ZERO) else {
                self.undo(batch, answers.get_mut(first..).unwrap_or_default(), &undo);
                answers.truncate(first);
                return false;
            };
            answers.push(settled.answer);
            undo.push(settled.undo);
        }
        if !is_charged(batch, answers.get(first..).unwrap_or_default()) {
            self.undo(batch, answers.get_mut(first..).unwrap_or_default(), &undo);
        }
        true
    }

    /// Decides a request; asks for what has to be asked for.
    pub(super) async fn decide(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
    ) -> Result<(), StoreError> {
        let within = batch.within.unwrap_or(self.settings.within);
        let deadline = Instant::now() + within;
        let mut progress: Progress = SmallVec::new();
        let (mut takes, mut asks) = (Positions::new(), Positions::new());
        for (at, check) in batch.checks.iter().enumerate() {
            let settled = self.settle_here(check, batch.now, within.into());
            if settled.is_none() {
                match mode(check) {
                    Consistency::Leased => takes.push(at),
                    Consistency::Exact | Consistency::Eventual => asks.push(at),
                }
            }
            progress.push(settled);
        }
        let taken = self.take(batch, &takes, &mut progress, deadline).await;
        let result = match taken {
            Ok(_) if self.refuse_known(batch, &asks, &mut progress) => Ok(()),
            Ok(deadline) => self.ask(batch, &asks, &mut progress, deadline).await,
            Err(error) => Err(error),
        };
        self.conclude(batch, &progress, answers, result)
    }

    /// Decides a check without asking, if that is possible, by what lives
    /// until `lasting` after `now`.
    #[inline]
    fn settle_here(&self, check: &Check<'_>, now: Timestamp, lasting: Nanos) -> Option<Settled> {
        match check.policy.consistency {
            Consistency::Exact => None,
            // A limit that cannot be leased has no slices.
            Consistency::Leased => match self.leases.spend(check, now, lasting) {
                Spend::Paid { decision, dies, .. } => {
                    let answer = Answer { decision, basis: Basis::Leased };
                    Some(Settled { answer, undo: Undo::Lease { dies } })
                }
                Spend::Refused(decision) => {
                    count(&self.counters.cached);
                    let answer = Answer { decision, basis: Basis::Leased };
                    Some(Settled { answer, undo: Undo::Nothing })
                }
                Spend::Short => None,
            },
            Consistency::Eventual if self.is_shut(check) => None,
            Consistency::Eventual if mode(check) != Consistency::Eventual => None,
            Consistency::Eventual => {
                let decision = self.tallies.check(check, self.remote.there(now))?;
                let undo = if decision.is_admitted() { Undo::Tally } else { Undo::Nothing };
                Some(Settled { answer: Answer { decision, basis: Basis::Eventual }, undo })
            }
        }
    }

    /// Whether the remote cannot be asked for this key.
    #[inline]
    pub(super) fn is_shut(&self, check: &Check<'_>) -> bool {
        self.gates.is_shut(self.remote.route(check.key))
    }

    /// Takes slices for leased checks that could not be paid. Gives the
    /// deadline for the rest of the request: units that it uses must live until then.
    async fn take(
        &self,
        batch: &Batch<'_>,
        takes: &Positions,
        progress: &mut Progress,
        deadline: Instant,
    ) -> Result<Instant, StoreError> {
        if takes.is_empty() {
            return Ok(deadline);
        }
        let now = batch.now;
        let wanted: SmallVec<[(usize, &Check<'_>, Terms); 2]> = takes
            .iter()
            .filter_map(|at| {
                let check = batch.checks.get(*at)?;
                Some((*at, check, Terms::of(check.limit)?))
            })
            .collect();
        let checks: SmallVec<[Check<'_>; 2]> = wanted
            .iter()
            .map(|(_, check, terms)| {
                let cost = self.leases.ask(check, now);
                Check { limit: &terms.tightened, cost, ..**check }
            })
            .collect();
        // What arrives later than a slice lives is of no use.
        let shortest = wanted.iter().map(|(_, _, terms)| terms.life.get()).min().unwrap_or(0);
        let life = Nanos::new(shortest.saturating_sub(SLIP.get()));
        let deadline = deadline.min(Instant::now() + std::time::Duration::from(life));
        let asked = Batch { verb: Verb::Take, checks: &checks, names: &[], ..*batch };
        let results = self.gates.each(&self.remote, &asked, deadline, &self.counters).await;
        for ((at, check, terms), result) in wanted.iter().zip(results) {
            let settled = match result {
                Ok(told) => self.settle_taken(check, terms, &told.decision, now),
                Err(error) => {
                    self.leases.unanswered(check.key.fingerprint);
                    self.fall_back(Verb::Check, check, now, error)?
                }
            };
            if let Some(place) = progress.get_mut(*at) {
                *place = Some(settled);
            }
        }
        Ok(deadline)
    }

    fn settle_taken(
        &self,
        check: &Check<'_>,
        terms: &Terms,
        told: &Decision,
        now: Timestamp,
    ) -> Settled {
        let (decision, dies) = self.leases.settle(check, terms, told, now, self.nodes.live());
        if check.policy.on_store_error == OnStoreError::Local {
            let asked = Check { limit: &terms.tightened, ..*check };
            self.outage.learn(&asked, told, self.remote.there(now));
        }
        let undo = if decision.is_admitted() { Undo::Lease { dies } } else { Undo::Nothing };
        Settled { answer: Answer { decision, basis: Basis::Leased }, undo }
    }

    /// Refuses the exact checks if the remote is known to refuse them all; says
    /// whether it did. One that might be admitted has to be asked for, and then
    /// all are: the answer tells what is left of each.
    fn refuse_known(&self, batch: &Batch<'_>, asks: &Positions, progress: &mut Progress) -> bool {
        let known: Option<SmallVec<[Decision; 2]>> = asks
            .iter()
            .map(|at| self.over_limit.refusal(batch.checks.get(*at)?, batch.now))
            .collect();
        let Some(known) = known else { return false };
        for (at, decision) in asks.iter().zip(known) {
            count(&self.counters.cached);
            if let Some(place) = progress.get_mut(*at) {
                let answer = Answer { decision, basis: Basis::Exact };
                *place = Some(Settled { answer, undo: Undo::Nothing });
            }
        }
        true
    }

    /// Has the exact checks decided, in one step.
    async fn ask(
        &self,
        batch: &Batch<'_>,
        asks: &Positions,
        progress: &mut Progress,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let (verb, alternatives) = Standing::of(batch, progress).for_the_rest(batch, asks);
        let checks: SmallVec<[Check<'_>; 2]> = asks
            .iter()
            .filter_map(|at| batch.checks.get(*at))
            .map(|check| match check.role {
                Role::Alternative => Check { role: alternatives, ..*check },
                Role::Required | Role::Observed => *check,
            })
            .collect();
        let names: SmallVec<[String; 0]> =
            asks.iter().filter_map(|at| batch.names.get(*at)).cloned().collect();
        let asked = Batch { verb, checks: &checks, names: &names, ..*batch };
        let mut told = Answers::new();
        let result = self.gates.apply(&self.remote, &asked, &mut told, deadline, &self.counters);
        if let Err(error) = result.await {
            for (at, check) in asks.iter().zip(&checks) {
                let settled = self.fall_back(verb, check, batch.now, error.clone())?;
                if let Some(place) = progress.get_mut(*at) {
                    *place = Some(settled);
                }
            }
            return Ok(());
        }
        self.learn(&asked, &told);
        for (at, answer) in asks.iter().zip(told) {
            if let Some(place) = progress.get_mut(*at) {
                *place = Some(Settled { answer, undo: Undo::Nothing });
            }
        }
        Ok(())
    }

    /// Remembers what the remote said.
    fn learn(&self, batch: &Batch<'_>, told: &Answers) {
        let there = self.remote.there(batch.now);
        for (at, (check, answer)) in batch.checks.iter().zip(told).enumerate() {
            let earlier = batch.checks.get(..at).unwrap_or_default();
            let later = batch.checks.get(at + 1..).unwrap_or_default();
            // A key that stands twice was judged as if charged in between.
            let twin = earlier.iter().chain(later).any(|other| other.key == check.key);
            if twin {
                self.over_limit.forget(check.key.fingerprint);
            } else {
                self.over_limit.remember(check, &answer.decision, batch.now);
            }
            if check.policy.on_store_error == OnStoreError::Local {
                self.outage.learn(check, &answer.decision, there);
            }
        }
    }

    /// Pushes the answers, once all checks are settled.
    fn conclude(
        &self,
        batch: &Batch<'_>,
        progress: &Progress,
        answers: &mut Answers,
        result: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let first = answers.len();
        let mut undo: SmallVec<[Undo; 2]> = SmallVec::new();
        for settled in progress.iter().flatten() {
            answers.push(settled.answer);
            undo.push(settled.undo);
        }
        if result.is_err() || undo.len() != batch.checks.len() {
            answers.truncate(first);
            let there = self.remote.there(batch.now);
            for (check, settled) in batch.checks.iter().zip(progress) {
                if let Some(settled) = settled {
                    self.take_back(check, settled.undo, there);
                }
            }
            return result.and_then(|()| Err(self.gates.error()));
        }
        let told = answers.get_mut(first..).unwrap_or_default();
        if !is_charged(batch, told) {
            self.undo(batch, told, &undo);
        }
        Ok(())
    }

    /// Takes back what was reserved, and tells what is left without it.
    fn undo(&self, batch: &Batch<'_>, answers: &mut [Answer], undo: &[Undo]) {
        let there = self.remote.there(batch.now);
        for ((check, answer), undo) in batch.checks.iter().zip(answers).zip(undo) {
            if self.take_back(check, *undo, there) {
                let decision = &mut answer.decision;
                let left = decision.remaining.saturating_add(decision.taken);
                (decision.remaining, decision.taken) = (left.min(decision.limit), 0);
            }
        }
    }

    /// Takes back what one check reserved; says whether there was anything.
    fn take_back(&self, check: &Check<'_>, undo: Undo, there: Timestamp) -> bool {
        match undo {
            Undo::Nothing => return false,
            Undo::Lease { dies } => self.leases.put_back(check, dies),
            Undo::Tally => self.tallies.uncharge(check, there),
            Undo::Share => self.outage.uncharge(check, there),
        }
        true
    }
}

/// How a check's limit is kept.
#[inline]
pub(super) fn mode(check: &Check<'_>) -> Consistency {
    consistency_for(check.policy.consistency, check.limit)
}

/// Whether a request is charged, by the answers to all its checks.
#[inline]
fn is_charged(batch: &Batch<'_>, answers: &[Answer]) -> bool {
    let said = batch.checks.iter().zip(answers);
    batch.charge == Charge::Always
        || passes(said.map(|(check, answer)| (check.role, answer.decision.is_admitted())))
}
