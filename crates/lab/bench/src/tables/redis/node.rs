//! A node that shares its limits over Redis, and its callers.
//!
//! As in our server, callers are tasks on a runtime of one thread, and the link to
//! Redis has its own thread. Each decision includes reading the clock and the
//! fingerprint of the key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use tidegate_engine::{
    Clock, CounterStore, Limit, Period, StoreError, SystemClock, TokenBucket, Verb,
};
use tidegate_stores::{
    Answer, Answers, Batch, Charge, Check, Consistency, Fingerprinter, Key, Policy, RedisAddress,
    RedisServers, RedisSettings, RedisStore, SharedSettings, SharedStore,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::instance::Instance;
use crate::keys::{Draw, KeySequence};
use crate::stopwatch::Stopwatch;

/// Keys that scripts are compared on.
pub(super) const MANY_KEYS: u64 = 10_000;
/// Keys that the modes are compared on.
pub(super) const KEYS: u64 = 1_000;
/// One a minute with a burst that no run uses up: nothing is refused.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);
pub(super) const BURST: u64 = 36_000_000;

const DRAWN: usize = 100_000;
/// The warm-up: slices grow to the demand, and connections are opened.
const WARM_UP: Duration = Duration::from_millis(400);
/// Decisions after which a caller that never waits yields to others.
const TURN: usize = 32;
/// The maximum number of attempts for a measurement.
const TRIES: usize = 20;
/// The pause of a caller after an unexpected outcome.
const PAUSE: Duration = Duration::from_millis(1);
/// The timeout of Redis, long enough for pauses of a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// The prefix of the benchmark's keys.
const GROUP: u64 = 1;

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeFigures {
    /// CPU time of Redis for each decision.
    pub(super) cpu_micros: f64,
    pub(super) per_second: f64,
    /// Decisions in one call.
    pub(super) per_call: f64,
}

/// A limit that no run uses up.
pub(super) fn ample() -> Limit {
    Limit::new(TokenBucket::new(1, Period::MINUTE, BURST))
}

/// The counter of a user.
#[inline]
pub(super) fn key(name: &str) -> Key {
    Key { fingerprint: Fingerprinter::shared().of(GROUP, name.as_bytes()), group: GROUP }
}

/// A process that shares its limits.
#[derive(Debug)]
pub(super) struct Node {
    runtime: Runtime,
    context: Arc<CallerContext>,
}

/// The requests of callers, and the store that decides them.
#[derive(Debug)]
pub(super) struct CallerContext {
    pub(super) store: SharedStore<RedisStore>,
    clock: SystemClock,
    keys: KeySequence,
    limit: Limit,
    consistency: Consistency,
    decided: AtomicU64,
    /// Requests that were refused, or decided without Redis.
    astray: AtomicU64,
    over: AtomicBool,
}

/// The load on a node.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) consistency: Consistency,
    pub(super) limit: Limit,
    pub(super) keys: u64,
    /// How long a request waits for Redis.
    pub(super) within: Duration,
    /// How long Redis may be silent before its connection counts as dead.
    pub(super) silence: Duration,
}

