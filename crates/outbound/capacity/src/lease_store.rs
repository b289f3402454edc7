//! A lease store that is chosen at run time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::document::CapacityDocument;
use crate::limits::{LimitsError, TargetLimits};
use crate::member::HeartbeatError;
use crate::store::{CapacityStore, CapacityStoreError, StoredDocument};

type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, CapacityStoreError>> + Send + 'a>>;

/// [`CapacityStore`] with boxed futures.
trait BoxedStore: Send + Sync + 'static {
    fn read<'a>(&'a self, target: &'a str) -> StoreFuture<'a, StoredDocument>;
    fn replace<'a>(
        &'a self,
        target: &'a str,
        read: &'a StoredDocument,
        bytes: Vec<u8>,
    ) -> StoreFuture<'a, bool>;
    fn outlived_by_members(&self) -> bool;
}

impl<S: CapacityStore> BoxedStore for S {
    fn read<'a>(&'a self, target: &'a str) -> StoreFuture<'a, StoredDocument> {
        Box::pin(CapacityStore::read(self, target))
    }

    fn replace<'a>(
        &'a self,
        target: &'a str,
        read: &'a StoredDocument,
        bytes: Vec<u8>,
    ) -> StoreFuture<'a, bool> {
        Box::pin(CapacityStore::replace(self, target, read, bytes))
    }

    fn outlived_by_members(&self) -> bool {
        CapacityStore::outlived_by_members(self)
    }
}

/// Any lease store. Clones share it.
#[derive(Clone)]
pub struct LeaseStore(Arc<dyn BoxedStore>);

/// How often a change of limits tries to replace the document.
const ATTEMPTS_MAX: u32 = 8;

/// Why limits were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeLimitsError {
    /// The store or its document cannot be used.
    #[error(transparent)]
    Heartbeat(#[from] HeartbeatError),
    /// The limits cannot be kept, or have another number of slots.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// No member has used the target yet.
    #[error("the lease store does not know the target `{0}`: it has had no member yet")]
    UnknownTarget(String),
}

impl LeaseStore {
    /// This store.
    pub fn new(store: impl CapacityStore) -> Self {
        LeaseStore(Arc::new(store))
    }

    /// The document of a target; `None` if it has had no member yet.
    ///
    /// # Errors
    /// When the store fails or the document is damaged.
    pub async fn document(&self, target: &str) -> Result<Option<CapacityDocument>, HeartbeatError> {
        let read = self.0.read(target).await?;
        Ok(read.bytes.as_deref().map(CapacityDocument::decode).transpose()?)
    }

    /// Replaces the limits of a target for all its members. They learn of it with their next heartbeat.
    ///
    /// # Errors
    /// When the store fails, the target is unknown, or the limits do not fit it.
    pub async fn change_limits(
        &self,
        target: &str,
        limits: &TargetLimits,
    ) -> Result<(), ChangeLimitsError> {
        for _ in 0..ATTEMPTS_MAX {
            let read = self.0.read(target).await.map_err(HeartbeatError::from)?;
            let Some(bytes) = &read.bytes else {
                return Err(ChangeLimitsError::UnknownTarget(target.to_owned()));
            };
            let mut document = CapacityDocument::decode(bytes).map_err(HeartbeatError::from)?;
            document.set_limits(limits.clone())?;
            let bytes = document.encode().map_err(HeartbeatError::from)?;
            if self.0.replace(target, &read, bytes).await.map_err(HeartbeatError::from)? {
                return Ok(());
            }
        }
        Err(HeartbeatError::Contended.into())
    }
}

impl CapacityStore for LeaseStore {
    async fn read(&self, target: &str) -> Result<StoredDocument, CapacityStoreError> {
        self.0.read(target).await
    }

    async fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> Result<bool, CapacityStoreError> {
        self.0.replace(target, read, bytes).await
    }

    fn outlived_by_members(&self) -> bool {
        self.0.outlived_by_members()
    }
}

impl fmt::Debug for LeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseStore")
    }
}
