//! Where the document of a target is kept.
//!
//! A store reads one small value and replaces it only if it is unchanged: a row, an object with a conditional put, a key
//! with a revision. Memory serves the tasks of one process, SQLite the processes of one machine, the others processes on
//! many machines. All of them pass one conformance suite.

#[cfg(feature = "etcd")]
mod etcd;
mod memory;
#[cfg(feature = "s3")]
mod object;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

#[cfg(feature = "etcd")]
pub use etcd::{EtcdCapacityStore, EtcdSettings};
pub use memory::MemoryCapacityStore;
#[cfg(feature = "s3")]
pub use object::{ObjectCapacityStore, S3Settings};
#[cfg(feature = "postgres")]
pub use postgres::PostgresCapacityStore;
#[cfg(feature = "redis")]
pub use redis::RedisCapacityStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteCapacityStore;

/// Keeps one small document for each target.
pub trait CapacityStore: Send + Sync + 'static {
    /// Reads the document of a target.
    fn read(
        &self,
        target: &str,
    ) -> impl Future<Output = Result<StoredDocument, CapacityStoreError>> + Send;

    /// Replaces the document if it is still the one that was read. Returns whether it was.
    ///
    /// After an error the replacement may have happened; the caller reads again.
    fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<bool, CapacityStoreError>> + Send;

    /// Whether members of a target can exist while the store has lost its document.
    fn outlived_by_members(&self) -> bool;
}

/// Several members of one process share a store by reference.
impl<S: CapacityStore> CapacityStore for Arc<S> {
    fn read(
        &self,
        target: &str,
    ) -> impl Future<Output = Result<StoredDocument, CapacityStoreError>> + Send {
        (**self).read(target)
    }

    fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<bool, CapacityStoreError>> + Send {
        (**self).replace(target, read, bytes)
    }

    fn outlived_by_members(&self) -> bool {
        (**self).outlived_by_members()
    }
}

/// A document as a store keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredDocument {
    /// The document; `None` if there is none.
    pub bytes: Option<Vec<u8>>,
    /// What the store compares: a revision, an entity tag; empty if it compares the bytes.
    pub version: Vec<u8>,
    /// The store's clock in milliseconds, if it has one.
    pub time_ms: Option<u64>,
}

/// A store that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the lease store cannot be used: {0}")]
pub struct CapacityStoreError(#[source] pub Box<dyn Error + Send + Sync>);

impl CapacityStoreError {
    /// The error for this cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        CapacityStoreError(cause.into())
    }
}
