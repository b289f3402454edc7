//! Counters in Redis or Valkey, shared by every process that uses the same server. Exact: every request is a call.
//!
//! A request is one script call: its checks as plain numbers, decided and charged atomically by a Lua script next to
//! the data. The script implements the same algorithms as `tidegate-algorithms`, but only settles, compares and writes;
//! from the states that it reports, the pure functions compute what remains and when to retry. The server's clock
//! decides, so the clocks of the processes need not agree.
//!
//! Modes with fewer calls, and what to do when the server fails, are in `shared`.

mod across_slots;
mod codec;
mod error;
mod exchange;
mod held_slots;
mod key;
mod remote;
mod replay;
mod rounded_limit;
mod script;
mod upstream;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{Period, Timestamp};
use tidegate_metrics::{Collector, Exposition};
use tidegate_redis_link::{
    BatchingClient, ClientFigures, LinkState, RedisServers, RedisSettings, RedisSettingsError,
    ScriptCall,
};

use crate::batch::{Answer, Answers, Batch, Charge, Check, Key, Verb};
use crate::counter_store::{CounterStore, StoreError};
use crate::shared::{CurrentRoute, Remote};
use codec::{Request, ScriptVerb};
use exchange::Exchange;
use held_slots::HeldSlots;
use rounded_limit::{MICRO, rounded_limits};

pub use held_slots::HeldCounts;
pub use upstream::{UpstreamLayout, UpstreamStore};

/// How long a refund waits for a server that cannot be reached. If it is lost, the slots expire with their lease or
/// time to live.
const REFUND_WITHIN: Duration = Duration::from_secs(5);

/// Keeps counters in Redis or Valkey.
#[derive(Debug)]
pub struct RedisStore {
    client: BatchingClient,
    prefix: SmallVec<[u8; 16]>,
    /// The deadline of a batch that does not set its own.
    deadline: Duration,
    /// Whether the keys of one call must have one tag.
    is_cluster: bool,
    /// How far the server's clock is ahead of the callers', in nanoseconds.
    clock_offset: AtomicI64,
    /// The lease of slots that this process renews.
    slot_lease: Option<Period>,
    held_slots: HeldSlots,
}

impl RedisStore {
    /// A store on these servers. Connects in the background, and keeps trying while it cannot.
    ///
    /// # Errors
    /// When the settings are invalid, or a file that they name cannot be read.
    pub fn new(settings: RedisSettings) -> Result<Self, RedisSettingsError> {
        settings.check()?;
        let prefix = SmallVec::from_slice(settings.prefix.as_bytes());
        let (deadline, slot_lease) = (settings.deadline, Period::new(settings.slot_lease).ok());
        let is_cluster = matches!(settings.servers, RedisServers::Cluster(_));
        let client = BatchingClient::start(settings, script::TEXT)?;
        Ok(RedisStore {
            client,
            prefix,
            deadline,
            is_cluster,
            clock_offset: AtomicI64::new(0),
            slot_lease,
            held_slots: HeldSlots::default(),
        })
    }

    /// Waits until all connections are open, forever if necessary.
    pub async fn connected(&self) {
        self.client.connected().await;
    }

    /// The state of the connections.
    pub fn state(&self) -> LinkState {
        self.client.state()
    }

    /// Counts of calls, errors and connections since the start.
    pub fn figures(&self) -> ClientFigures {
        self.client.figures()
    }

    /// Decides every request at this instant, in whole microseconds, instead of by the server's clock. For tests.
    #[doc(hidden)]
    pub fn set_clock(&self, now: Timestamp) {
        self.client.set_instant((now.as_nanos() / MICRO).to_string().as_bytes());
    }

    /// The text of the script. For benchmarks.
    #[doc(hidden)]
    pub const fn script() -> &'static str {
        script::TEXT
    }

    /// The script's argument for these checks, which follows the instant. For benchmarks that run the script without
    /// the client.
    #[doc(hidden)]
    pub fn script_body(&self, batch: &Batch<'_>) -> Vec<u8> {
        self.first_call(ScriptVerb::of(batch), batch.checks, batch.now).body.to_vec()
    }

    /// A script call without settled states.
    fn first_call(&self, verb: ScriptVerb, checks: &[Check<'_>], now: Timestamp) -> ScriptCall {
        let (limits, expected) = (rounded_limits(checks), self.server_time(now));
        Request { verb, checks, limits: &limits, expected, settled: &[] }.call(&self.prefix)
    }

    /// The key of a counter in Redis. For benchmarks.
    #[doc(hidden)]
    pub fn key_text(&self, key: Key) -> String {
        String::from_utf8_lossy(&key::text(&self.prefix, key.fingerprint)).into_owned()
    }

    /// Extends the expiry of a holder's slots to one time to live from now, or to the check's lease; never shortens it.
    /// Returns whether the holder still has the slots.
    ///
    /// # Errors
    /// When the call failed.
    pub async fn renew(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        within: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let checks = [*check];
        let limits = rounded_limits(&checks);
        let batch = Batch { within, ..Batch::new(Verb::Peek, Charge::AllOrNothing, now, &checks) };
        Exchange::new(self, &batch, &limits).renew().await
    }

    /// Decides a batch; sets `route` to the master that it calls.
    async fn decide(
        &self,
        batch: &Batch<'_>,
        answers: &mut Answers,
        route: &CurrentRoute,
    ) -> Result<(), StoreError> {
        let Some(first) = batch.checks.first() else { return Ok(()) };
        route.set(self.route(first.key));
        let limits = rounded_limits(batch.checks);
        let decisions = if self.is_cluster && across_slots::is_spread(batch.checks) {
            across_slots::decide(self, batch, &limits, route).await?
        } else {
            Exchange::new(self, batch, &limits).decide().await?
        };
        answers.extend(decisions.into_iter().map(Answer::exact));
        Ok(())
    }

    /// The server's time when a caller's clock shows `now`, estimated from the last reply.
    fn server_time(&self, now: Timestamp) -> Timestamp {
        let offset = self.clock_offset.load(Ordering::Relaxed);
        Timestamp::from_nanos(now.as_nanos().saturating_add_signed(offset))
    }

    /// Remembers that the server's clock showed `server_time` at `now`.
    fn note_server_time(&self, now: Timestamp, server_time: Timestamp) {
        let offset = i128::from(server_time.as_nanos()) - i128::from(now.as_nanos());
        let offset = i64::try_from(offset).unwrap_or(0);
        self.clock_offset.store(offset, Ordering::Relaxed);
    }
}

impl CounterStore for RedisStore {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        self.decide(batch, answers, &CurrentRoute::default()).await
    }

    fn slot_lease(&self) -> Option<Period> {
        self.slot_lease
    }

    fn hold(&self, batch: &Batch<'_>) {
        self.held_slots.hold(batch);
    }

    fn give_back(&self, batch: &Batch<'_>) {
        self.held_slots.release(batch);
        for check in batch.checks {
            let call = self.first_call(ScriptVerb::Refund, &[*check], batch.now);
            self.client.send_and_forget(call, REFUND_WITHIN);
        }
    }

    fn collect(&self, _now: Timestamp, out: &mut Exposition) {
        self.figures().collect(out);
    }
}
