//! A real Redis, with its log of changes.

use tidegate_capacity::{RedisCapacityStore, RedisSettings};
use tidegate_test_servers::relay::Relay;
use tidegate_test_servers::server::{Server, Setup};

use crate::StoreHarness;

pub(crate) struct RedisHarness {
    server: Server,
    relay: Relay,
}

impl StoreHarness for RedisHarness {
    type Store = RedisCapacityStore;
    const HAS_CLOCK: bool = true;

    async fn start() -> Self {
        let setup = Setup::redis().with("appendonly", &["yes"]).with("appendfsync", &["always"]);
        let server = setup.start();
        let relay = Relay::to(server.port());
        RedisHarness { server, relay }
    }

    fn connect(&self) -> Self::Store {
        RedisCapacityStore::connect(RedisSettings::parse(&self.relay.url()).unwrap()).unwrap()
    }

    async fn wipe(&self, _: &str) {
        self.server.tell(&["FLUSHALL"]);
    }

    fn line(&self) -> Option<&Relay> {
        Some(&self.relay)
    }

    async fn crash(&mut self) -> Option<()> {
        self.server.kill();
        self.server.restart();
        Some(())
    }
}
