//! A real PostgreSQL: one server for all cases, a schema for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_capacity::PostgresCapacityStore;
use tidegate_test_servers::postgres::PostgresServer;
use tidegate_test_servers::relay::Relay;

use crate::StoreHarness;

static SCHEMAS: AtomicU64 = AtomicU64::new(0);

pub(crate) struct PostgresHarness {
    server: Arc<PostgresServer>,
    relay: Relay,
    schema: String,
}

impl StoreHarness for PostgresHarness {
    type Store = PostgresCapacityStore;
    const HAS_CLOCK: bool = true;

    async fn start() -> Self {
        let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap();
        let relay = Relay::to(server.port());
        let schema = format!("case_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
        PostgresHarness { server, relay, schema }
    }

    fn connect(&self) -> Self::Store {
        let url = format!("postgres://tidegate@127.0.0.1:{}/postgres", self.relay.port());
        PostgresCapacityStore::new(&url, &self.schema).unwrap()
    }

    async fn wipe(&self, _: &str) {
        let connected = tokio_postgres::connect(&self.server.url(), tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.schema)).await.unwrap();
    }

    fn line(&self) -> Option<&Relay> {
        Some(&self.relay)
    }

    async fn crash(&mut self) -> Option<()> {
        // A server of its own: the others are in use.
        let mut server = PostgresServer::start();
        let store = |server: &PostgresServer| {
            PostgresCapacityStore::new(&server.url(), &self.schema).unwrap()
        };
        crate::cases::store_kept(&store(&server)).await;
        server.kill();
        server.restart();
        self.relay = Relay::to(server.port());
        self.server = Arc::new(server);
        Some(())
    }
}
