//! Counters as envoyproxy/ratelimit keeps them, so that both count together
//! while one takes the other's place.
//!
//! Upstream has one kind of limit: a fixed window of whole seconds, in a key of
//! words: prefix, domain, each key and value of the descriptor, and the second
//! at which the window began. It adds the cost with INCRBY and arms EXPIRE in
//! one pipeline, whatever the outcome, by its own clock. So do we. What was
//! there before follows from the sum; from it the pure functions decide.
//!
//! Where our rules say what upstream cannot (refused costs do not count, all or
//! nothing, take what is left), the difference is put right by a second
//! pipeline. In between others see the higher sum and may be refused; nobody
//! is admitted who should not be. Every other kind of limit goes to the store
//! that this one is made of.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, Value};
use smallvec::SmallVec;
use tidegate_algorithms::{Algorithm, Limit, Period, State, Timestamp, Window, WindowState};
use tidegate_metrics::Exposition;

use super::RedisStore;
use super::codec::Order;
use super::failure::failure;
use super::kept::{COUNT_MAX, kept};
use super::replay::{Replay, States};
use crate::batch::{Answer, Answers, Basis, Batch, Check, Verb};
use crate::counter_store::{CounterStore, FailureKind, StoreError};

const SECOND: u64 = 1_000_000_000;

/// How upstream's keys are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamLayout {
    /// What every key begins with: upstream's `CACHE_KEY_PREFIX`. Default nothing.
    pub prefix: String,
    /// A key outlives its window by a random part of this many seconds:
    /// upstream's `EXPIRATION_JITTER_MAX_SECONDS`. Default 300.
    pub jitter_max: u64,
}

impl Default for UpstreamLayout {
    fn default() -> Self {
        UpstreamLayout { prefix: String::new(), jitter_max: 300 }
    }
}

/// Keeps fixed windows as envoyproxy/ratelimit does, and other limits as [`RedisStore`] does.
#[derive(Debug)]
pub struct UpstreamStore {
    store: RedisStore,
    /// Where limits per second are kept, if elsewhere.
    per_second: Option<RedisStore>,
    layout: UpstreamLayout,
    jitter: AtomicU64,
}

impl UpstreamStore {
    /// Upstream's keys in the same server as the other counters.
    pub fn new(store: RedisStore, layout: UpstreamLayout) -> Self {
        let jitter = AtomicU64::new(RandomState::new().hash_one(0_u64));
        UpstreamStore { store, per_second: None, layout, jitter }
    }

    /// The same, with limits per second in a server of their own.
    #[must_use]
    pub fn with_per_second(self, store: RedisStore) -> Self {
        UpstreamStore { per_second: Some(store), ..self }
    }

    /// The store of all other limits.
    pub const fn store(&self) -> &RedisStore {
        &self.store
    }

