//! Counters in the keys of envoyproxy/ratelimit ("upstream"), so that both can count the same limits during a migration.
//!
//! Upstream has one algorithm: a fixed window of whole seconds. Its key consists of the prefix, the domain, each key and
//! value of the descriptor, and the second at which the window began. It sends INCRBY and EXPIRE in one pipeline,
//! whatever the outcome, by its own clock. This store does the same; the count before follows from the sum, and the
//! pure functions decide from it.
//!
//! Our rules can do more than upstream's: not count refused costs, all or nothing, take what remains. A second pipeline
//! then corrects the counter. In between other requests see the higher sum and may be refused; none is admitted
//! wrongly. Limits of other algorithms go to the wrapped [`RedisStore`].

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tidegate_algorithms::{Algorithm, Limit, Period, State, Timestamp, Window, WindowState};
use tidegate_metrics::Exposition;
use tidegate_redis_link::{Cmd, Value, cmd};

use super::RedisStore;
use super::codec::ScriptVerb;
use super::error::protocol_error;
use super::replay::{Replay, States};
use super::rounded_limit::{COUNT_MAX, rounded_limit};
use crate::batch::{Answer, Answers, Batch, Check, Verb};
use crate::counter_store::{CounterStore, StoreError};

const SECOND: u64 = 1_000_000_000;

/// The layout of upstream's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamLayout {
    /// The prefix of every key: upstream's `CACHE_KEY_PREFIX`. Default empty.
    pub prefix: String,
    /// The maximum of the random seconds by which a key outlives its window: upstream's
    /// `EXPIRATION_JITTER_MAX_SECONDS`. Default 300.
    pub jitter_max: u64,
}

impl Default for UpstreamLayout {
    fn default() -> Self {
        UpstreamLayout { prefix: String::new(), jitter_max: 300 }
    }
}

/// Counts fixed windows in the keys of envoyproxy/ratelimit, and other limits as [`RedisStore`] does.
#[derive(Debug)]
pub struct UpstreamStore {
    store: RedisStore,
    /// The store of limits per second, if it is another one.
    per_second: Option<RedisStore>,
    layout: UpstreamLayout,
    jitter: AtomicU64,
}

impl UpstreamStore {
    /// A store with upstream's keys on the same server as the other counters.
    pub fn new(store: RedisStore, layout: UpstreamLayout) -> Self {
        let jitter = AtomicU64::new(RandomState::new().hash_one(0_u64));
        UpstreamStore { store, per_second: None, layout, jitter }
    }

    /// The same, with limits per second on another server.
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
            batch.checks.iter().map(|check| rounded_limit(check.limit)).collect();
        let keys = self.keys(batch, names);
        let found = self.add_and_read(batch, &keys).await?;
        let verb = ScriptVerb::of(batch);
        let replay = Replay { verb, checks: batch.checks, limits: &limits, now: batch.now };
        let mut states = States::default();
        for (key, count) in keys.iter().zip(&found) {
            let before = count.saturating_sub(key.added(batch));
            let (end, count) = (key.end, before.max(0).cast_unsigned());
            states.insert(key.fingerprint, State::Window(WindowState { end, count }));
        }
        let ((decisions, _), after) = replay.judge(states);
        self.correct(batch, &keys, &found, &after).await?;
        Ok(decisions.into_iter().map(Answer::exact).collect())
    }

    /// Each counter once, with the sum of the costs of the batch.
    fn keys(&self, batch: &Batch<'_>, names: &[&str]) -> Vec<WindowCounter> {
        let mut keys: Vec<WindowCounter> = Vec::new();
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
            keys.push(WindowCounter { fingerprint, text, cost, end, lives, per_second });
        }
        keys
    }

    /// The value of each counter, after adding the cost if the verb does.
    async fn add_and_read(
        &self,
        batch: &Batch<'_>,
        keys: &[WindowCounter],
    ) -> Result<Vec<i64>, StoreError> {
        let commands = |key: &WindowCounter| match batch.verb {
            Verb::Check | Verb::Take | Verb::Charge => key.add(key.cost),
            Verb::Refund => key.add(-key.cost),
            Verb::Peek => [Some(key.read()), None],
            Verb::Reset => [Some(key.delete()), None],
        };
        let values = self.pipeline(batch, keys, commands).await?;
        let counts = values.into_iter().map(|value| match batch.verb {
            // DEL returns the number of keys, not their counts.
            Verb::Reset => Ok(0),
            _ => number(&value),
        });
        counts.collect()
    }

    /// Adds the difference between the value that a counter has and the one that it should have.
    async fn correct(
        &self,
        batch: &Batch<'_>,
        keys: &[WindowCounter],
        found: &[i64],
        after: &States,
    ) -> Result<(), StoreError> {
        if matches!(batch.verb, Verb::Peek | Verb::Reset) {
            return Ok(());
        }
        let mut wrong: Vec<WindowCounter> = Vec::new();
        for (key, found) in keys.iter().zip(found) {
            let right = match after.get(key.fingerprint) {
                Some(State::Window(window)) => window.count.min(COUNT_MAX).cast_signed(),
                _ => *found,
            };
            if right != *found {
                wrong.push(WindowCounter { cost: right.saturating_sub(*found), ..key.clone() });
            }
        }
        if !wrong.is_empty() {
            self.pipeline(batch, &wrong, |key| key.add(key.cost)).await?;
        }
        Ok(())
    }

    /// Sends the commands of each counter; returns the reply to the first command of each.
    async fn pipeline(
        &self,
        batch: &Batch<'_>,
        keys: &[WindowCounter],
        commands: impl Fn(&WindowCounter) -> [Option<Cmd>; 2],
    ) -> Result<Vec<Value>, StoreError> {
        let (mut main, mut per_second) = (Vec::new(), Vec::new());
        for key in keys {
            let is_separate = self.per_second.is_some() && key.per_second;
            let pipeline = if is_separate { &mut per_second } else { &mut main };
            pipeline.extend(commands(key).into_iter().flatten());
        }
        let each = keys.first().map_or(1, |key| commands(key).into_iter().flatten().count());
        let within = |store: &RedisStore| batch.within.unwrap_or(store.deadline);
        let second_store = self.per_second.as_ref().unwrap_or(&self.store);
        let (main, per_second) = tokio::join!(
            self.store.client.commands(main, within(&self.store)),
            second_store.client.commands(per_second, within(second_store)),
        );
        let (mut main, mut per_second) =
            (main?.into_iter().step_by(each), per_second?.into_iter().step_by(each));
        let answers = keys.iter().map(|key| {
            let is_separate = self.per_second.is_some() && key.per_second;
            let answer = if is_separate { per_second.next() } else { main.next() };
            answer.ok_or_else(|| protocol_error("it did not answer every command"))
        });
        answers.collect()
    }

    /// Random seconds by which a key outlives its window.
    fn jitter(&self) -> u64 {
        let seed = self.jitter.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (seed ^ (seed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed >> 32).checked_rem(self.layout.jitter_max).unwrap_or(0)
    }
}

