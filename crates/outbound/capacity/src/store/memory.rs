//! Leases among the tasks of one process.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{CapacityStore, CapacityStoreError, StoredDocument};

/// Keeps documents in the memory of this process, for its own tasks. The members end with it.
#[derive(Debug, Default)]
pub struct MemoryCapacityStore {
    documents: Mutex<HashMap<String, Vec<u8>>>,
}

impl MemoryCapacityStore {
    /// Drops the document of a target, as a store that lost its data would. For tests.
    pub fn forget(&self, target: &str) {
        self.documents.lock().remove(target);
    }
}

impl CapacityStore for MemoryCapacityStore {
    async fn read(&self, target: &str) -> Result<StoredDocument, CapacityStoreError> {
        let bytes = self.documents.lock().get(target).cloned();
        Ok(StoredDocument { bytes, ..StoredDocument::default() })
    }

    async fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> Result<bool, CapacityStoreError> {
        let mut documents = self.documents.lock();
        let is_unchanged = documents.get(target) == read.bytes.as_ref();
        if is_unchanged {
            documents.insert(target.to_owned(), bytes);
        }
        Ok(is_unchanged)
    }

    fn outlived_by_members(&self) -> bool {
        false
    }
}
