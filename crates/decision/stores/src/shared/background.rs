//! What happens between requests: renewing, adding up, registering, settling.
//!
//! Each beat is a plain function of `now`; [`SharedStore::run`] calls them in
//! time. The three loops do not wait for one another, so a remote that hangs in
//! one of them delays nothing in the others. Whatever a beat sends is a few
//! batches with a bound, so its work does not grow with what has piled up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::SharedStore;
use super::clock_watch::ClockWatch;
use super::lease::{Errand, Leaving};
use super::metrics::count;
use super::region::flushed;
use super::remote::Remote;
use super::tally::Delta;
use crate::batch::{Answer, Batch, Charge, Check, Key, Verb};
use crate::counter_store::StoreError;

/// How often leases are looked after.
const RENEW_BEAT: Duration = Duration::from_millis(10);
/// How often slots that somebody holds are looked after: a third of the
/// shortest lease that a store may have. A beat costs what is due at it.
const HELD_BEAT: Duration = Duration::from_millis(100);
/// In how many beats every lease is looked at for units to give back.
const RENEW_TURNS: usize = 8;
/// Keys in one batch to the remote: a few milliseconds of its time.
const BATCH_MAX: usize = 1_000;
/// Batches of counts in one beat; what is left waits for the next one.
const BATCHES_MAX: usize = 10;
/// A node that has not registered for so many beats is not counted any more.
const NODE_BEATS: u32 = 5;
/// Debts of an outage are charged from up to this long after its end.
const SETTLE_SPREAD: Nanos = Nanos::from_secs(1);
/// How many parts of the eventual keys are swept in turn.
const SWEEP_TURNS: usize = 32;

impl<R: Remote> SharedStore<R> {
    /// Does the background work, for as long as it is polled.
    pub async fn run(&self, clock: &impl Clock) {
        tokio::join!(
            self.keep_leases(clock),
            self.keep_counts(clock),
            self.keep_registered(clock),
            self.keep_held(clock),
        );
    }

    /// Gives back what this node holds and leaves the register: it is about to end.
    pub async fn close(&self, now: Timestamp) {
        let leaving = Leaving { all: true, within: self.settings.background_within.into() };
        let errands = self.leases.leaving(now, leaving, 0, 1, |_| true);
        self.hand_back(errands, now).await;
        self.flush(now, 0).await;
        self.tell_regions(now).await;
        self.settle_debts(now).await;
        if !self.gates.is_shut(self.remote.register_route()) {
            let within = self.settings.background_within;
            let leave = self.remote.leave(self.nodes.id(), now, within);
            let _ = tokio::time::timeout(within, leave).await;
        }
    }

    async fn keep_leases(&self, clock: &impl Clock) {
        let mut ticks = every(RENEW_BEAT);
        let mut watch = ClockWatch::new(clock);
        for turn in 0_usize.. {
            ticks.tick().await;
            let (now, put_back) = watch.look(clock);
            if put_back {
                // Slices would live longer, and refusals last longer.
                self.leases.void();
                self.over_limit.forget_all();
            }
            self.renew(now).await;
            self.return_unused(clock.now(), turn).await;
        }
    }

    async fn keep_counts(&self, clock: &impl Clock) {
        let mut ticks = every(self.settings.beat);
        for turn in 0_usize.. {
            ticks.tick().await;
            self.flush(clock.now(), turn).await;
            self.tell_regions(clock.now()).await;
            self.settle_debts(clock.now()).await;
        }
    }

    async fn keep_held(&self, clock: &impl Clock) {
        let mut ticks = every(HELD_BEAT);
        loop {
            ticks.tick().await;
            if !self.gates.all_shut() {
                self.remote.keep_held(clock.now()).await;
            }
        }
    }

    async fn keep_registered(&self, clock: &impl Clock) {
        // Often enough that a probe is not late by much.
        let mut ticks = every(self.settings.node_beat / 10);
        for turn in 0_u64.. {
            ticks.tick().await;
            if turn % 10 == 0 || self.gates.is_shut(self.remote.register_route()) {
                self.register(clock.now()).await;
            }
            if self.gates.any_shut() {
                self.probe(clock.now()).await;
            }
        }
    }