impl CounterStore for UpstreamStore {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        let name = |index: &usize| batch.names.get(*index).filter(|name| !name.is_empty());
        let is_upstreams =
            |index: &usize| name(index).is_some() && is_upstream_limit(batch.checks[*index].limit);
        let (upstreams, others): (Vec<usize>, Vec<usize>) =
            (0..batch.checks.len()).partition(is_upstreams);
        let mut merged: Vec<Option<Answer>> = vec![None; batch.checks.len()];
        if !upstreams.is_empty() {
            let checks: Vec<Check<'_>> =
                upstreams.iter().map(|index| batch.checks[*index]).collect();
            let names: Vec<&str> = upstreams.iter().filter_map(name).map(String::as_str).collect();
            let part = Batch { checks: &checks, ..*batch };
            let counted = self.count(&part, &names).await?;
            upstreams.iter().zip(counted).for_each(|(index, answer)| merged[*index] = Some(answer));
        }
        if !others.is_empty() {
            let checks: Vec<Check<'_>> = others.iter().map(|index| batch.checks[*index]).collect();
            let mut part = Answers::new();
            self.store.apply(&Batch { checks: &checks, ..*batch }, &mut part).await?;
            others.iter().zip(part).for_each(|(index, answer)| merged[*index] = Some(answer));
        }
        answers.extend(merged.into_iter().flatten());
        Ok(())
    }

    fn slot_lease(&self) -> Option<Period> {
        self.store.slot_lease()
    }

    fn hold(&self, batch: &Batch<'_>) {
        self.store.hold(batch);
    }

    fn give_back(&self, batch: &Batch<'_>) {
        // Only slots are refunded without waiting; upstream has none.
        self.store.give_back(batch);
    }

    fn collect(&self, now: Timestamp, out: &mut Exposition) {
        self.store.collect(now, out);
    }
}

/// One of upstream's counters.
#[derive(Clone, Debug)]
struct WindowCounter {
    fingerprint: crate::fingerprint::Fingerprint,
    text: String,
    cost: i64,
    end: Timestamp,
    lives: u64,
    per_second: bool,
}

impl WindowCounter {
    fn add(&self, amount: i64) -> [Option<Cmd>; 2] {
        let mut add = cmd("INCRBY");
        add.arg(&self.text).arg(amount);
        let mut expire = cmd("EXPIRE");
        expire.arg(&self.text).arg(self.lives);
        [Some(add), Some(expire)]
    }

    fn read(&self) -> Cmd {
        let mut read = cmd("GET");
        read.arg(&self.text);
        read
    }

    fn delete(&self) -> Cmd {
        let mut delete = cmd("DEL");
        delete.arg(&self.text);
        delete
    }

    /// What the batch added before the value was read.
    const fn added(&self, batch: &Batch<'_>) -> i64 {
        match batch.verb {
            Verb::Check | Verb::Take | Verb::Charge => self.cost,
            Verb::Refund => -self.cost,
            Verb::Peek | Verb::Reset => 0,
        }
    }
}

/// Whether upstream has this kind of limit: a fixed window of whole seconds, without soft limit.
fn is_upstream_limit(limit: &Limit) -> bool {
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

/// The window that contains `now`.
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
    number.ok_or_else(|| protocol_error("a counter does not hold an integer"))
}
