//! The embedded store under test.

use std::sync::Arc;

use tempfile::TempDir;
use tidegate_queue::{ManualClock, QueueStore, SqliteSettings, SqliteStore, Timestamp};

use crate::Backend;

pub(crate) const START: Timestamp = Timestamp::from_secs(1_800_000_000);

pub(crate) struct SqliteBackend {
    store: Option<SqliteStore>,
    clock: Arc<ManualClock>,
    files: TempDir,
}

impl SqliteBackend {
    fn open(files: &TempDir, clock: &Arc<ManualClock>) -> SqliteStore {
        let settings = SqliteSettings { clock: clock.clone(), file_bytes_max: None };
        SqliteStore::open_with(&files.path().join("data"), settings).unwrap()
    }
}

impl Backend for SqliteBackend {
    async fn start() -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let files = tempfile::tempdir().unwrap();
        let store = Some(SqliteBackend::open(&files, &clock));
        SqliteBackend { store, clock, files }
    }

    fn store(&self) -> &dyn QueueStore {
        self.store.as_ref().unwrap()
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    async fn restart(&mut self) {
        // Dropping it releases the data directory.
        self.store = None;
        self.store = Some(SqliteBackend::open(&self.files, &self.clock));
    }
}

pub(crate) struct InMemoryBackend {
    store: SqliteStore,
    clock: Arc<ManualClock>,
}

impl Backend for InMemoryBackend {
    async fn start() -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let store = SqliteStore::in_memory(clock.clone()).unwrap();
        InMemoryBackend { store, clock }
    }

    fn store(&self) -> &dyn QueueStore {
        &self.store
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    async fn restart(&mut self) {
        self.store = SqliteStore::in_memory(self.clock.clone()).unwrap();
    }
}
