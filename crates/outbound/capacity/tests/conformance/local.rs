//! Stores without a server: memory and a file.

use std::sync::Arc;

use tidegate_capacity::MemoryCapacityStore;
use tidegate_test_servers::relay::Relay;

use crate::StoreHarness;

#[derive(Default)]
pub(crate) struct MemoryHarness {
    store: Arc<MemoryCapacityStore>,
}

impl StoreHarness for MemoryHarness {
    type Store = Arc<MemoryCapacityStore>;
    const HAS_CLOCK: bool = false;

    async fn start() -> Self {
        MemoryHarness::default()
    }

    fn connect(&self) -> Self::Store {
        Arc::clone(&self.store)
    }

    async fn wipe(&self, target: &str) {
        self.store.forget(target);
    }

    fn line(&self) -> Option<&Relay> {
        None
    }

    async fn crash(&mut self) -> Option<()> {
        None
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::fs;

    use tempfile::TempDir;
    use tidegate_capacity::SqliteCapacityStore;

    use super::*;

    pub(crate) struct SqliteHarness {
        files: TempDir,
    }

    impl StoreHarness for SqliteHarness {
        type Store = SqliteCapacityStore;
        const HAS_CLOCK: bool = true;

        async fn start() -> Self {
            SqliteHarness { files: tempfile::tempdir().unwrap() }
        }

        fn connect(&self) -> Self::Store {
            SqliteCapacityStore::open(&self.files.path().join("leases.db")).unwrap()
        }

        async fn wipe(&self, _: &str) {
            fs::remove_file(self.files.path().join("leases.db")).unwrap();
        }

        fn line(&self) -> Option<&Relay> {
            None
        }

        async fn crash(&mut self) -> Option<()> {
            // The file is closed after each exchange: opening it again is all that a new process does.
            Some(())
        }
    }
}

#[cfg(feature = "sqlite")]
pub(crate) use sqlite::SqliteHarness;
