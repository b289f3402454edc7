//! Callers of the client, on their own threads and runtimes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_redis_link::{
    BatchingClient, Cmd, FailureKind, LinkError, RedisSettings, ScriptCall, ScriptReply, Value,
};
use tidegate_test_servers::eventually;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// Adds the second byte of each body to all keys of the call, and replies with the sum at the last of them.
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

/// The deadline of tests that are not about time; long enough for a busy machine.
pub(crate) const UNHURRIED: Duration = Duration::from_secs(5);

/// The deadline of calls during outages.
pub(crate) const HURRIED: Duration = Duration::from_millis(100);

/// A client, and a runtime to call it from.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) client: Arc<BatchingClient>,
    runtime: Runtime,
}

/// A call that adds to these keys. Equal tags have to mean equal slots.
pub(crate) fn adds(amount: u8, tag: u16, keys: &[&str]) -> ScriptCall {
    ScriptCall {
        tag,
        keys: keys.iter().map(|key| key.as_bytes().into()).collect(),
        body: [u8::try_from(keys.len()).unwrap(), amount].into_iter().collect(),
    }
}

/// The counter in a reply.
pub(crate) fn sum(reply: &ScriptReply) -> u64 {
    String::from_utf8_lossy(&reply.body).parse().unwrap()
}

impl Caller {
    #[track_caller]
    pub(crate) fn to(url: &str) -> Self {
        let settings = RedisSettings::parse(url).unwrap();
        let client = BatchingClient::start(settings, SCRIPT).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Caller { client: Arc::new(client), runtime }
    }

    /// The same, and waits until it is connected.
    #[track_caller]
    pub(crate) fn connected_to(url: &str) -> Self {
        let caller = Caller::to(url);
        caller.wait_until_connected();
        caller
    }

    #[track_caller]
    pub(crate) fn wait_until_connected(&self) {
        eventually("that the client is connected", || {
            self.client.state().is_connected().then_some(())
        });
    }

    /// Adds one to a key, without hurry.
    pub(crate) fn add(&self, key: &str) -> Result<u64, LinkError> {
        self.add_within(key, UNHURRIED)
    }

    pub(crate) fn add_within(&self, key: &str, within: Duration) -> Result<u64, LinkError> {
        self.send(adds(1, tag_of(key), &[key]), within).map(|reply| sum(&reply))
    }

    /// Adds one to a key, without hurry, while the test goes on.
    pub(crate) fn spawn_add(&self, key: &str) -> JoinHandle<Result<u64, LinkError>> {
        let (client, call) = (Arc::clone(&self.client), adds(1, tag_of(key), &[key]));
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(client.send(call, UNHURRIED)).map(|reply| sum(&reply))
        })
    }

    pub(crate) fn send(
        &self,
        call: ScriptCall,
        within: Duration,
    ) -> Result<ScriptReply, LinkError> {
        self.runtime.block_on(self.client.send(call, within))
    }

    pub(crate) fn commands(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, LinkError> {
        self.runtime.block_on(self.client.commands(commands, UNHURRIED))
    }

    /// The replies to calls that are sent at the same time.
    pub(crate) fn send_together(
        &self,
        calls: Vec<ScriptCall>,
    ) -> Vec<Result<ScriptReply, LinkError>> {
        self.runtime.block_on(async {
            let mut tasks = Vec::new();
            for call in calls {
                let client = Arc::clone(&self.client);
                tasks.push(tokio::spawn(async move { client.send(call, UNHURRIED).await }));
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
    pub(crate) fn wait_until_well(&self, key: &str) {
        eventually("that the store is well again", || self.add_within(key, HURRIED).ok());
    }

    /// Retries until a call fails this way; returns the message.
    #[track_caller]
    pub(crate) fn wait_for_failure(&self, kind: FailureKind) -> String {
        eventually(&format!("a failure of kind {}", kind.as_str()), || {
            let error = self.add_within("{probe}", HURRIED).err()?;
            (error.kind() == kind).then(|| error.to_string())
        })
    }

    /// Starts callers that call in a loop until stopped.
    pub(crate) fn under_load(&self, keys: &[&str], within: Duration) -> Load {
        Load::start(&self.client, keys, within)
    }
}

/// The tag is the part of the key in braces, or the whole key.
fn tag_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let tag = tag.map_or(key, |(tag, _)| tag);
    tag.bytes().fold(7, |hash: u16, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % 4096
}

/// Callers in a loop, on their own thread.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    thread: JoinHandle<Tally>,
}

/// What callers received.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: BTreeMap<String, u64>,
    pub(crate) failed: BTreeMap<String, u64>,
    pub(crate) kinds: BTreeMap<FailureKind, String>,
    pub(crate) slowest: Duration,
}

/// Callers for each key.
const CALLERS: usize = 4;

impl Load {
    fn start(client: &Arc<BatchingClient>, keys: &[&str], within: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (answered, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        let work = LoadLoop {
            client: Arc::clone(client),
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

    /// Waits until this many more calls were answered.
    #[track_caller]
    pub(crate) fn wait_for_answers(&self, more: u64) {
        let seen = self.answered.load(Ordering::Relaxed);
        eventually("answers under load", || {
            (self.answered.load(Ordering::Relaxed) >= seen + more).then_some(())
        });
    }

    /// Waits until this many more calls failed.
    #[track_caller]
    pub(crate) fn wait_for_failures(&self, more: u64) {
        let seen = self.failed.load(Ordering::Relaxed);
        eventually("failures under load", || {
            (self.failed.load(Ordering::Relaxed) >= seen + more).then_some(())
        });
    }

    /// Stops the callers; returns when each has its last answer.
    #[track_caller]
    pub(crate) fn stop(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

struct LoadLoop {
    client: Arc<BatchingClient>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    within: Duration,
}

impl LoadLoop {
    async fn run(self, keys: Vec<String>) -> Tally {
        let work = Arc::new(self);
        let mut tasks = Vec::new();
        for key in keys.iter().flat_map(|key| std::iter::repeat_n(key, CALLERS)) {
            tasks.push(tokio::spawn(Arc::clone(&work).call(key.clone())));
        }
        let mut all = Tally::default();
        for task in tasks {
            all.add(task.await.unwrap());
        }
        all
    }

    async fn call(self: Arc<Self>, key: String) -> Tally {
        let mut tally = Tally::default();
        while !self.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let answer = self.client.send(adds(1, tag_of(&key), &[&key]), self.within).await;
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
                    // A broken server fails fast: pause, or the loop would spin.
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

    /// Asserts that no call ran twice, and that every answered call ran.
    #[track_caller]
    pub(crate) fn assert_counted_once(&self, key: &str, counter: u64) {
        let answered = self.answered.get(key).copied().unwrap_or(0);
        let failed = self.failed.get(key).copied().unwrap_or(0);
        assert!(
            answered <= counter && counter <= answered + failed,
            "{key}: {counter} counted, {answered} answered, {failed} failed: {self:?}"
        );
    }

    /// Asserts that no caller waited much longer than the deadline.
    #[track_caller]
    pub(crate) fn assert_answered_in_time(&self, within: Duration) {
        // Other tests run at the same time, so threads may wait for a processor.
        let most = within + Duration::from_millis(900);
        assert!(self.slowest < most, "{:?} for {within:?}: {self:?}", self.slowest);
    }
}
