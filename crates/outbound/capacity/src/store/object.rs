//! Leases in an object store: one object for each target, put on the condition that it is unchanged.
//!
//! An object store offers no clock, so a lease ends when another member has seen it unchanged for its length. S3 and
//! the stores that imitate it accept conditional puts; the local file system of `object_store` does not.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig,
    UpdateVersion,
};
use tokio::time::timeout;

use super::{CapacityStore, CapacityStoreError, StoredDocument};

/// How long a read or a write may take.
const DEADLINE: Duration = Duration::from_secs(3);
/// Bytes of a document that are read.
const DOCUMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// How S3, or a store that imitates it, is reached.
#[derive(Clone)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// Its region.
    pub region: String,
    /// The address of a store other than Amazon's.
    pub endpoint: Option<String>,
    /// The key id and the secret; `None` takes them from the environment or the machine's role.
    pub keys: Option<(String, String)>,
    /// Where the names of the objects begin.
    pub prefix: String,
    /// Whether an endpoint without TLS is accepted.
    pub allow_http: bool,
}

impl S3Settings {
    /// A bucket of Amazon's.
    pub fn new(bucket: impl Into<String>, region: impl Into<String>) -> Self {
        S3Settings {
            bucket: bucket.into(),
            region: region.into(),
            endpoint: None,
            keys: None,
            prefix: "tidegate".to_owned(),
            allow_http: false,
        }
    }
}

impl std::fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Settings")
            .field("bucket", &self.bucket)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Keeps documents in an object store that all members reach.
#[derive(Clone, Debug)]
pub struct ObjectCapacityStore {
    store: Arc<dyn ObjectStore>,
    prefix: String,
}

impl ObjectCapacityStore {
    /// A bucket of S3, or of a store that imitates it.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn s3(settings: S3Settings) -> Result<Self, CapacityStoreError> {
        // A failed exchange is repeated by the next heartbeat, not within this one.
        let retries = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let client = ClientOptions::new()
            .with_timeout(DEADLINE)
            .with_connect_timeout(DEADLINE)
            .with_allow_http(settings.allow_http);
        let builder = match settings.keys {
            Some((id, secret)) => {
                AmazonS3Builder::new().with_access_key_id(id).with_secret_access_key(secret)
            }
            None => AmazonS3Builder::from_env(),
        };
        let mut builder = builder
            .with_bucket_name(settings.bucket)
            .with_region(settings.region)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_client_options(client)
            .with_retry(retries);
        if let Some(endpoint) = settings.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let store = builder.build().map_err(CapacityStoreError::new)?;
        Ok(Self::new(Arc::new(store), settings.prefix))
    }

    /// Any object store that can put on the condition that an object is unchanged.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: impl Into<String>) -> Self {
        ObjectCapacityStore { store, prefix: prefix.into() }
    }

    fn path(&self, target: &str) -> Path {
        Path::from_iter([self.prefix.as_str(), "capacity", target])
    }
}

impl CapacityStore for ObjectCapacityStore {
    async fn read(&self, target: &str) -> Result<StoredDocument, CapacityStoreError> {
        let path = self.path(target);
        let within = async {
            let found = match self.store.get(&path).await {
                Err(Error::NotFound { .. }) => return Ok(StoredDocument::default()),
                other => other.map_err(CapacityStoreError::new)?,
            };
            if found.meta.size > DOCUMENT_BYTES_MAX {
                return Err(CapacityStoreError::new("the lease document is too long"));
            }
            let version = found.meta.e_tag.clone();
            let version = version
                .ok_or_else(|| CapacityStoreError::new("the object store returns no entity tag"))?;
            let bytes = found.bytes().await.map_err(CapacityStoreError::new)?;
            Ok(StoredDocument {
                bytes: Some(bytes.to_vec()),
                version: version.into_bytes(),
                time_ms: None,
            })
        };
        timeout(DEADLINE, within).await.unwrap_or_else(|_| Err(late()))
    }

    async fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> Result<bool, CapacityStoreError> {
        let mode = match &read.bytes {
            None => PutMode::Create,
            Some(_) => PutMode::Update(UpdateVersion {
                e_tag: Some(
                    String::from_utf8(read.version.clone()).map_err(CapacityStoreError::new)?,
                ),
                version: None,
            }),
        };
        let path = self.path(target);
        let put = self.store.put_opts(&path, bytes.into(), PutOptions::from(mode));
        match timeout(DEADLINE, put).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(Error::AlreadyExists { .. } | Error::Precondition { .. })) => Ok(false),
            // An object that was deleted in between is not the one that was read.
            Ok(Err(Error::NotFound { .. })) if read.bytes.is_some() => Ok(false),
            Ok(Err(error)) => Err(CapacityStoreError::new(error)),
            Err(_) => Err(late()),
        }
    }

    fn outlived_by_members(&self) -> bool {
        true
    }
}

fn late() -> CapacityStoreError {
    CapacityStoreError::new("the object store did not answer in time")
}
