//! Counters in Redis or Valkey, shared by every process that uses the same
//! server: asked each time, exact.
//!
//! A request is one parcel: its checks as plain numbers, decided and charged by
//! a script next to the data, in one step for everyone else. The script is the
//! twin of `tidegate-algorithms` and does no more than settle, compare and
//! write; from the states that it tells, the pure functions here say what is
//! left and when to come again. The server's clock decides, so processes need
//! not agree on the time.
//!
//! Modes that ask less often, and what happens when the server cannot be asked,
//! are not here.

mod across;
#[cfg(feature = "fleet")]
mod board;
mod codec;
mod courier;
mod exchange;
mod failure;
mod held;
mod kept;
mod key;
mod link;
mod parcel;
mod remote;
mod replay;
mod script;
mod settings;
mod upstream;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{Period, Timestamp};
use tidegate_metrics::{Collector, Exposition};

use crate::batch::{Answer, Answers, Basis, Batch, Charge, Check, Key, Verb};
use crate::counter_store::{CounterStore, StoreError};
use crate::shared::{Asking, Remote};
use codec::{Order, Request};
use courier::Courier;
use exchange::{Exchange, Limits};
use held::HeldSlots;

#[cfg(feature = "fleet")]
pub use board::RedisBoard;
pub use courier::{CourierFigures, Histogram, REDIS_METRICS};
pub use held::HeldCounts;
pub use link::LinkState;
pub use settings::{
    Login, NameCheck, Password, RedisAddress, RedisServers, RedisSettings, RedisSettingsError,
    RedisTls, Secret,
};
pub use upstream::{UpstreamLayout, UpstreamStore};

/// How long what is given back may wait for a server that cannot be reached.
/// Slots that are lost come free when their lease or time to live is over.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(5);

/// Keeps counters in Redis or Valkey.
#[derive(Debug)]
pub struct RedisStore {
    courier: Courier,
    prefix: SmallVec<[u8; 16]>,
    /// How long a batch that does not say it may take.
    deadline: Duration,
    /// Whether one call can only take keys of one tag.
    across: bool,
    /// How far the server's clock is ahead of the callers', in nanoseconds.
    ahead: AtomicI64,
    /// For how long slots are taken that this process renews.
    slot_lease: Option<Period>,
    held: HeldSlots,
}

impl RedisStore {
    /// A store on the servers that the settings name. Connects by itself, now
    /// or when they can be reached.
    ///
    /// # Errors
    /// When the settings make no sense, or a file that they name cannot be read.
    pub fn new(settings: RedisSettings) -> Result<Self, RedisSettingsError> {
        settings.check()?;
        let prefix = SmallVec::from_slice(settings.prefix.as_bytes());
        let (deadline, slot_lease) = (settings.deadline, Period::new(settings.slot_lease).ok());
        let across = matches!(settings.servers, RedisServers::Cluster(_));
        let courier = Courier::start(settings, script::TEXT)?;
        Ok(RedisStore {
            courier,
            prefix,
            deadline,
            across,
            ahead: AtomicI64::new(0),
            slot_lease,
            held: HeldSlots::default(),
        })
    }

    /// Waits until every server can be asked. Waits forever if none ever can.
    pub async fn connected(&self) {
        self.courier.connected().await;
    }

    /// How the connections are.
    pub fn state(&self) -> LinkState {
        self.courier.state()
    }

    /// What was asked so far.
    pub fn figures(&self) -> CourierFigures {
        self.courier.figures()
    }

    /// Decides every request from now on at this instant, to the microsecond,
    /// instead of by the server's clock. For tests.
    #[doc(hidden)]
    pub fn set_clock(&self, now: Timestamp) {
        self.courier.set_instant((now.as_nanos() / kept::MICRO).to_string().as_bytes());
    }

    /// The text of the script that every call runs. For benchmarks.
    #[doc(hidden)]
    pub const fn script() -> &'static str {
        script::TEXT
    }

    /// What the script is told of these checks, as the argument after the
    /// instant. For benchmarks that call it by themselves.
    #[doc(hidden)]
    pub fn question(&self, batch: &Batch<'_>) -> Vec<u8> {
        let limits: Limits<'_> = batch.checks.iter().map(|check| kept::kept(check.limit)).collect();
        let request = Request {
            order: Order::of(batch),
            checks: batch.checks,
            limits: &limits,
            expected: self.expected(batch.now),
            settled: &[],
        };
        request.parcel(&self.prefix).body.to_vec()
    }

    /// What a counter is called in Redis. For benchmarks.
    #[doc(hidden)]
    pub fn key_text(&self, key: Key) -> String {
        String::from_utf8_lossy(&key::text(&self.prefix, key.fingerprint)).into_owned()
    }

    /// Lets the slots of a holder live for one time to live from now, or for the
    /// check's lease, if it still has them; only forward. Says whether it has.
    ///
    /// # Errors
    /// When the store could not be asked.
    pub async fn renew(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        within: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let checks = [*check];
        let limits = [kept::kept(check.limit)];
        let batch = Batch { within, ..Batch::new(Verb::Peek, Charge::AllOrNothing, now, &checks) };
        Exchange::new(self, &batch, &limits).renew().await
    }

    /// Has a batch decided; says which master it asks.
    async fn decide(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
        asking: &Asking,
    ) -> Result<(), StoreError> {
        let Some(first) = batch.checks.first() else { return Ok(()) };
        asking.set(self.route(first.key));
        let limits: Limits<'_> = batch.checks.iter().map(|check| kept::kept(check.limit)).collect();
        let decisions = if self.across && across::is_spread(batch.checks) {
            across::decide(self, batch, &limits, asking).await?
        } else {
            Exchange::new(self, batch, &limits).decide().await?
        };
        let exact = |decision| Answer { decision, basis: Basis::Exact };
        answers.extend(decisions.into_iter().map(exact));
        Ok(())
    }

    /// What the server's clock is expected to show when a caller's shows `now`.
    fn expected(&self, now: Timestamp) -> Timestamp {
        let ahead = self.ahead.load(Ordering::Relaxed);
        Timestamp::from_nanos(now.as_nanos().saturating_add_signed(ahead))
    }

    /// Remembers what the server's clock showed at `now`.
    fn learn(&self, now: Timestamp, shown: Timestamp) {
        let ahead = i128::from(shown.as_nanos()) - i128::from(now.as_nanos());
        let ahead = i64::try_from(ahead).unwrap_or(0);
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

impl CounterStore for RedisStore {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        self.decide(batch, answers, &Asking::default()).await
    }

    fn slot_lease(&self) -> Option<Period> {
        self.slot_lease
    }

    fn hold(&self, batch: &Batch<'_>) {
        self.held.hold(batch);
    }

    fn give_back(&self, batch: &Batch<'_>) {
        self.held.release(batch);
        for check in batch.checks {
            let (checks, limits) = ([*check], [kept::kept(check.limit)]);
            let request = Request {
                order: Order::Refund,
                checks: &checks,
                limits: &limits,
                expected: self.expected(batch.now),
                settled: &[],
            };
            self.courier.post(request.parcel(&self.prefix), GIVE_BACK_WITHIN);
        }
    }

    fn collect(&self, _now: Timestamp, out: &mut Exposition) {
        self.figures().collect(out);
    }
}
