//! Background work: renewing leases, registering the node, settling debts. Counts are reported in [`super::report`].
//!
//! Each beat is a function of `now`; [`SharedStore::run`] calls them periodically. The loops run concurrently, so a
//! remote that hangs in one of them does not delay the others. A beat sends a bounded number of batches, so its work
//! does not grow with the backlog.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::SharedStore;
use super::clock_reading::ClockReading;
use super::join_all::join_all;
use super::lease::ReturnOptions;
use super::metrics::count;
use super::region::Region;
use super::remote::Remote;
use super::transfer::Transfer;
use crate::batch::{Answer, Batch, Charge, Check, Key, Verb};
use crate::counter_store::StoreError;

/// How often leases are renewed.
const RENEW_BEAT: Duration = Duration::from_millis(10);
/// How long the return of unused units may take; later it is not sent. The bound of leased limits relies on it.
const RETURN_WITHIN: Duration = Duration::from_millis(100);
/// How often held slots are renewed: a third of the shortest slot lease. A beat costs as much as is due.
const SLOT_BEAT: Duration = Duration::from_millis(100);
/// How many beats it takes to search all leases for unused units.
const RENEW_TURNS: usize = 8;
/// Keys in one batch: a few milliseconds of the remote's time.
const BATCH_MAX: usize = 1_000;
/// Leases that are renewed together: requests that call the remote meanwhile wait for them, about 0.2 ms.
const RENEWED_TOGETHER_MAX: usize = 50;
/// The pause between batches of renewals while there are more.
const RENEW_PAUSE: Duration = Duration::from_millis(2);
/// Batches of renewals in one beat. A busy node would renew thousands when windows begin, and its requests would wait for
/// the remote meanwhile. A key whose turn has not come takes a slice with its next check.
const RENEW_BATCHES_MAX: usize = 5;
/// A node that has not registered for this many beats is not counted any more.
const NODE_BEATS: u32 = 5;
/// The maximum random delay before the debts of an outage are charged.
const SETTLE_JITTER: Nanos = Nanos::from_secs(1);

impl<R: Remote> SharedStore<R> {
    /// Runs the background work while it is polled.
    pub async fn run(&self, clock: &impl Clock) {
        tokio::join!(
            self.run_lease_loop(clock),
            self.run_count_loop(clock),
            join_all(self.regions.iter().map(|region| self.run_region_loop(region, clock))),
            self.run_register_loop(clock),
            self.run_slot_loop(clock),
        );
    }

    /// Returns all units that this node holds, flushes its counts and unregisters it: the process is about to end.
    pub async fn close(&self, now: Timestamp) {
        let options = ReturnOptions { all: true, within: RETURN_WITHIN.into() };
        let transfers = self.leases.take_returnable(now, options, 0, 1, |_| true);
        self.return_units(transfers, now).await;
        self.flush(now, 0).await;
        self.flush_regions(now).await;
        self.settle_debts(now).await;
        if !self.breakers.is_open(self.remote.register_route()) {
            let within = self.settings.background_within;
            let unregister = self.remote.unregister(self.nodes.id(), now, within);
            let _ = tokio::time::timeout(within, unregister).await;
        }
    }

    async fn run_lease_loop(&self, clock: &impl Clock) {
        let mut ticks = every(RENEW_BEAT);
        let mut last = ClockReading::of(clock);
        for turn in 0_usize.. {
            ticks.tick().await;
            let reading = ClockReading::of(clock);
            if reading.is_behind(&last) {
                // Slices and cached refusals would expire too late.
                self.leases.invalidate();
                self.refusal_cache.clear();
            }
            last = reading;
            // Both at once, so that they share a pipeline.
            tokio::join!(
                self.renew_in_batches(clock, RENEW_BATCHES_MAX),
                self.return_unused(reading.shown, turn)
            );
        }
    }

