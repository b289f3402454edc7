//! Counters in the keys of envoyproxy/ratelimit ("upstream"), so that both can count the same limits during a
//! migration.
//!
//! Upstream has one algorithm: a fixed window of whole seconds. Its key consists of the prefix, the domain, each key
//! and value of the descriptor, and the second at which the window began. It sends INCRBY and EXPIRE in one pipeline,
//! whatever the outcome, by its own clock. This store does the same; the count before follows from the sum, and the
//! pure functions decide from it.
//!
//! Our rules can do more than upstream's: not count refused costs, all or nothing, take what remains. A second pipeline
//! then corrects the counter. In between other requests see the higher sum and may be refused; none is admitted
//! wrongly. Limits of other algorithms go to the wrapped [`RedisStore`].

use parking_lot::Mutex;
use tidegate_algorithms::{Algorithm, Limit, Period, State, Timestamp, Window, WindowState};
use tidegate_macros::defaults;
use tidegate_metrics::Exposition;
use tidegate_redis_link::{Cmd, Value, cmd};

use super::RedisStore;
use super::codec::ScriptVerb;
use super::error::protocol_error;
use super::replay::{Replay, States};
use super::rounded_limit::{COUNT_MAX, rounded_limits};
use crate::batch::{Answer, Answers, Batch, Check, Verb};
use crate::counter_store::{CounterStore, StoreError};
use crate::shared::Random;

const SECOND: u64 = 1_000_000_000;

defaults! {
    /// The layout of upstream's keys.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct UpstreamLayout {
        /// The prefix of every key: upstream's `CACHE_KEY_PREFIX`. Default empty.
        pub prefix: String,
        /// The maximum of the random seconds by which a key outlives its window: upstream's
        /// `EXPIRATION_JITTER_MAX_SECONDS`. Default 300.
        pub jitter_max: u64 = 300,
    }
}

/// Counts fixed windows in the keys of envoyproxy/ratelimit, and other limits as [`RedisStore`] does.
#[derive(Debug)]
pub struct UpstreamStore {
    store: RedisStore,
    /// The store of limits per second, if it is another one.
    per_second: Option<RedisStore>,
    layout: UpstreamLayout,
    /// For the seconds by which a key outlives its window.
    random: Mutex<Random>,
}

impl UpstreamStore {
    /// A store with upstream's keys on the same server as the other counters.
    pub fn new(store: RedisStore, layout: UpstreamLayout) -> Self {
        UpstreamStore { store, per_second: None, layout, random: Mutex::new(Random::new(None)) }
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

    /// Whether every connection is open, also that to the server of limits per second.
    pub(super) fn all_connected(&self) -> bool {
        let mut stores = [Some(&self.store), self.per_second.as_ref()].into_iter().flatten();
        stores.all(|store| store.state().is_connected())
    }

    async fn count(&self, batch: &Batch<'_>, names: &[&str]) -> Result<Vec<Answer>, StoreError> {
        let limits = rounded_limits(batch.checks);
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
            let Some(window) = upstream_window(check.limit) else { continue };
            let (begin, end) = (window.begin(batch.now), window.end(batch.now));
            let text = format!("{}{name}{}", self.layout.prefix, begin.as_nanos() / SECOND);
            let jitter = self.random.lock().below(self.layout.jitter_max);
            let lives = end.since(begin).as_secs_ceil().saturating_add(jitter);
            let is_separate = self.per_second.is_some() && *window == Window::Every(Period::SECOND);
            keys.push(WindowCounter { fingerprint, text, cost, end, lives, is_separate });
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
            Verb::Peek => [Some(key.command("GET")), None],
            Verb::Reset => [Some(key.command("DEL")), None],
            Verb::Check | Verb::Take | Verb::Charge | Verb::Refund => key.add(key.added(batch)),
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
            let pipeline = if key.is_separate { &mut per_second } else { &mut main };
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
            let answer = if key.is_separate { per_second.next() } else { main.next() };
            answer.ok_or_else(|| protocol_error("it did not answer every command"))
        });
        answers.collect()
    }
}

impl CounterStore for UpstreamStore {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        let name = |index: &usize| batch.names.get(*index).filter(|name| !name.is_empty());
        let is_upstreams = |index: &usize| {
            name(index).is_some() && upstream_window(batch.checks[*index].limit).is_some()
        };
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
    /// Whether it is in the store of limits per second.
    is_separate: bool,
}

impl WindowCounter {
    fn add(&self, amount: i64) -> [Option<Cmd>; 2] {
        let (mut add, mut expire) = (self.command("INCRBY"), self.command("EXPIRE"));
        add.arg(amount);
        expire.arg(self.lives);
        [Some(add), Some(expire)]
    }

    fn command(&self, name: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(&self.text);
        command
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

/// The window of a limit that upstream can have: a fixed window of whole seconds, without soft limit.
fn upstream_window(limit: &Limit) -> Option<&Window> {
    let Algorithm::FixedWindow(window) = limit.algorithm() else { return None };
    let is_whole = match window.window() {
        Window::Every(period) => period.as_nanos().is_multiple_of(SECOND),
        Window::Calendar(..) => true,
    };
    (is_whole && limit.soft().is_none()).then_some(window.window())
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
