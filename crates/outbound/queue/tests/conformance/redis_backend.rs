//! The store on Redis Streams under test, each with its own prefix on one server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tidegate_queue::{
    ManualClock, QueueStore, RedisQueueSettings, RedisSettings, RedisStore, Timestamp,
};
use tidegate_test_servers::server::{Server, Setup};

use crate::Backend;

static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
static PREFIXES: AtomicU64 = AtomicU64::new(0);

pub(crate) struct RedisBackend {
    store: RedisStore,
    clock: Arc<ManualClock>,
    settings: RedisQueueSettings,
    _server: Arc<Server>,
}

fn shared() -> Arc<Server> {
    let mut shared = SHARED.lock().unwrap();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Setup::redis().with("appendonly", &["yes"]).start());
        *shared = Arc::downgrade(&server);
        server
    })
}

impl Backend for RedisBackend {
    async fn start() -> Self {
        let server = tokio::task::spawn_blocking(shared).await.unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
        let mut servers = RedisSettings::parse(&server.url()).unwrap();
        servers.prefix = format!("case{}", PREFIXES.fetch_add(1, Ordering::Relaxed));
        let settings = RedisQueueSettings { servers, clock: Some(clock.clone()) };
        let store = RedisStore::connect(settings.clone()).await.unwrap();
        RedisBackend { store, clock, settings, _server: server }
    }

    fn store(&self) -> &dyn QueueStore {
        &self.store
    }

    fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    async fn restart(&mut self) {
        self.store = RedisStore::connect(self.settings.clone()).await.unwrap();
    }
}