    /// Takes the slices that are due, in one batch.
    pub async fn renew(&self, now: Timestamp) {
        if self.gates.all_shut() {
            return;
        }
        let errands = self.leases.due(BATCH_MAX, now);
        let results = self.run_errands(Verb::Take, &errands, now).await;
        for (errand, result) in errands.iter().zip(results) {
            match result {
                Ok(told) => {
                    let nodes = self.nodes.live();
                    self.leases.renewed(errand, &told.decision, now, now, nodes);
                }
                Err(_) => self.leases.unanswered(errand.key.fingerprint),
            }
        }
    }

    /// Gives back units that nobody uses, from one of the parts in turn.
    pub async fn return_unused(&self, now: Timestamp, turn: usize) {
        if self.gates.all_shut() {
            return;
        }
        let leaving = Leaving { all: false, within: self.settings.background_within.into() };
        let errands = self.leases.leaving(now, leaving, turn, RENEW_TURNS, |key| self.may_ask(key));
        self.hand_back(errands, now).await;
    }

    async fn hand_back(&self, errands: Vec<Errand>, now: Timestamp) {
        for some in errands.chunks(BATCH_MAX) {
            let results = self.run_errands(Verb::Refund, some, now).await;
            for (errand, result) in some.iter().zip(results) {
                match result {
                    Ok(_) => self.leases.returned(errand.units),
                    // Whether it arrived or not, it is not sent again.
                    Err(_) => self.leases.lose(errand.units),
                }
            }
        }
    }

    async fn run_errands(
        &self,
        verb: Verb,
        errands: &[Errand],
        now: Timestamp,
    ) -> Vec<Result<Answer, StoreError>> {
        if errands.is_empty() {
            return Vec::new();
        }
        let checks: Vec<Check<'_>> = errands
            .iter()
            .map(|errand| Check::new(errand.key, &errand.limit, errand.units))
            .collect();
        let within = self.settings.background_within;
        let batch = Batch::new(verb, Charge::Always, now, &checks);
        self.gates.each(&self.remote, &batch, Instant::now() + within, &self.counters).await
    }

    /// Tells the remote what was counted here since the last beat, and learns the totals.
    pub async fn flush(&self, now: Timestamp, turn: usize) {
        let there = self.remote.there(now);
        self.tallies.sweep(there, turn, SWEEP_TURNS);
        if self.gates.all_shut() {
            return;
        }
        for _ in 0..BATCHES_MAX {
            let deltas = self.tallies.drain(BATCH_MAX, there);
            for region in &self.regions {
                region.add(&deltas, &self.counters);
            }
            if deltas.is_empty() || self.gates.all_shut() {
                deltas.iter().for_each(|delta| self.tallies.put_back(delta));
                return;
            }
            let full = deltas.len() >= BATCH_MAX;
            self.flush_batch(deltas, now).await;
            if !full {
                // What was counted meanwhile is told on the next beat.
                return;
            }
        }
    }

    async fn flush_batch(&self, deltas: Vec<Delta>, now: Timestamp) {
        flushed(&self.counters, deltas.len());
        // What fits is taken; only what does not has to be charged on top, and
        // that is the overshoot.
        let results = self.tell(Verb::Take, &deltas, now).await;
        let over = self.digest(deltas, results, now, Told::UpToTheLimit);
        if over.is_empty() {
            return;
        }
        let results = self.tell(Verb::Charge, &over, now).await;
        self.digest(over, results, now, Told::Whole);
    }

    async fn tell(
        &self,
        verb: Verb,
        deltas: &[Delta],
        now: Timestamp,
    ) -> Vec<Result<Answer, StoreError>> {
        let checks: Vec<Check<'_>> =
            deltas.iter().map(|delta| Check::new(delta.key, &delta.limit, delta.units)).collect();
        let within = self.settings.background_within;
        let batch = Batch::new(verb, Charge::Always, now, &checks);
        self.gates.each(&self.remote, &batch, Instant::now() + within, &self.counters).await
    }

