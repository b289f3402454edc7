//! A queue that several processes share: PostgreSQL, rows claimed with `SKIP LOCKED`.
//!
//! Each operation is one transaction on a connection of a small pool. Time is the server's clock, so that processes
//! whose clocks differ agree on leases. Concurrent claims skip each other's rows instead of waiting.
//!
//! No row is written by every operation: totals are appended as differences and summed, tenants have a row each, and
//! records of one order key are serialized by an advisory lock on that key only. Bounds are checked against committed
//! totals; producers that commit at the same instant can exceed them by their batches.

mod claim;
mod dead_letters;
mod enqueue;
mod jobs;
mod operations;
mod pool;
mod schema;
mod settle;
mod tags;
mod totals;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_algorithms::Clock;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, NoTls, Socket};

use crate::capability::Capability;
use crate::error::QueueError;
use crate::queue::{
    Claim, ClaimBudget, DeadLetter, DeadLetterSelection, EnqueueOutcome, JobSelection, JobStats,
    Queue, QueueFuture, QueueStats, QueueStore, Receipt, SettleOutcome, Settlement,
};
use crate::record::{NewRecord, RecordId};
use crate::schedule::ClassSchedule;
use crate::settings::QueueSettings;
use operations::Operation;
use pool::{Failure, Pool};

const CAPABILITIES: &[Capability] = &Capability::ALL;
/// Attempts of a transaction that the server aborts because of a deadlock or a conflict.
const ATTEMPTS_MAX: usize = 10;
/// Claims of a process after which it deletes the rows of idle tenants and adds up totals.
const CLAIMS_PER_SWEEP: u64 = 256;
/// Bytes of a schema's name: PostgreSQL cuts longer ones.
const SCHEMA_BYTES_MAX: usize = 63;

/// How the store is reached.
#[derive(Clone)]
pub struct PostgresSettings {
    /// The schema that holds the tables; created if it is missing.
    pub schema: String,
    /// Connections of this process; operations beyond it wait.
    pub connections_max: usize,
    /// The source of the present instant. `None`: the server's clock.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for PostgresSettings {
    /// The schema `tidegate`, eight connections, the server's clock.
    fn default() -> Self {
        PostgresSettings { schema: "tidegate".to_owned(), connections_max: 8, clock: None }
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings")
            .field("schema", &self.schema)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

/// Queues in a PostgreSQL database.
pub struct PostgresStore {
    database: Arc<Database>,
}

/// What all queues of a store share.
struct Database {
    pool: Arc<Pool>,
    clock: Option<Arc<dyn Clock>>,
    instance: u32,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects without TLS, and creates or migrates the tables. `url` is a connection string such as
    /// `postgres://user@host/database`.
    pub async fn connect(url: &str, settings: PostgresSettings) -> Result<Self, QueueError> {
        PostgresStore::connect_with_tls(url, NoTls, settings).await
    }

    /// Connects with a TLS connector of your choice.
    pub async fn connect_with_tls<T>(
        url: &str,
        tls: T,
        settings: PostgresSettings,
    ) -> Result<Self, QueueError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let schema = &settings.schema;
        if schema.is_empty() || schema.len() > SCHEMA_BYTES_MAX || !schema.chars().all(plain) {
            let text = "a schema has 1 to 63 letters, digits or `_`";
            return Err(QueueError::InvalidSettings(text.to_owned()));
        }
        // The message of the parser may repeat the password.
        let config: Config = url.parse().map_err(|_| {
            QueueError::InvalidSettings("the connection string is not readable".to_owned())
        })?;
        let pool = Pool::new(config, tls, schema, settings.connections_max.max(1));
        let instance = schema::migrate(&pool, schema).await?;
        let database = Database { pool: Arc::new(pool), clock: settings.clock, instance };
        Ok(PostgresStore { database: Arc::new(database) })
    }
}

/// Repeats a transaction that the server aborted because of others.
macro_rules! retry {
    ($operation:expr) => {{
        let mut attempt = 1;
        loop {
            match $operation.await {
                Err(Failure::Conflict(_)) if attempt < ATTEMPTS_MAX => attempt += 1,
                other => break other.map_err(QueueError::from),
            }
        }
    }};
}

impl QueueStore for PostgresStore {
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
            let id = retry!(schema::open_queue(&self.database.pool, &record_type))?;
            let schedule = Mutex::new(ClassSchedule::new(settings.classes));
            let database = Arc::clone(&self.database);
            let claims = AtomicU64::new(0);
            Ok(Arc::new(PostgresQueue { database, id, settings, schedule, claims })
                as Arc<dyn Queue>)
        })
    }
}

/// The queue of one record type.
struct PostgresQueue {
    database: Arc<Database>,
    id: i64,
    settings: QueueSettings,
    /// Each process shares its own claims among the classes, so that all claims together are shared alike.
    schedule: Mutex<ClassSchedule>,
    claims: AtomicU64,
}

