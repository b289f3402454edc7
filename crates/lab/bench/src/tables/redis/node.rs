//! A process that shares its limits over Redis, and those who ask it.
//!
//! As in our server callers are tasks on a runtime of one thread; the courier has
//! a thread of its own. Each decision includes reading the clock and the
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
/// Lets slices grow to what is context for, and connections warm up.
const WARM_UP: Duration = Duration::from_millis(400);
/// A decision that never waits lets others have their turn after so many.
const TURN: usize = 32;
/// How often a measurement that something disturbed is made again.
const TRIES: usize = 20;
/// After a request that did not go as it should.
const PAUSE: Duration = Duration::from_millis(1);
/// So long may Redis say nothing: on a busy machine that happens.
const PATIENCE: Duration = Duration::from_secs(20);
/// What tells the keys of the benchmark apart from others.
const GROUP: u64 = 1;

/// What came of asking for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeFigures {
    /// Redis's processor time for each decision.
    pub(super) cpu_micros: f64,
    pub(super) per_second: f64,
    /// How many decisions shared a call.
    pub(super) per_call: f64,
}

/// A limit that nothing uses up.
pub(super) fn ample() -> Limit {
    Limit::new(TokenBucket::new(1, Period::MINUTE, BURST))
}

/// The counter of somebody.
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

/// What callers ask, and whom.
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

/// How a node is context.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) consistency: Consistency,
    pub(super) limit: Limit,
    pub(super) keys: u64,
    /// How long a request waits for Redis.
    pub(super) within: Duration,
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
            connect_timeout: PATIENCE,
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

    /// How many calls Redis has answered so far.
    fn calls(&self) -> u64 {
        self.context.store.remote().figures().evaluations
    }

    /// How many requests were decided so far.
    pub(super) fn decided(&self) -> u64 {
        self.context.decided.load(Ordering::Relaxed)
    }

    /// One request.
    ///
    /// # Errors
    /// When nobody could decide it.
    pub(super) fn admit_one(&self, name: &str) -> anyhow::Result<()> {
        self.runtime.block_on(self.context.admit(name))
    }

    /// Has so many callers ask without pause.
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

    /// Measures while every request is decided by what Redis says. On a machine
    /// that stops everybody for a second Redis counts as failed meanwhile; what was
    /// measured then is not what is meant, and is measured again.
    ///
    /// # Errors
    /// When Redis was never there long enough, or `measure` fails.
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

    /// Runs callers, each from a place of its own, for as long as `watch` takes.
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
    /// Whether callers should go home.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The keys from a place on.
    pub(super) fn keys_from(&self, place: usize) -> impl Iterator<Item = &str> {
        self.keys.from(place)
    }

    /// One decision.
    ///
    /// # Errors
    /// When nobody could decide.
    pub(super) async fn decide(&self, name: &str) -> Result<Option<Answer>, StoreError> {
        let policy = Policy { consistency: self.consistency, ..Policy::default() };
        let checks = [Check { policy, ..Check::new(key(name), &self.limit, 1) }];
        let batch = Batch::new(Verb::Check, Charge::AllOrNothing, self.clock.now(), &checks);
        let mut answers = Answers::new();
        self.store.apply(&batch, &mut answers).await?;
        self.decided.fetch_add(1, Ordering::Relaxed);
        Ok(answers.first().copied())
    }

    /// One decision that should admit, by what Redis said. If it does not, that is
    /// noted, and the caller pauses.
    ///
    /// # Errors
    /// When nobody could decide.
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
