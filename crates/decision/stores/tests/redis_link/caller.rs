//! Those who ask the courier, from threads and runtimes of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::support::eventually;
use crate::counter_store::{FailureKind, StoreError};
use crate::redis::courier::Courier;
use crate::redis::parcel::{Parcel, Receipt};
use crate::redis::settings::RedisSettings;

/// Adds the second byte of each body to all of the body's keys, and answers
/// with the sum at the last of them.
const SCRIPT: &str = "
local now = ARGV[1] == '' and redis.call('TIME') or {ARGV[1], '0'}
local out = {now[1], now[2]}
local at = 0
for i = 2, #ARGV do
    local count, answer = string.byte(ARGV[i], 1), ''
    for key = at + 1, at + count do
        answer = redis.pcall('INCRBY', KEYS[key], string.byte(ARGV[i], 2))
    end
    at = at + count
    out[i + 1] = type(answer) == 'table' and answer or tostring(answer)
end
return out
";

/// Long enough for a machine that is busy, and what most tests are about is not time.
pub(super) const UNHURRIED: Duration = Duration::from_secs(5);

/// What most outages are answered within.
pub(super) const HURRIED: Duration = Duration::from_millis(100);

/// A courier and somebody who asks it.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) courier: Arc<Courier>,
    runtime: Runtime,
}

/// A parcel that adds to these keys. Equal tags have to mean equal slots.
pub(super) fn adds(amount: u8, tag: u16, keys: &[&str]) -> Parcel {
    Parcel {
        tag,
        keys: keys.iter().map(|key| key.as_bytes().into()).collect(),
        body: [u8::try_from(keys.len()).unwrap(), amount].into_iter().collect(),
    }
}

/// The counter in a receipt.
pub(super) fn sum(receipt: &Receipt) -> u64 {
    String::from_utf8_lossy(&receipt.body).parse().unwrap()
}

impl Caller {
    #[track_caller]
    pub(super) fn to(url: &str) -> Self {
        let settings = RedisSettings::parse(url).unwrap();
        let courier = Courier::start(settings, SCRIPT).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Caller { courier: Arc::new(courier), runtime }
    }

    /// The same, and waits until it is connected.
    #[track_caller]
    pub(super) fn connected_to(url: &str) -> Self {
        let caller = Caller::to(url);
        caller.wait_until_connected();
        caller
    }

    #[track_caller]
    pub(super) fn wait_until_connected(&self) {
        eventually("that the courier is connected", || {
            self.courier.state().is_connected().then_some(())
        });
    }

    /// Adds one to a key, without hurry.
    pub(super) fn add(&self, key: &str) -> Result<u64, StoreError> {
        self.add_within(key, UNHURRIED)
    }

    pub(super) fn add_within(&self, key: &str, within: Duration) -> Result<u64, StoreError> {
        self.send(adds(1, tag_of(key), &[key]), within).map(|receipt| sum(&receipt))
    }

    pub(super) fn send(&self, parcel: Parcel, within: Duration) -> Result<Receipt, StoreError> {
        self.runtime.block_on(self.courier.send(parcel, within))
    }

    pub(super) fn commands(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, StoreError> {
        self.runtime.block_on(self.courier.commands(commands, UNHURRIED))
    }

    /// The answers to parcels that are sent at the same time.
    pub(super) fn send_together(&self, parcels: Vec<Parcel>) -> Vec<Result<Receipt, StoreError>> {
        self.runtime.block_on(async {
            let mut tasks = Vec::new();
            for parcel in parcels {
                let courier = Arc::clone(&self.courier);
                tasks.push(tokio::spawn(async move { courier.send(parcel, UNHURRIED).await }));
            }
            let mut answers = Vec::new();
            for task in tasks {
                answers.push(task.await.unwrap());
            }
            answers
        })
    }

    /// Waits until adding to the key succeeds again.
    #[track_caller]
    pub(super) fn wait_until_well(&self, key: &str) {
        eventually("that the store is well again", || self.add_within(key, HURRIED).ok());
    }

    /// Asks again until it fails this way; the words.
    #[track_caller]
    pub(super) fn wait_for_failure(&self, kind: FailureKind) -> String {
        eventually(&format!("a failure of kind {}", kind.word()), || {
            let error = self.add_within("{probe}", HURRIED).err()?;
            (error.kind() == kind).then(|| error.to_string())
        })
    }

    /// Callers that ask all the time, until told to stop.
    pub(super) fn under_load(&self, keys: &[&str], within: Duration) -> Load {
        Load::start(&self.courier, keys, within)
    }
}

/// In these tests a key's tag is in braces, or the key is its own.
fn tag_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let tag = tag.map_or(key, |(tag, _)| tag);
    tag.bytes().fold(7, |hash: u16, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % 4096
}

/// Callers at work on a thread of their own.
#[derive(Debug)]
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    thread: JoinHandle<Tally>,
}