    /// Takes in the totals; gives what was beyond the limit.
    fn digest(
        &self,
        deltas: Vec<Delta>,
        results: Vec<Result<Answer, StoreError>>,
        now: Timestamp,
        told: Told,
    ) -> Vec<Delta> {
        let there = self.remote.there(now);
        let mut over = Vec::new();
        for (delta, result) in deltas.into_iter().zip(results) {
            let answer = match result {
                Ok(answer) => answer,
                // Telling it again could count it twice.
                Err(error) if error.may_have_run() => {
                    count(&self.counters.unsure);
                    continue;
                }
                Err(_) => {
                    self.tallies.put_back(&delta);
                    continue;
                }
            };
            let rest = delta.units.saturating_sub(answer.decision.taken);
            if told == Told::UpToTheLimit {
                self.counters.overshot(rest, delta.limit.algorithm().capacity());
            }
            if rest > 0 {
                over.push(Delta { units: rest, outward: 0, ..delta });
            } else {
                self.tallies.learn(delta.key.fingerprint, &answer.decision, there);
            }
        }
        over
    }

    /// Tells the other regions what was counted here.
    pub async fn tell_regions(&self, now: Timestamp) {
        let within = self.settings.background_within;
        for region in &self.regions {
            let (there, deadline) = (self.remote.there(now), Instant::now() + within);
            region.tell(&self.tallies, there, now, deadline, &self.counters).await;
        }
    }

    /// Charges the remote for what was admitted while it was away, one batch at a time.
    pub async fn settle_debts(&self, now: Timestamp) {
        // Further off than the spread: the clock was put back since.
        let wait = self.settle_from().since(now);
        let is_early = wait > Nanos::ZERO && wait <= SETTLE_SPREAD;
        if self.gates.all_shut() || is_early {
            return;
        }
        let there = self.remote.there(now);
        let debts = self.outage.settle(BATCH_MAX, there, |key| self.may_ask(key));
        if debts.is_empty() {
            return;
        }
        let checks: Vec<Check<'_>> =
            debts.iter().map(|debt| Check::new(debt.key, &debt.limit, debt.units)).collect();
        let within = self.settings.background_within;
        let batch = Batch::new(Verb::Charge, Charge::Always, now, &checks);
        let deadline = Instant::now() + within;
        let results = self.gates.each(&self.remote, &batch, deadline, &self.counters).await;
        for ((debt, check), result) in debts.iter().zip(&checks).zip(results) {
            match result {
                Ok(answer) => {
                    self.outage.learn(check, &answer.decision, there);
                    self.outage.paid(debt);
                }
                // Charging it again could count it twice.
                Err(error) if error.may_have_run() => {
                    count(&self.counters.unsure);
                    self.outage.paid(debt);
                }
                Err(_) => self.outage.unpaid(debt),
            }
        }
    }

    /// Says that this node lives, and learns how many do. While the remote is
    /// not asked this is the probe that finds out when it is back.
    pub async fn register(&self, now: Timestamp) {
        let within = self.settings.background_within;
        let lasting = self.settings.node_beat * NODE_BEATS;
        let gate = self.gates.of(self.remote.register_route());
        let was_shut = gate.is_shut();
        let call = self.remote.register(self.nodes.id(), lasting, now, within);
        let deadline = Instant::now() + within;
        if let Some(Ok(live)) = gate.probe(call, deadline, now, &self.counters).await {
            self.nodes.told(live);
            if was_shut {
                self.settle_later(now);
            }
        }
    }

    /// Finds out whether parts of the remote are back that nobody registers with.
    async fn probe(&self, now: Timestamp) {
        let (register, within) = (self.remote.register_route(), self.settings.background_within);
        let (remote, counters) = (&self.remote, &self.counters);
        if self.gates.probe_all_but(register, remote, within, now, counters).await {
            self.settle_later(now);
        }
    }

    /// Whether the remote can be asked for a key.
    fn may_ask(&self, key: Key) -> bool {
        !self.gates.is_shut(self.remote.route(key))
    }

    /// Lets debts wait for a moment: not all nodes at once.
    fn settle_later(&self, now: Timestamp) {
        let wait = self.nodes.id().0 % SETTLE_SPREAD.get();
        let from = now.after(Nanos::new(wait)).as_nanos();
        self.settle_from.store(from, Ordering::Relaxed);
    }
}

/// How a batch of counts was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// As far as the limit goes.
    UpToTheLimit,
    /// All of it.
    Whole,
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval(period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
