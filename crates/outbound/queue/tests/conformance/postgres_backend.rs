//! The PostgreSQL store under test, each in its own schema of one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_queue::{ManualClock, PostgresSettings, PostgresStore, QueueStore, Timestamp};
use tidegate_test_servers::postgres::PostgresServer;

use crate::Backend;

static SCHEMAS: AtomicU64 = AtomicU64::new(0);

pub(crate) struct PostgresBackend {
    store: PostgresStore,
    clock: Arc<ManualClock>,
    settings: PostgresSettings,
    server: Arc<PostgresServer>,
}

impl Backend for PostgresBackend {
    async fn start() -> Self {
        let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        let settings = PostgresSettings {
            schema: format!("test_{}_{number}", std::process::id()),
            clock: Some(clock.clone()),
            ..PostgresSettings::default()
        };
        let store = PostgresStore::connect(&server.url(), settings.clone()).await.unwrap();
        PostgresBackend { store, clock, settings, server }
    }

    fn store(&self) -> &dyn QueueStore {
        &self.store
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    async fn restart(&mut self) {
        self.store =
            PostgresStore::connect(&self.server.url(), self.settings.clone()).await.unwrap();
    }
}
