//! A queue that several processes share: Redis Streams, with scripts.
//!
//! Records that may be claimed are entries of a stream, read through one consumer group, so that the tools of Redis show
//! who holds what. Beside it, sorted sets hold delays, ends of leases and dead letters. Each operation is one script,
//! and the server runs scripts one after the other: nothing is read and then written. Time is the server's clock.
//!
//! The store refuses a server without an append-only file: such a server forgets its records when it ends.

mod reply;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tidegate_redis_link::{BatchingClient, Cmd, FailureKind, LinkError, RedisSettings, Value, cmd};

use crate::capability::Capability;
use crate::error::QueueError;
use crate::queue::{
    AttemptCharge, Claim, ClaimBudget, DeadLetter, DeadLetterReason, DeadLetterSelection,
    EnqueueOutcome, Queue, QueueFuture, QueueStats, QueueStore, Receipt, SettleOutcome, Settlement,
};
use crate::record::{NewRecord, RecordId};
use crate::settings::{BATCH_MAX, QueueSettings};
use reply::{ReplyReader, damaged};

const CAPABILITIES: &[Capability] = &[
    Capability::Durable,
    Capability::Shared,
    Capability::Delay,
    Capability::Depth,
    Capability::Deduplication,
];
/// How long an operation may take. A batch of large payloads takes longer than a check of a limit.
const DEADLINE: Duration = Duration::from_secs(10);
/// The last instant; Lua counts in doubles.
const NEVER: u64 = (1 << 53) - 1;

macro_rules! script {
    ($name:literal) => {
        concat!(include_str!("redis/common.lua"), include_str!(concat!("redis/", $name, ".lua")))
    };
}

const ENQUEUE: &str = script!("enqueue");
const CLAIM: &str = script!("claim");
const SETTLE: &str = script!("settle");
const STATS: &str = script!("stats");
const DEAD_LETTERS: &str = script!("dead_letters");
/// Names the queue at its first opening: a receipt of another queue is stale.
const OPEN: &str = "local key, time = KEYS[1] .. ':instance', redis.call('TIME')
redis.call('SETNX', key, (time[1] * 1000000 + time[2]) % 4294967296)
return redis.call('GET', key)";

/// How the store is reached.
#[derive(Clone)]
pub struct RedisQueueSettings {
    /// The servers.
    pub servers: RedisSettings,
    /// The source of the present instant. `None`: the server's clock.
    pub clock: Option<Arc<dyn Clock>>,
}

impl RedisQueueSettings {
    /// Settings with the server's clock.
    pub const fn new(servers: RedisSettings) -> Self {
        RedisQueueSettings { servers, clock: None }
    }
}

impl fmt::Debug for RedisQueueSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisQueueSettings").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// Queues in a Redis or Valkey.
#[derive(Debug)]
pub struct RedisStore {
    server: Arc<RedisServer>,
}

/// What all queues of a store share.
struct RedisServer {
    client: BatchingClient,
    prefix: String,
    clock: Option<Arc<dyn Clock>>,
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisServer").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects, and checks that the server keeps an append-only file.
    pub async fn connect(settings: RedisQueueSettings) -> Result<Self, QueueError> {
        let RedisQueueSettings { mut servers, clock } = settings;
        servers.deadline = servers.deadline.max(DEADLINE);
        let prefix = servers.prefix.clone();
        let invalid = |error: tidegate_redis_link::RedisSettingsError| {
            QueueError::InvalidSettings(error.to_string())
        };
        let client = BatchingClient::start(servers, "return {0, 0}").map_err(invalid)?;
        let server = RedisServer { client, prefix, clock };
        server.check_append_only_file().await?;
        Ok(RedisStore { server: Arc::new(server) })
    }
}

impl RedisServer {
    async fn command(&self, command: Cmd) -> Result<Value, QueueError> {
        let replies = self.client.commands(vec![command], DEADLINE).await;
        let mut replies = replies.map_err(|error| queue_error(&error))?;
        replies.pop().ok_or_else(|| damaged("no reply"))
    }

    async fn check_append_only_file(&self) -> Result<(), QueueError> {
        let mut info = cmd("INFO");
        info.arg("persistence");
        let reply = self.command(info).await?;
        let text = match &reply {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.clone(),
            _ => return Err(damaged("the reply to INFO is no text")),
        };
        if text.lines().any(|line| line.trim() == "aof_enabled:1") {
            return Ok(());
        }
        let text = "this Redis keeps no append-only file and would forget records when it ends; \
                    set `appendonly yes` (and `appendfsync always` against the loss of power)";
        Err(QueueError::InvalidSettings(text.to_owned()))
    }

