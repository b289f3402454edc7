//! A server, nodes in front of it, and a record of their admissions.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::{Clock, Decision, Limit, Timestamp};
use tidegate_stores::{
    Answers, Basis, Batch, Charge, Check, Consistency, CounterStore, Fingerprinter, Key,
    OnStoreError, Policy, SharedSettings, SharedStore, StoreError, Verb,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::fake::{Line, Server, VirtualClock};

/// Deadlines for a server that is near, unless a test sets its own.
const WITHIN: Duration = Duration::from_millis(10);
const BACKGROUND_WITHIN: Duration = Duration::from_millis(100);

pub(crate) type Store = SharedStore<Line>;

/// A store with its own line, clock and background work.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) store: Arc<Store>,
    pub(crate) line: Line,
    pub(crate) clock: VirtualClock,
    background: JoinHandle<()>,
}

impl Drop for Node {
    /// A dropped node ends without closing, like a crash.
    fn drop(&mut self) {
        self.background.abort();
    }
}

/// A server and the time that everything shares.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) origin: Instant,
    pub(crate) server: Arc<Server>,
}

pub(crate) fn key(name: &str) -> Key {
    Key { fingerprint: Fingerprinter::seeded(5).of(1, name.as_bytes()), group: 1 }
}

pub(crate) fn policy(consistency: Consistency) -> Policy {
    Policy { consistency, on_store_error: OnStoreError::Local }
}

pub(crate) fn check<'a>(name: &str, limit: &'a Limit, cost: u64, policy: Policy) -> Check<'a> {
    Check { policy, ..Check::new(key(name), limit, cost) }
}

impl World {
    pub(crate) fn new() -> Self {
        let origin = Instant::now();
        World { origin, server: Server::new(VirtualClock::off_by(origin, 0)) }
    }

    /// A node whose clock is off by `millis`.
    pub(crate) fn node_off_by(&self, seed: u64, millis: i64) -> Node {
        self.node_with(seed, millis, |store| store, &SharedSettings::default())
    }

    pub(crate) fn node(&self, seed: u64) -> Node {
        self.node_off_by(seed, 0)
    }

    pub(crate) fn node_with(
        &self,
        seed: u64,
        millis: i64,
        finish: impl FnOnce(Store) -> Store,
        settings: &SharedSettings,
    ) -> Node {
        let clock = VirtualClock::off_by(self.origin, millis);
        let line = Line::new(&self.server, clock.clone());
        let mut settings = SharedSettings { seed: Some(seed), ..settings.clone() };
        if settings.within == SharedSettings::default().within {
            (settings.within, settings.background_within) = (WITHIN, BACKGROUND_WITHIN);
        }
        let store = SharedStore::new(line.clone(), settings).expect("enough bytes");
        let store = Arc::new(finish(store));
        let (running, its_clock) = (Arc::clone(&store), clock.clone());
        let background = tokio::spawn(async move { running.run(&its_clock).await });
        Node { store, line, clock, background }
    }

    /// The units that remain of a limit at the server.
    pub(crate) fn left(&self, name: &str, limit: &Limit) -> u64 {
        let checks = [Check::new(key(name), limit, 0)];
        let now = self.server.clock.now();
        let batch = Batch::new(Verb::Peek, Charge::Always, now, &checks);
        self.server.apply_now(&batch)[0].decision.remaining
    }
}

impl Node {
    pub(crate) async fn send(
        &self,
        verb: Verb,
        checks: &[Check<'_>],
    ) -> Result<Vec<(Decision, Basis)>, StoreError> {
        let mut answers = Answers::new();
        let batch = Batch::new(verb, Charge::AllOrNothing, self.clock.now(), checks);
        self.store.apply(&batch, &mut answers).await?;
        Ok(answers.iter().map(|answer| (answer.decision, answer.basis)).collect())
    }

    pub(crate) async fn ask(&self, check: Check<'_>) -> (Decision, Basis) {
        self.send(Verb::Check, &[check]).await.expect("the store decides")[0]
    }

    pub(crate) async fn admits(&self, check: Check<'_>) -> bool {
        self.ask(check).await.0.is_admitted()
    }

    /// How many of `times` requests are admitted.
    pub(crate) async fn burst(&self, check: Check<'_>, times: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..times {
            admitted += usize::from(self.admits(check).await);
        }
        admitted
    }

    pub(crate) fn metrics(&self) -> tidegate_stores::Metrics {
        self.store.metrics(self.clock.now())
    }
}

pub(crate) async fn pass(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

/// Admissions, with their time by the server's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    pub(crate) used: Vec<(Timestamp, u64)>,
}

impl Witness {
    pub(crate) fn saw(&mut self, at: Timestamp, cost: u64) {
        self.used.push((at, cost));
    }

    fn sorted(&self) -> Vec<(u128, u128)> {
        let mut used: Vec<_> = self
            .used
            .iter()
            .map(|(at, cost)| (u128::from(at.as_nanos()), u128::from(*cost)))
            .collect();
        used.sort_unstable();
        used
    }

    pub(crate) fn total(&self) -> u64 {
        self.used.iter().map(|(_, cost)| cost).sum()
    }

    /// The most that a bucket at this rate would have had to hold.
    pub(crate) fn burst_at(&self, amount: u64, period: Duration) -> u64 {
        let (amount, period) = (u128::from(amount), period.as_nanos());
        let (mut level, mut last, mut most) = (0_u128, 0, 0);
        for (at, cost) in self.sorted() {
            level = level.saturating_sub((at - last) * amount) + cost * period;
            (last, most) = (at, most.max(level));
        }
        narrow(most.div_ceil(period))
    }

    /// The most in any window of this length.
    pub(crate) fn most_in(&self, length: Duration) -> u64 {
        let used = self.sorted();
        let (mut sum, mut first, mut most) = (0, 0, 0);
        for (at, cost) in &used {
            sum += cost;
            while at - used[first].0 >= length.as_nanos() {
                sum -= used[first].1;
                first += 1;
            }
            most = most.max(sum);
        }
        narrow(most)
    }

    /// The most in any window that begins at a multiple of its length.
    pub(crate) fn most_in_aligned(&self, length: Duration) -> u64 {
        let mut sums = std::collections::HashMap::<u128, u128>::new();
        for (at, cost) in self.sorted() {
            *sums.entry(at / length.as_nanos()).or_default() += cost;
        }
        narrow(sums.into_values().max().unwrap_or(0))
    }
}

fn narrow(units: u128) -> u64 {
    u64::try_from(units).expect("no test uses more")
}