    async fn count(&self, batch: &Batch<'_>, names: &[&str]) -> Result<Vec<Answer>, StoreError> {
        let limits: SmallVec<[Cow<'_, Limit>; 4]> =
            batch.checks.iter().map(|check| kept(check.limit)).collect();
        let keys = self.keys(batch, names);
        let found = self.ask(batch, &keys).await?;
        let order = Order::of(batch);
        let replay = Replay { order, checks: batch.checks, limits: &limits, now: batch.now };
        let mut states = States::default();
        for (key, count) in keys.iter().zip(&found) {
            let before = count.saturating_sub(key.added(batch));
            let (end, count) = (key.end, before.max(0).cast_unsigned());
            states.insert(key.fingerprint, State::Window(WindowState { end, count }));
        }
        let ((decisions, _), after) = replay.judge(states);
        self.put_right(batch, &keys, &found, &after).await?;
        let exact = |decision| Answer { decision, basis: Basis::Exact };
        Ok(decisions.into_iter().map(exact).collect())
    }

    /// Each counter once, with what the whole batch adds to it.
    fn keys(&self, batch: &Batch<'_>, names: &[&str]) -> Vec<Counter> {
        let mut keys: Vec<Counter> = Vec::new();
        for (check, name) in batch.checks.iter().zip(names) {
            let cost = check.cost.min(COUNT_MAX).cast_signed();
            let fingerprint = check.key.fingerprint;
            if let Some(known) = keys.iter_mut().find(|key| key.fingerprint == fingerprint) {
                known.cost = known.cost.saturating_add(cost);
                continue;
            }
            let (begin, end) = span(check.limit, batch.now);
            let text = format!("{}{name}{}", self.layout.prefix, begin.as_nanos() / SECOND);
            let lives = end.since(begin).as_secs_ceil().saturating_add(self.jitter());
            let per_second = is_per_second(check.limit);
            keys.push(Counter { fingerprint, text, cost, end, lives, per_second });
        }
        keys
    }

    /// The sum of each counter, with the cost where the verb adds it.
    async fn ask(&self, batch: &Batch<'_>, keys: &[Counter]) -> Result<Vec<i64>, StoreError> {
        let commands = |key: &Counter| match batch.verb {
            Verb::Check | Verb::Take | Verb::Charge => key.add(key.cost),
            Verb::Refund => key.add(-key.cost),
            Verb::Peek => [Some(key.read()), None],
            Verb::Reset => [Some(key.forget()), None],
        };
        let values = self.pipeline(batch, keys, commands).await?;
        let counts = values.into_iter().map(|value| match batch.verb {
            // How many keys were forgotten says nothing of the count.
            Verb::Reset => Ok(0),
            _ => number(&value),
        });
        counts.collect()
    }

    /// Adds what makes each counter what it should be.
    async fn put_right(
        &self,
        batch: &Batch<'_>,
        keys: &[Counter],
        found: &[i64],
        after: &States,
    ) -> Result<(), StoreError> {
        if matches!(batch.verb, Verb::Peek | Verb::Reset) {
            return Ok(());
        }
        let mut wrong: Vec<Counter> = Vec::new();
        for (key, found) in keys.iter().zip(found) {
            let right = match after.get(key.fingerprint) {
                Some(State::Window(window)) => window.count.min(COUNT_MAX).cast_signed(),
                _ => *found,
            };
            if right != *found {
                wrong.push(Counter { cost: right.saturating_sub(*found), ..key.clone() });
            }
        }
        if !wrong.is_empty() {
            self.pipeline(batch, &wrong, |key| key.add(key.cost)).await?;
        }
        Ok(())
    }

    /// Sends the commands of each counter, and gives the answer to the first of each.
    async fn pipeline(
        &self,
        batch: &Batch<'_>,
        keys: &[Counter],
        commands: impl Fn(&Counter) -> [Option<Cmd>; 2],
    ) -> Result<Vec<Value>, StoreError> {
        let (mut main, mut per_second) = (Vec::new(), Vec::new());
        for key in keys {
            let apart = self.per_second.is_some() && key.per_second;
            let pipeline = if apart { &mut per_second } else { &mut main };
            pipeline.extend(commands(key).into_iter().flatten());
        }
        let each = keys.first().map_or(1, |key| commands(key).into_iter().flatten().count());
        let within = |store: &RedisStore| batch.within.unwrap_or(store.deadline);
        let apart = self.per_second.as_ref().unwrap_or(&self.store);
        let (main, per_second) = tokio::join!(
            self.store.courier.commands(main, within(&self.store)),
            apart.courier.commands(per_second, within(apart)),
        );
        let (mut main, mut per_second) =
            (main?.into_iter().step_by(each), per_second?.into_iter().step_by(each));
        let answers = keys.iter().map(|key| {
            let apart = self.per_second.is_some() && key.per_second;
            let answer = if apart { per_second.next() } else { main.next() };
            answer.ok_or_else(|| failure(FailureKind::Protocol, "it did not answer every command"))
        });
        answers.collect()
    }

    /// Seconds that a key outlives its window.
    fn jitter(&self) -> u64 {
        let drawn = self.jitter.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (drawn ^ (drawn >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed >> 32).checked_rem(self.layout.jitter_max).unwrap_or(0)
    }
}

impl CounterStore for UpstreamStore {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        let named = |place: &usize| batch.names.get(*place).filter(|name| !name.is_empty());
        let is_theirs =
            |place: &usize| named(place).is_some() && is_upstreams(batch.checks[*place].limit);
        let (theirs, ours): (Vec<usize>, Vec<usize>) = (0..batch.checks.len()).partition(is_theirs);
        let mut told: Vec<Option<Answer>> = vec![None; batch.checks.len()];
        if !theirs.is_empty() {
            let checks: Vec<Check<'_>> = theirs.iter().map(|place| batch.checks[*place]).collect();
            let names: Vec<&str> = theirs.iter().filter_map(named).map(String::as_str).collect();
            let part = Batch { checks: &checks, ..*batch };
            let counted = self.count(&part, &names).await?;
            theirs.iter().zip(counted).for_each(|(place, answer)| told[*place] = Some(answer));
        }
        if !ours.is_empty() {
            let checks: Vec<Check<'_>> = ours.iter().map(|place| batch.checks[*place]).collect();
            let mut part = Answers::new();
            self.store.apply(&Batch { checks: &checks, ..*batch }, &mut part).await?;
            ours.iter().zip(part).for_each(|(place, answer)| told[*place] = Some(answer));
        }
        answers.extend(told.into_iter().flatten());
        Ok(())
    }

    fn slot_lease(&self) -> Option<Period> {
        self.store.slot_lease()
    }

    fn hold(&self, batch: &Batch<'_>) {
        self.store.hold(batch);
    }

    fn give_back(&self, batch: &Batch<'_>) {
        // Only slots are given back without being waited for; upstream has none.
        self.store.give_back(batch);
    }

    fn collect(&self, now: Timestamp, out: &mut Exposition) {
        self.store.collect(now, out);
    }
}

/// One of upstream's counters.
#[derive(Clone, Debug)]
struct Counter {
    fingerprint: crate::fingerprint::Fingerprint,
    text: String,
    cost: i64,
    end: Timestamp,
    lives: u64,
    per_second: bool,
}

impl Counter {
    fn add(&self, amount: i64) -> [Option<Cmd>; 2] {
        let mut add = redis::cmd("INCRBY");
        add.arg(&self.text).arg(amount);
        let mut expire = redis::cmd("EXPIRE");
        expire.arg(&self.text).arg(self.lives);
        [Some(add), Some(expire)]
    }