    fn now_micros(&self) -> u64 {
        self.clock.as_ref().map_or(0, |clock| clock.now().as_nanos() / 1_000)
    }

    /// The present instant, as far as a batch depends on it.
    async fn now_for(&self, batch: &[NewRecord]) -> Result<Timestamp, QueueError> {
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        if batch.iter().all(|record| record.deadline.is_none()) {
            return Ok(Timestamp::EPOCH);
        }
        let reply = self.command(cmd("TIME")).await?;
        let mut parts = ReplyReader::array(reply)?;
        let micros = parts.number()?.saturating_mul(1_000_000).saturating_add(parts.number()?);
        Ok(instant(micros))
    }
}

impl QueueStore for RedisStore {
    fn capabilities(&self) -> &'static [Capability] {
        CAPABILITIES
    }

    fn open_queue(
        &self,
        record_type: &str,
        settings: QueueSettings,
    ) -> QueueFuture<'_, Arc<dyn Queue>> {
        let record_type = record_type.to_owned();
        Box::pin(async move {
            settings.validate(&record_type, CAPABILITIES)?;
            // The braces keep the keys of a queue on one node of a cluster.
            let key = format!("{{{}:queue:{record_type}}}", self.server.prefix);
            let mut open = cmd("EVAL");
            open.arg(OPEN).arg(1).arg(&key);
            let reply = self.server.command(open).await?;
            let instance = ReplyReader::one(reply).number()?;
            let instance =
                u32::try_from(instance).map_err(|_| damaged("the number of the queue"))?;
            let consumer = format!("{}", std::process::id());
            let server = Arc::clone(&self.server);
            Ok(Arc::new(RedisQueue { server, key, instance, consumer, settings }) as Arc<dyn Queue>)
        })
    }
}

/// The queue of one record type.
struct RedisQueue {
    server: Arc<RedisServer>,
    key: String,
    instance: u32,
    consumer: String,
    settings: QueueSettings,
}

/// Microseconds, rounded up: a record is never early.
fn micros_up(instant: Timestamp) -> u64 {
    if instant == Timestamp::MAX { NEVER } else { instant.as_nanos().div_ceil(1_000).min(NEVER) }
}

fn span_micros(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(NEVER).min(NEVER)
}

fn instant(micros: u64) -> Timestamp {
    if micros >= NEVER { Timestamp::MAX } else { Timestamp::from_nanos(micros * 1_000) }
}

/// What an id says about the enqueue.
fn millis_of(id: RecordId) -> u64 {
    u64::try_from(id.as_u128() >> 80).unwrap_or(0)
}

fn queue_error(error: &LinkError) -> QueueError {
    let text = error.to_string();
    // MISCONF: the append-only file cannot be written.
    if error.kind() == FailureKind::Full || text.contains("MISCONF") {
        QueueError::StorageFull(text)
    } else {
        QueueError::Unavailable(text)
    }
}