impl PostgresQueue {
    fn schedule(&self) -> ClassSchedule {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_schedule(&self, schedule: ClassSchedule) {
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner) = schedule;
    }

    async fn try_enqueue(&self, batch: &[NewRecord]) -> Result<Vec<EnqueueOutcome>, Failure> {
        let mut session = self.database.pool.session().await?;
        let mut operation = Operation::begin(&mut session, self).await?;
        let outcomes = operation.enqueue(batch).await?;
        operation.commit().await?;
        Ok(outcomes)
    }

    async fn try_claim(&self, budget: &ClaimBudget) -> Result<Claim, Failure> {
        let mut schedule = self.schedule();
        let mut session = self.database.pool.session().await?;
        let mut operation = Operation::begin(&mut session, self).await?;
        let (claim, reached) = operation.claim(budget, &mut schedule).await?;
        operation.commit().await?;
        self.set_schedule(schedule);
        tags::advance(&mut session, self.id, &reached).await;
        if self.claims.fetch_add(1, Ordering::Relaxed) % CLAIMS_PER_SWEEP == CLAIMS_PER_SWEEP - 1 {
            tags::sweep(&mut session, self.id).await;
        }
        Ok(claim)
    }

    async fn try_settle(
        &self,
        settlements: &[(Receipt, Settlement)],
    ) -> Result<Vec<SettleOutcome>, Failure> {
        let mut session = self.database.pool.session().await?;
        let mut operation = Operation::begin(&mut session, self).await?;
        let outcomes = operation.settle(settlements).await?;
        operation.commit().await?;
        Ok(outcomes)
    }

    async fn try_stats(&self) -> Result<QueueStats, Failure> {
        let mut session = self.database.pool.session().await?;
        let mut operation = Operation::begin(&mut session, self).await?;
        Ok(operation.stats().await?.0)
    }

    async fn try_list(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Failure> {
        let mut session = self.database.pool.session().await?;
        let mut operation = Operation::begin(&mut session, self).await?;
        operation.list_dead_letters(after, limit).await
    }

    async fn try_show(&self, id: RecordId) -> Result<Option<DeadLetter>, Failure> {
        let mut session = self.database.pool.session().await?;
        let mut operation = Operation::begin(&mut session, self).await?;
        operation.show_dead_letter(id).await
    }

    async fn try_redrive(
        &self,
        selection: &DeadLetterSelection,
        limit: usize,
    ) -> Result<u64, Failure> {
        let mut session = self.database.pool.session().await?;
        let mut operation = Operation::begin(&mut session, self).await?;
        let redriven = operation.redrive(selection, limit).await?;
        operation.commit().await?;
        Ok(redriven)
    }

    async fn try_purge(
        &self,
        selection: &DeadLetterSelection,
        limit: usize,
    ) -> Result<u64, Failure> {
        let mut session = self.database.pool.session().await?;
        let mut operation = Operation::begin(&mut session, self).await?;
        let purged = operation.purge(selection, limit).await?;
        operation.commit().await?;
        Ok(purged)
    }

    async fn try_jobs(&self, selection: &JobSelection) -> Result<Vec<JobStats>, Failure> {
        let mut session = self.database.pool.session().await?;
        let mut operation = Operation::begin(&mut session, self).await?;
        operation.jobs(selection).await
    }
}

impl Queue for PostgresQueue {
    fn capabilities(&self) -> &'static [Capability] {
        CAPABILITIES
    }

    fn enqueue(&self, batch: Vec<NewRecord>) -> QueueFuture<'_, Vec<EnqueueOutcome>> {
        Box::pin(async move { retry!(self.try_enqueue(&batch)) })
    }

    fn claim(&self, budget: ClaimBudget) -> QueueFuture<'_, Claim> {
        Box::pin(async move { retry!(self.try_claim(&budget)) })
    }

    fn settle(
        &self,
        settlements: Vec<(Receipt, Settlement)>,
    ) -> QueueFuture<'_, Vec<SettleOutcome>> {
        Box::pin(async move { retry!(self.try_settle(&settlements)) })
    }

    fn stats(&self) -> QueueFuture<'_, QueueStats> {
        Box::pin(async move { retry!(self.try_stats()) })
    }

    fn list_dead_letters(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> QueueFuture<'_, Vec<DeadLetter>> {
        Box::pin(async move { retry!(self.try_list(after, limit)) })
    }

    fn show_dead_letter(&self, id: RecordId) -> QueueFuture<'_, Option<DeadLetter>> {
        Box::pin(async move { retry!(self.try_show(id)) })
    }

    fn redrive(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64> {
        Box::pin(async move { retry!(self.try_redrive(&selection, limit)) })
    }

    fn purge(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64> {
        Box::pin(async move { retry!(self.try_purge(&selection, limit)) })
    }

    fn jobs(&self, selection: JobSelection) -> QueueFuture<'_, Vec<JobStats>> {
        Box::pin(async move { retry!(self.try_jobs(&selection)) })
    }
}