impl Node {
    /// A node that is connected, with its background work running.
    ///
    /// # Errors
    /// When Redis cannot be reached.
    pub(super) fn start(instance: &Instance, load: &Load) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let address = instance.address()?;
        let server = RedisAddress::tcp(address.ip().to_string(), address.port());
        let settings = RedisSettings {
            deadline: load.within,
            connect_timeout: load.silence,
            ..RedisSettings::new(RedisServers::Single(server))
        };
        let remote = RedisStore::new(settings)?;
        runtime.block_on(remote.connected());
        let usual = SharedSettings::default();
        let background_within = usual.background_within.max(load.within);
        let settings = SharedSettings { within: load.within, background_within, ..usual };
        let context = Arc::new(CallerContext {
            store: SharedStore::new(remote, settings)?,
            clock: SystemClock::new(),
            keys: KeySequence::new(Draw::uniform(load.keys), DRAWN),
            limit: load.limit.clone(),
            consistency: load.consistency,
            decided: AtomicU64::new(0),
            astray: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let busy = Arc::clone(&context);
        runtime.spawn(async move { busy.store.run(&busy.clock).await });
        Ok(Node { runtime, context })
    }

    pub(super) fn store(&self) -> &SharedStore<RedisStore> {
        &self.context.store
    }

    /// Calls that Redis has answered so far.
    fn calls(&self) -> u64 {
        self.context.store.remote().figures().evaluations
    }

    /// Requests that were decided so far.
    pub(super) fn decided(&self) -> u64 {
        self.context.decided.load(Ordering::Relaxed)
    }

    /// One request.
    ///
    /// # Errors
    /// When the store could not decide it.
    pub(super) fn admit_one(&self, name: &str) -> anyhow::Result<()> {
        self.runtime.block_on(self.context.admit(name))
    }

    /// The latencies of one caller that sends each request after the answer to the one before, in microseconds.
    ///
    /// # Errors
    /// When the store could not decide a request.
    pub(super) fn lone_waits(&self, requests: usize) -> anyhow::Result<Vec<f64>> {
        let caller = async {
            let mut waits = Vec::with_capacity(requests);
            for name in self.context.keys_from(0).take(requests) {
                let stopwatch = Stopwatch::start();
                self.context.admit(name).await?;
                waits.push(stopwatch.elapsed().as_secs_f64() * 1e6);
            }
            Ok(waits)
        };
        self.runtime.block_on(caller)
    }

    /// Runs this many callers in a closed loop.
    ///
    /// # Errors
    /// When requests were refused or not decided by Redis, time and again.
    pub(super) fn saturate(
        &self,
        instance: &Instance,
        callers: usize,
        time: Duration,
    ) -> anyhow::Result<NodeFigures> {
        let mut client = instance.client()?;
        let mut measure = async || {
            let (begun, before) = (Stopwatch::start(), self.decided());
            let (cpu, calls) = (client.cpu()?, self.calls());
            sleep(time).await;
            let spent = client.cpu()?.saturating_sub(cpu);
            let decided = (self.decided() - before) as f64;
            let per_second = decided / begun.elapsed().as_secs_f64();
            let cpu_micros = spent.as_secs_f64() * 1e6 / decided;
            let per_call = decided / (self.calls() - calls).max(1) as f64;
            anyhow::Ok(NodeFigures { cpu_micros, per_second, per_call })
        };
        let watch = async || self.undisturbed(WARM_UP, &mut measure).await;
        self.with_callers(callers, |context, place| context.ask_on(place), watch)
    }

    /// Measures while Redis decides every request. On a busy machine Redis can time out for a
    /// second; such a measurement is repeated.
    ///
    /// # Errors
    /// When Redis timed out in every attempt, or `measure` fails.
    pub(super) async fn undisturbed<T>(
        &self,
        warm_up: Duration,
        measure: &mut impl AsyncFnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        for _ in 0..TRIES {
            sleep(warm_up).await;
            let before = self.context.astray.load(Ordering::Relaxed);
            if self.context.store.is_degraded() {
                continue;
            }
            let measured = measure().await?;
            if self.context.astray.load(Ordering::Relaxed) == before {
                return Ok(measured);
            }
        }
        bail!("Redis did not answer in time, or refused, in each of {TRIES} tries")
    }

    /// Runs callers, each from another key on, until `watch` returns.
    ///
    /// # Errors
    /// When `watch` or a caller fails.
    pub(super) fn with_callers<T, C>(
        &self,
        callers: usize,
        call: impl Fn(Arc<CallerContext>, usize) -> C,
        watch: impl AsyncFnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T>
    where
        C: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.context.over.store(false, Ordering::Relaxed);
        self.runtime.block_on(async {
            let apart = DRAWN / callers.max(1);
            let tasks: Vec<_> = (0..callers)
                .map(|caller| tokio::spawn(call(Arc::clone(&self.context), caller * apart)))
                .collect();
            let watched = watch().await;
            self.context.over.store(true, Ordering::Relaxed);
            for task in tasks {
                task.await.context("a caller panicked")??;
            }
            watched
        })
    }
}

impl CallerContext {
    /// Whether callers should stop.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The keys from an index on.
    pub(super) fn keys_from(&self, place: usize) -> impl Iterator<Item = &str> {
        self.keys.from(place)
    }

    /// One decision.
    ///
    /// # Errors
    /// When the store could not decide it.
    pub(super) async fn decide(&self, name: &str) -> Result<Option<Answer>, StoreError> {
        let policy = Policy { consistency: self.consistency, ..Policy::default() };
        let checks = [Check { policy, ..Check::new(key(name), &self.limit, 1) }];
        let batch = Batch::new(Verb::Check, Charge::AllOrNothing, self.clock.now(), &checks);
        let mut answers = Answers::new();
        self.store.apply(&batch, &mut answers).await?;
        self.decided.fetch_add(1, Ordering::Relaxed);
        Ok(answers.first().copied())
    }

    /// One decision that Redis should admit. Another outcome is counted, and the caller pauses.
    ///
    /// # Errors
    /// When the store could not decide it.
    pub(super) async fn admit(&self, name: &str) -> anyhow::Result<()> {
        let answer = self.decide(name).await?.context("there was no answer")?;
        if answer.basis.is_degraded() || !answer.decision.is_admitted() {
            self.astray.fetch_add(1, Ordering::Relaxed);
            sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn ask_on(self: Arc<Self>, place: usize) -> anyhow::Result<()> {
        for (at, name) in self.keys_from(place).enumerate() {
            if at % TURN == 0 {
                if self.is_over() {
                    break;
                }
                yield_now().await;
            }
            self.admit(name).await?;
        }
        Ok(())
    }
}