    /// Renews the leases that are due, in up to `batches` batches with a pause between them. A batch does not wait for the
    /// answers of the one before, so that a far remote renews as many in a beat.
    async fn renew_in_batches(&self, clock: &impl Clock, batches: usize) {
        let now = clock.now();
        let transfers = self.due_renewals(now);
        let is_full = transfers.len() == RENEWED_TOGETHER_MAX;
        let further = async {
            if is_full && batches > 1 {
                tokio::time::sleep(RENEW_PAUSE).await;
                Box::pin(self.renew_in_batches(clock, batches - 1)).await;
            }
        };
        tokio::join!(self.send_due_renewals(transfers, now), further);
    }

    async fn run_count_loop(&self, clock: &impl Clock) {
        let mut ticks = every(self.settings.beat);
        for turn in 0_usize.. {
            ticks.tick().await;
            self.flush(clock.now(), turn).await;
            self.settle_debts(clock.now()).await;
        }
    }

    async fn run_region_loop(&self, region: &Region<R>, clock: &impl Clock) {
        let mut ticks = every(self.settings.beat);
        loop {
            ticks.tick().await;
            self.flush_region(region, clock.now()).await;
        }
    }

    async fn run_slot_loop(&self, clock: &impl Clock) {
        let mut ticks = every(SLOT_BEAT);
        loop {
            ticks.tick().await;
            if !self.breakers.all_open() {
                self.remote.renew_held_slots(clock.now()).await;
            }
        }
    }

    async fn run_register_loop(&self, clock: &impl Clock) {
        // Ten times as often as registering, so that probes are on time.
        let mut ticks = every(self.settings.node_beat / 10);
        for turn in 0_u64.. {
            ticks.tick().await;
            if turn % 10 == 0 || self.breakers.is_open(self.remote.register_route()) {
                self.register(clock.now()).await;
            }
            if self.breakers.any_open() {
                self.probe(clock.now()).await;
            }
        }
    }

    /// Renews one batch of the leases that are due.
    pub async fn renew(&self, now: Timestamp) {
        let transfers = self.due_renewals(now);
        self.send_due_renewals(transfers, now).await;
    }

    fn due_renewals(&self, now: Timestamp) -> Vec<Transfer> {
        if self.breakers.all_open() {
            return Vec::new();
        }
        self.leases.due(RENEWED_TOGETHER_MAX, now)
    }

    async fn send_due_renewals(&self, transfers: Vec<Transfer>, now: Timestamp) {
        if transfers.is_empty() {
            return;
        }
        let (ample, scarce): (Vec<_>, Vec<_>) = transfers.into_iter().partition(|it| it.is_ample);
        tokio::join!(self.renew_ample(&ample, now), self.send_renewals(Verb::Take, &scarce, now));
    }

    /// Renews leases of which the remote has enough, by checks: the script has a fast path for them. A check takes all
    /// units or none, so a refused one is followed by a take.
    async fn renew_ample(&self, transfers: &[Transfer], now: Timestamp) {
        let refused = self.send_renewals(Verb::Check, transfers, now).await;
        self.send_renewals(Verb::Take, &refused, now).await;
    }

    /// Renews leases by checks or takes; returns the transfers whose checks the remote refused.
    async fn send_renewals(
        &self,
        verb: Verb,
        transfers: &[Transfer],
        now: Timestamp,
    ) -> Vec<Transfer> {
        if transfers.is_empty() {
            return Vec::new();
        }
        let sent = Instant::now();
        let results = self.send(verb, transfers, now).await;
        if results.iter().any(Result::is_ok) {
            self.leases.note_round_trip(sent.elapsed().into());
        }
        let mut refused = Vec::new();
        for (transfer, result) in transfers.iter().zip(results) {
            match result {
                Ok(answer) if verb == Verb::Check && !answer.decision.is_admitted() => {
                    refused.push(transfer.clone());
                }
                Ok(answer) => {
                    let nodes = self.nodes.live();
                    self.leases.on_renewed(transfer, &answer.decision, now, nodes);
                }
                Err(_) => self.leases.on_no_answer(transfer.key.fingerprint),
            }
        }
        refused
    }