    fn read(&self) -> Cmd {
        let mut read = redis::cmd("GET");
        read.arg(&self.text);
        read
    }

    fn forget(&self) -> Cmd {
        let mut forget = redis::cmd("DEL");
        forget.arg(&self.text);
        forget
    }

    /// What the batch has added by the time that the sum is told.
    const fn added(&self, batch: &Batch<'_>) -> i64 {
        match batch.verb {
            Verb::Check | Verb::Take | Verb::Charge => self.cost,
            Verb::Refund => -self.cost,
            Verb::Peek | Verb::Reset => 0,
        }
    }
}

/// Whether upstream has such limits: hard fixed windows of whole seconds.
fn is_upstreams(limit: &Limit) -> bool {
    let Algorithm::FixedWindow(window) = limit.algorithm() else { return false };
    let whole = match window.window() {
        Window::Every(period) => period.as_nanos().is_multiple_of(SECOND),
        Window::Calendar(..) => true,
    };
    whole && limit.soft().is_none()
}

fn is_per_second(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::FixedWindow(window)
        if *window.window() == Window::Every(Period::SECOND))
}

/// The window that `now` is in.
fn span(limit: &Limit, now: Timestamp) -> (Timestamp, Timestamp) {
    match limit.algorithm() {
        Algorithm::FixedWindow(window) => (window.window().begin(now), window.window().end(now)),
        _ => (now, now),
    }
}

fn number(value: &Value) -> Result<i64, StoreError> {
    let text = match value {
        Value::Int(number) => return Ok(*number),
        Value::Nil => return Ok(0),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text.as_str()),
        _ => None,
    };
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| failure(FailureKind::Protocol, "a counter holds no whole number"))
}
