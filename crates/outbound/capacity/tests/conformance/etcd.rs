//! A real etcd, from the distribution: one for all cases, a prefix for each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_capacity::{EtcdCapacityStore, EtcdSettings};
use tidegate_test_servers::etcd::EtcdServer;
use tidegate_test_servers::relay::Relay;

use crate::StoreHarness;

static SHARED: Mutex<Weak<EtcdServer>> = Mutex::new(Weak::new());
static PREFIXES: AtomicU64 = AtomicU64::new(0);

pub(crate) struct EtcdHarness {
    server: Arc<EtcdServer>,
    relay: Relay,
    prefix: String,
}

fn shared() -> Arc<EtcdServer> {
    let mut shared = SHARED.lock().unwrap();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(EtcdServer::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

impl StoreHarness for EtcdHarness {
    type Store = EtcdCapacityStore;
    const HAS_CLOCK: bool = false;

    async fn start() -> Self {
        let server = tokio::task::spawn_blocking(shared).await.unwrap();
        let relay = Relay::to(server.port());
        let prefix = format!("case{}/", PREFIXES.fetch_add(1, Ordering::Relaxed));
        EtcdHarness { server, relay, prefix }
    }

    fn connect(&self) -> Self::Store {
        let endpoint = format!("http://127.0.0.1:{}", self.relay.port());
        let prefix = self.prefix.clone();
        EtcdCapacityStore::new(EtcdSettings { prefix, ..EtcdSettings::new(vec![endpoint]) })
            .unwrap()
    }

    async fn wipe(&self, _: &str) {
        // `0` comes after `/`: all keys that begin with the prefix.
        let [first, end] = ["/", "0"]
            .map(|last| STANDARD.encode(self.prefix.trim_end_matches('/').to_owned() + last));
        let body = format!(r#"{{"key": "{first}", "range_end": "{end}"}}"#);
        self.server.call("kv/deleterange", &body);
    }

    fn line(&self) -> Option<&Relay> {
        Some(&self.relay)
    }

    async fn crash(&mut self) -> Option<()> {
        // A server of its own: the others are in use.
        let mut server = EtcdServer::start();
        let settings = EtcdSettings::new(vec![server.url()]);
        let settings = EtcdSettings { prefix: self.prefix.clone(), ..settings };
        crate::cases::store_kept(&EtcdCapacityStore::new(settings).unwrap()).await;
        server.kill();
        server.restart();
        self.relay = Relay::to(server.port());
        self.server = Arc::new(server);
        Some(())
    }
}
