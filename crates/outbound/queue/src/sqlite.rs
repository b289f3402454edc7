//! The embedded queue: SQLite in the data directory, one writer thread, group commit.
//!
//! All operations go through a bounded channel to one thread that owns the connection. It takes every operation that
//! waits, runs them in one transaction, and answers after the commit. A sync of the disk takes milliseconds, so that
//! many producers share one; a single producer gets one sync for each batch. If the transaction fails, each operation
//! is tried again by itself: a full disk rejects enqueues and still acknowledges records.
//!
//! One process owns the data directory. Others reach the queue through that process.

mod dead_letters;
mod jobs;
mod operations;
mod rows;
mod schema;
mod state;
mod writer;

use std::path::Path;
use std::sync::Arc;

use tidegate_algorithms::Clock;
use tidegate_data_dir::{DataDir, DataDirError};

use crate::capability::Capability;
use crate::clock::WallClock;
use crate::error::QueueError;
use crate::queue::{
    Claim, ClaimBudget, DeadLetter, DeadLetterSelection, EnqueueOutcome, JobSelection, JobStats,
    Queue, QueueFuture, QueueStats, QueueStore, Receipt, SettleOutcome, Settlement,
};
use crate::record::{NewRecord, RecordId};
use crate::settings::QueueSettings;
use schema::SCHEMA;
use state::Engine;
use writer::Writer;

const ON_DISK: &[Capability] = &[
    Capability::Durable,
    Capability::Delay,
    Capability::Priority,
    Capability::Fairness,
    Capability::OrderKey,
    Capability::StrictOrder,
    Capability::Depth,
    Capability::Deduplication,
    Capability::Jobs,
];

/// How the store is opened.
pub struct SqliteSettings {
    /// The source of the present instant.
    pub clock: Arc<dyn Clock>,
    /// The largest database file in bytes; enqueues beyond it fail with `StorageFull`. `None`: the disk is the limit.
    pub file_bytes_max: Option<u64>,
}

impl Default for SqliteSettings {
    fn default() -> Self {
        SqliteSettings { clock: Arc::new(WallClock::new()), file_bytes_max: None }
    }
}

impl std::fmt::Debug for SqliteSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteSettings")
            .field("file_bytes_max", &self.file_bytes_max)
            .finish_non_exhaustive()
    }
}

/// Queues in the data directory of this process.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Arc<Writer>,
    capabilities: &'static [Capability],
}

impl SqliteStore {
    /// Opens the data directory, and creates it if it is missing.
    pub fn open(data_dir: &Path) -> Result<Self, QueueError> {
        SqliteStore::open_with(data_dir, SqliteSettings::default())
    }

    /// Opens the data directory with settings.
    pub fn open_with(data_dir: &Path, settings: SqliteSettings) -> Result<Self, QueueError> {
        let directory = DataDir::open(data_dir)?;
        SqliteStore::open_in(Arc::new(directory), settings)
    }

    /// Opens the queues of a data directory that other components use too.
    pub fn open_in(directory: Arc<DataDir>, settings: SqliteSettings) -> Result<Self, QueueError> {
        let path = directory.database_path(&SCHEMA);
        let connection = directory.open_database(&SCHEMA)?;
        let engine = Engine::new(connection, path, settings)?;
        let writer = Writer::start(engine, Some(directory))?;
        Ok(SqliteStore { writer, capabilities: ON_DISK })
    }

    /// Queues in memory, which end with the store: for tests, and for a process without a data directory.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Result<Self, QueueError> {
        let connection = SCHEMA.open_in_memory()?;
        let settings = SqliteSettings { clock, file_bytes_max: None };
        let engine = Engine::new(connection, ":memory:".into(), settings)?;
        let capabilities = ON_DISK.get(1..).unwrap_or_default();
        Ok(SqliteStore { writer: Writer::start(engine, None)?, capabilities })
    }
}

impl QueueStore for SqliteStore {
    fn capabilities(&self) -> &'static [Capability] {
        self.capabilities
    }

    fn open_queue(
        &self,
        record_type: &str,
        settings: QueueSettings,
    ) -> QueueFuture<'_, Arc<dyn Queue>> {
        let record_type = record_type.to_owned();
        Box::pin(async move {
            settings.validate(&record_type, self.capabilities)?;
            let kept = settings.clone();
            let index = self.writer.call(move |engine| engine.open(&record_type, &kept)).await?;
            let writer = Arc::clone(&self.writer);
            let capabilities = self.capabilities;
            Ok(Arc::new(SqliteQueue { writer, capabilities, index, settings }) as Arc<dyn Queue>)
        })
    }
}

/// The queue of one record type.
#[derive(Debug)]
struct SqliteQueue {
    writer: Arc<Writer>,
    capabilities: &'static [Capability],
    index: usize,
    settings: QueueSettings,
}

impl Queue for SqliteQueue {
    fn capabilities(&self) -> &'static [Capability] {
        self.capabilities
    }

    fn enqueue(&self, batch: Vec<NewRecord>) -> QueueFuture<'_, Vec<EnqueueOutcome>> {
        let index = self.index;
        Box::pin(async move {
            self.settings.validate_batch(&batch, self.writer.now())?;
            // Encoded here, so that the writer thread only stores.
            let payloads: Vec<_> = batch.iter().map(|record| record.payload.encode()).collect();
            self.writer.call(move |engine| engine.enqueue(index, &batch, &payloads)).await
        })
    }

    fn claim(&self, budget: ClaimBudget) -> QueueFuture<'_, Claim> {
        let index = self.index;
        Box::pin(async move {
            let rows = self.writer.call(move |engine| engine.claim(index, &budget)).await?;
            rows.decode(self.writer.location())
        })
    }

    fn settle(
        &self,
        settlements: Vec<(Receipt, Settlement)>,
    ) -> QueueFuture<'_, Vec<SettleOutcome>> {
        let index = self.index;
        Box::pin(self.writer.call(move |engine| engine.settle(index, &settlements)))
    }

    fn stats(&self) -> QueueFuture<'_, QueueStats> {
        let index = self.index;
        Box::pin(self.writer.call(move |engine| engine.stats(index)))
    }

    fn list_dead_letters(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> QueueFuture<'_, Vec<DeadLetter>> {
        let index = self.index;
        Box::pin(self.writer.call(move |engine| engine.list_dead_letters(index, after, limit)))
    }

    fn show_dead_letter(&self, id: RecordId) -> QueueFuture<'_, Option<DeadLetter>> {
        let index = self.index;
        Box::pin(self.writer.call(move |engine| engine.show_dead_letter(index, id)))
    }

    fn redrive(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64> {
        let index = self.index;
        Box::pin(self.writer.call(move |engine| engine.redrive(index, &selection, limit)))
    }

    fn purge(&self, selection: DeadLetterSelection, limit: usize) -> QueueFuture<'_, u64> {
        let index = self.index;
        Box::pin(self.writer.call(move |engine| engine.purge(index, &selection, limit)))
    }

    fn jobs(&self, selection: JobSelection) -> QueueFuture<'_, Vec<JobStats>> {
        let index = self.index;
        Box::pin(self.writer.call(move |engine| engine.jobs(index, &selection)))
    }
}

impl From<DataDirError> for QueueError {
    fn from(error: DataDirError) -> Self {
        let text = error.to_string();
        match error {
            DataDirError::Damaged { .. } | DataDirError::TooNew { .. } => QueueError::Damaged(text),
            DataDirError::StorageFull { .. } => QueueError::StorageFull(text),
            _ => QueueError::Unavailable(text),
        }
    }
}