    /// Returns unused units, from the shards of this turn.
    pub async fn return_unused(&self, now: Timestamp, turn: usize) {
        if self.breakers.all_open() {
            return;
        }
        let options = ReturnOptions { all: false, within: RETURN_WITHIN.into() };
        let transfers = self
            .leases
            .take_returnable(now, options, turn, RENEW_TURNS, |key| self.is_reachable(key));
        self.return_units(transfers, now).await;
    }

    async fn return_units(&self, transfers: Vec<Transfer>, now: Timestamp) {
        for some in transfers.chunks(BATCH_MAX) {
            let results = self.send(Verb::Refund, some, now).await;
            for (transfer, result) in some.iter().zip(results) {
                match result {
                    Ok(_) => self.leases.count_returned(transfer.units),
                    // It may have arrived, so it is not sent again.
                    Err(_) => self.leases.count_lost(transfer.units),
                }
            }
        }
    }

    async fn send(
        &self,
        verb: Verb,
        transfers: &[Transfer],
        now: Timestamp,
    ) -> Vec<Result<Answer, StoreError>> {
        let checks: Vec<Check<'_>> = transfers.iter().map(Transfer::check).collect();
        let batch = Batch::new(verb, Charge::Always, now, &checks);
        let within = match verb {
            Verb::Refund => RETURN_WITHIN,
            _ => self.settings.background_within,
        };
        let deadline = Instant::now() + within;
        self.breakers.apply_each(&self.remote, &batch, deadline).await
    }

    /// Charges the remote for what this node admitted during an outage, one batch at a time.
    pub async fn settle_debts(&self, now: Timestamp) {
        // A wait beyond the maximum means that the clock was set back.
        let wait = self.settle_from().since(now);
        let is_early = wait > Nanos::ZERO && wait <= SETTLE_JITTER;
        if self.breakers.all_open() || is_early {
            return;
        }
        let remote_now = self.remote.remote_time(now);
        let debts = self.outage.take_debts(BATCH_MAX, remote_now, |key| self.is_reachable(key));
        let results = self.send(Verb::Charge, &debts, now).await;
        for (debt, result) in debts.iter().zip(results) {
            match result {
                Ok(answer) => {
                    self.outage.learn(&debt.check(), &answer.decision, remote_now);
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

    /// Registers this node, and reads how many nodes there are. While the breaker is open this is the probe.
    pub async fn register(&self, now: Timestamp) {
        let within = self.settings.background_within;
        let lasting = self.settings.node_beat * NODE_BEATS;
        let breaker = self.breakers.of(self.remote.register_route());
        let was_open = breaker.is_open();
        let call = self.remote.register(self.nodes.id(), lasting, now, within);
        let deadline = Instant::now() + within;
        if let Some(Ok(live)) = breaker.probe(call, deadline, now).await {
            self.nodes.on_registered(live);
            if was_open {
                self.settle_later(now);
            }
        }
    }

    /// Probes the routes other than that of the register.
    async fn probe(&self, now: Timestamp) {
        let (register, within) = (self.remote.register_route(), self.settings.background_within);
        if self.breakers.probe_all_but(register, &self.remote, within, now).await {
            self.settle_later(now);
        }
    }

    /// Whether the breaker of the key's route is closed.
    fn is_reachable(&self, key: Key) -> bool {
        !self.breakers.is_open(self.remote.route(key))
    }

    /// Delays the settling of debts, so that nodes do not send theirs at the same moment.
    pub(super) fn settle_later(&self, now: Timestamp) {
        let wait = self.nodes.id().0 % SETTLE_JITTER.get();
        let from = now.after(Nanos::new(wait)).as_nanos();
        self.settle_from.store(from, Ordering::Relaxed);
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval(period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