/// What callers got.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) answered: BTreeMap<String, u64>,
    pub(super) failed: BTreeMap<String, u64>,
    pub(super) kinds: BTreeMap<FailureKind, String>,
    pub(super) slowest: Duration,
}

/// Callers for each key.
const CALLERS: usize = 4;

impl Load {
    fn start(courier: &Arc<Courier>, keys: &[&str], within: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (answered, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        let work = Work {
            courier: Arc::clone(courier),
            stop: Arc::clone(&stop),
            answered: Arc::clone(&answered),
            failed: Arc::clone(&failed),
            within,
        };
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(work.run(keys))
        });
        Load { stop, answered, failed, thread }
    }

    /// Waits until this many more were answered.
    #[track_caller]
    pub(super) fn wait_for_answers(&self, more: u64) {
        let seen = self.answered.load(Ordering::Relaxed);
        eventually("answers under load", || {
            (self.answered.load(Ordering::Relaxed) >= seen + more).then_some(())
        });
    }

    /// Waits until this many more were told a failure.
    #[track_caller]
    pub(super) fn wait_for_failures(&self, more: u64) {
        let seen = self.failed.load(Ordering::Relaxed);
        eventually("failures under load", || {
            (self.failed.load(Ordering::Relaxed) >= seen + more).then_some(())
        });
    }

    /// Ends the load: every caller has its answer by then.
    #[track_caller]
    pub(super) fn stop(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

struct Work {
    courier: Arc<Courier>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    within: Duration,
}

impl Work {
    async fn run(self, keys: Vec<String>) -> Tally {
        let work = Arc::new(self);
        let mut tasks = Vec::new();
        for key in keys.iter().flat_map(|key| std::iter::repeat_n(key, CALLERS)) {
            tasks.push(tokio::spawn(Arc::clone(&work).ask(key.clone())));
        }
        let mut all = Tally::default();
        for task in tasks {
            all.add(task.await.unwrap());
        }
        all
    }

    async fn ask(self: Arc<Self>, key: String) -> Tally {
        let mut tally = Tally::default();
        while !self.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let answer = self.courier.send(adds(1, tag_of(&key), &[&key]), self.within).await;
            tally.slowest = tally.slowest.max(begun.elapsed());
            match answer {
                Ok(_) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    *tally.answered.entry(key.clone()).or_default() += 1;
                }
                Err(error) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    *tally.failed.entry(key.clone()).or_default() += 1;
                    tally.kinds.insert(error.kind(), error.to_string());
                    // Nobody asks a broken store as fast as it fails.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        tally
    }
}

impl Tally {
    fn add(&mut self, other: Tally) {
        for (key, count) in other.answered {
            *self.answered.entry(key).or_default() += count;
        }
        for (key, count) in other.failed {
            *self.failed.entry(key).or_default() += count;
        }
        self.kinds.extend(other.kinds);
        self.slowest = self.slowest.max(other.slowest);
    }

    /// No call ran twice, and none that was answered did not run.
    #[track_caller]
    pub(super) fn assert_counted_once(&self, key: &str, counter: u64) {
        let answered = self.answered.get(key).copied().unwrap_or(0);
        let failed = self.failed.get(key).copied().unwrap_or(0);
        assert!(
            answered <= counter && counter <= answered + failed,
            "{key}: {counter} counted, {answered} answered, {failed} failed: {self:?}"
        );
    }

    /// Nobody waited much longer than the deadline.
    #[track_caller]
    pub(super) fn assert_answered_in_time(&self, within: Duration) {
        // Several suites share the machine, so threads may have to wait for a processor.
        let most = within + Duration::from_millis(900);
        assert!(self.slowest < most, "{:?} for {within:?}: {self:?}", self.slowest);
    }
}