impl RedisQueue {
    /// A script on this queue, with the present instant as its first argument.
    fn script(&self, text: &str) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(text).arg(1).arg(&self.key).arg(self.server.now_micros());
        command
    }

    fn age_micros(&self) -> u64 {
        self.settings.age_max.map_or(0, span_micros)
    }

    async fn store(&self, batch: &[NewRecord]) -> Result<Vec<EnqueueOutcome>, QueueError> {
        self.settings.validate_batch(batch, self.server.now_for(batch).await?)?;
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = self.script(ENQUEUE);
        command.arg(span_micros(self.settings.dedup_window)).arg(self.age_micros());
        command.arg(self.settings.records_max.min(NEVER)).arg(self.settings.bytes_max.min(NEVER));
        command.arg(batch.len());
        for record in batch {
            command.arg(&record.tenant).arg(record.cost).arg(record.class.index());
            command.arg(record.dedup_key.as_deref().unwrap_or_default());
            command.arg(record.not_before.map_or(0, micros_up));
            command.arg(record.deadline.map_or(NEVER, micros_up));
            command.arg(record.payload.encode().as_ref());
        }
        let reply = self.server.command(command).await?;
        reply::read_enqueue(reply, self.instance, &self.settings)
    }

    async fn take(&self, budget: &ClaimBudget) -> Result<Claim, QueueError> {
        let mut command = self.script(CLAIM);
        command.arg(self.settings.lapses_max).arg(budget.records.min(BATCH_MAX));
        command.arg(budget.cost.min(NEVER)).arg(budget.bytes.min(NEVER));
        command.arg(span_micros(budget.lease)).arg(&self.consumer);
        let reply = self.server.command(command).await?;
        reply::read_claim(reply, self.instance, Nanos::from(budget.lease))
    }

    async fn settle_all(
        &self,
        settlements: &[(Receipt, Settlement)],
    ) -> Result<Vec<SettleOutcome>, QueueError> {
        let mut command = self.script(SETTLE);
        command.arg(settlements.len());
        for (receipt, settlement) in settlements {
            let id = receipt.record();
            // A receipt of another queue names no record of this one.
            let epoch = receipt.epoch().filter(|_| id.instance() == self.instance).unwrap_or(-1);
            command.arg(id.sequence()).arg(epoch).arg(millis_of(id));
            match settlement {
                Settlement::Ack => command.arg("ack").arg(0).arg(0),
                Settlement::Nack { not_before, charge } => {
                    let failed = u8::from(*charge == AttemptCharge::Failed);
                    command.arg("nack").arg(micros_up(*not_before)).arg(failed)
                }
                Settlement::Extend { lease } => {
                    command.arg("extend").arg(span_micros(*lease)).arg(0)
                }
                Settlement::DeadLetter { detail } => {
                    command.arg("dead").arg(DeadLetterReason::cut(detail)).arg(0)
                }
            };
        }
        let mut outcomes = ReplyReader::array(self.server.command(command).await?)?;
        let outcome = |applied| match applied {
            1 => SettleOutcome::Applied,
            _ => SettleOutcome::StaleReceipt,
        };
        settlements.iter().map(|_| outcomes.number().map(outcome)).collect()
    }

    /// Runs an action on dead letters: how many there were, and what was read of them.
    async fn dead_letters(
        &self,
        action: &str,
        limit: usize,
        arguments: Vec<String>,
    ) -> Result<(u64, Vec<DeadLetter>), QueueError> {
        let mut command = self.script(DEAD_LETTERS);
        command.arg(action).arg(limit.min(BATCH_MAX)).arg(self.age_micros()).arg(arguments);
        reply::read_dead_letters(self.server.command(command).await?, self.instance)
    }

    fn selection(&self, selection: &DeadLetterSelection) -> Vec<String> {
        match selection {
            DeadLetterSelection::All => vec!["all".to_owned(), "0".to_owned()],
            DeadLetterSelection::Before(instant) => {
                vec!["before".to_owned(), micros_up(*instant).to_string()]
            }
            DeadLetterSelection::Ids(ids) => {
                let own = ids.iter().filter(|id| id.instance() == self.instance);
                let words =
                    own.flat_map(|id| [id.sequence(), millis_of(*id)].map(|word| word.to_string()));
                ["ids".to_owned()].into_iter().chain(words).collect()
            }
        }
    }
}

impl Queue for RedisQueue {
    fn capabilities(&self) -> &'static [Capability] {
        CAPABILITIES
    }

    fn enqueue(&self, batch: Vec<NewRecord>) -> QueueFuture<'_, Vec<EnqueueOutcome>> {
        Box::pin(async move { self.store(&batch).await })
    }

    fn claim(&self, budget: ClaimBudget) -> QueueFuture<'_, Claim> {
        Box::pin(async move { self.take(&budget).await })
    }

    fn settle(
        &self,
        settlements: Vec<(Receipt, Settlement)>,
    ) -> QueueFuture<'_, Vec<SettleOutcome>> {
        Box::pin(async move { self.settle_all(&settlements).await })
    }

    fn stats(&self) -> QueueFuture<'_, QueueStats> {
        Box::pin(async move { reply::read_stats(self.server.command(self.script(STATS)).await?) })
    }

    fn list_dead_letters(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> QueueFuture<'_, Vec<DeadLetter>> {
        let after = after.map_or(0, RecordId::sequence).to_string();
        Box::pin(async move {
            Ok(self.dead_letters("list", limit, vec!["all".to_owned(), after]).await?.1)
        })
    }

    fn show_dead_letter(&self, id: RecordId) -> QueueFuture<'_, Option<DeadLetter>> {
        Box::pin(async move {
            let arguments = self.selection(&DeadLetterSelection::Ids(vec![id]));
            Ok(self.dead_letters("show", 1, arguments).await?.1.pop())
        })
    }

    fn redrive(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64> {
        Box::pin(async move {
            Ok(self.dead_letters("redrive", limit, self.selection(&selection)).await?.0)
        })
    }

    fn purge(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64> {
        Box::pin(async move {
            Ok(self.dead_letters("purge", limit, self.selection(&selection)).await?.0)
        })
    }
}
