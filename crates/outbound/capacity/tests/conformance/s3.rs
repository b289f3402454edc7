//! An S3 server, moto: one for all cases, a prefix for each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use object_store::ObjectStoreExt;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use tidegate_capacity::{ObjectCapacityStore, S3Settings};
use tidegate_test_servers::moto::MotoServer;
use tidegate_test_servers::relay::Relay;

use crate::StoreHarness;

const BUCKET: &str = "leases";

static SHARED: Mutex<Weak<MotoServer>> = Mutex::new(Weak::new());
static PREFIXES: AtomicU64 = AtomicU64::new(0);

pub(crate) struct S3Harness {
    server: Arc<MotoServer>,
    relay: Relay,
    prefix: String,
}

fn shared() -> Arc<MotoServer> {
    let mut shared = SHARED.lock().unwrap();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(MotoServer::start(BUCKET));
        *shared = Arc::downgrade(&server);
        server
    })
}

impl StoreHarness for S3Harness {
    type Store = ObjectCapacityStore;
    const HAS_CLOCK: bool = false;

    async fn start() -> Self {
        let server = tokio::task::spawn_blocking(shared).await.unwrap();
        let relay = Relay::to(server.port());
        let prefix = format!("case{}", PREFIXES.fetch_add(1, Ordering::Relaxed));
        S3Harness { server, relay, prefix }
    }

    fn connect(&self) -> Self::Store {
        let settings = S3Settings {
            endpoint: Some(format!("http://127.0.0.1:{}", self.relay.port())),
            keys: Some(("id".to_owned(), "secret".to_owned())),
            prefix: self.prefix.clone(),
            allow_http: true,
            ..S3Settings::new(BUCKET, "us-east-1")
        };
        ObjectCapacityStore::s3(settings).unwrap()
    }

    async fn wipe(&self, target: &str) {
        let builder = AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{}", self.server.port()))
            .with_allow_http(true)
            .with_bucket_name(BUCKET)
            .with_region("us-east-1")
            .with_access_key_id("id")
            .with_secret_access_key("secret");
        let path = Path::from_iter([&self.prefix, "capacity", target]);
        builder.build().unwrap().delete(&path).await.unwrap();
    }

    fn line(&self) -> Option<&Relay> {
        Some(&self.relay)
    }

    async fn crash(&mut self) -> Option<()> {
        // moto keeps its objects in memory.
        None
    }
}
