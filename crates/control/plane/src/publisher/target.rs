//! Where snapshots are written: directories and object stores. One object for each ring, replaced on every beat.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use bytes::Bytes;

/// The name of the object.
const OBJECT: &str = "snapshot";

/// Why a target cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TargetError(String);

impl TargetError {
    fn new(error: &impl ToString) -> Self {
        TargetError(error.to_string())
    }
}

/// The answer of a target.
pub type TargetFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TargetError>> + Send + 'a>>;

/// A place that nodes read snapshots from.
pub trait TargetStore: Send + Sync {
    /// Its name, for messages.
    fn name(&self) -> &str;
    /// The object of a ring, if there is one.
    fn get<'a>(&'a self, cell: &'a str, ring: &'a str) -> TargetFuture<'a, Option<Vec<u8>>>;
    /// Replaces the object of a ring, whole or not at all.
    fn put<'a>(&'a self, cell: &'a str, ring: &'a str, snapshot: Bytes) -> TargetFuture<'a, ()>;
}

/// A directory, local or shared. One publisher at a time has its lock.
#[derive(Debug)]
pub struct DirectoryTarget {
    path: PathBuf,
    name: String,
    _lock: File,
}

impl DirectoryTarget {
    /// Creates the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// When it cannot be written, or another publisher has it.
    pub fn open(path: &Path) -> Result<Self, TargetError> {
        let fail = |error: std::io::Error| TargetError(format!("{}: {error}", path.display()));
        fs::create_dir_all(path).map_err(fail)?;
        let lock = path.join("publisher.lock");
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock);
        let lock = lock.map_err(fail)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = format!("another publisher writes to {}; stop it first", path.display());
                return Err(TargetError(text));
            }
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        Ok(DirectoryTarget { path: path.to_owned(), name: path.display().to_string(), _lock: lock })
    }

    fn directory(&self, cell: &str, ring: &str) -> PathBuf {
        self.path.join(cell).join(ring)
    }

    fn write(&self, cell: &str, ring: &str, snapshot: &[u8]) -> std::io::Result<()> {
        let directory = self.directory(cell, ring);
        fs::create_dir_all(&directory)?;
        let new = directory.join(format!("{OBJECT}.new"));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(&new)?;
        file.write_all(snapshot)?;
        file.sync_all()?;
        fs::rename(&new, directory.join(OBJECT))?;
        File::open(&directory)?.sync_all()
    }
}

impl TargetStore for DirectoryTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn get<'a>(&'a self, cell: &'a str, ring: &'a str) -> TargetFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            match fs::read(self.directory(cell, ring).join(OBJECT)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(TargetError::new(&error)),
            }
        })
    }

    fn put<'a>(&'a self, cell: &'a str, ring: &'a str, snapshot: Bytes) -> TargetFuture<'a, ()> {
        Box::pin(async move {
            self.write(cell, ring, &snapshot).map_err(|error| TargetError::new(&error))
        })
    }
}

#[cfg(feature = "objects")]
pub use objects::ObjectTarget;

#[cfg(feature = "objects")]
mod objects {
    use std::collections::HashMap;
    use std::fmt;
    use std::sync::Arc;
    use std::time::Duration;

    use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
    use object_store::path::Path;
    use object_store::{
        ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig,
        UpdateVersion,
    };
    use parking_lot::Mutex;
    use tokio::time::timeout;

    use super::{Bytes, OBJECT, TargetError, TargetFuture, TargetStore};

    /// An object store. Each put is on the condition that the object is the one that this process knows, so that an old
    /// publisher overwrites nothing.
    pub struct ObjectTarget {
        store: Arc<dyn ObjectStore>,
        name: String,
        prefix: String,
        deadline: Duration,
        /// The entity tags of the objects as this process saw them last.
        seen: Mutex<HashMap<Path, UpdateVersion>>,
    }

    impl fmt::Debug for ObjectTarget {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("ObjectTarget").field("name", &self.name).finish_non_exhaustive()
        }
    }

    impl ObjectTarget {
        /// A bucket of S3, or of a store that imitates it: `s3://bucket/prefix`. Keys, region and endpoint come from
        /// the variables `AWS_…` or the machine's role. A put takes at most `deadline`, and is not repeated: the next
        /// beat is.
        ///
        /// # Errors
        /// When the URL or the variables cannot be used.
        pub fn s3(url: &str, deadline: Duration) -> Result<Self, TargetError> {
            let rest = url.strip_prefix("s3://").unwrap_or(url);
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let client = ClientOptions::new().with_timeout(deadline).with_connect_timeout(deadline);
            let store = AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                .with_client_options(client)
                .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
                .build()
                .map_err(|error| TargetError::new(&error))?;
            Ok(ObjectTarget::new(Arc::new(store), url, prefix, deadline))
        }

        /// Any object store that can put on a condition.
        pub fn new(
            store: Arc<dyn ObjectStore>,
            name: impl Into<String>,
            prefix: impl Into<String>,
            deadline: Duration,
        ) -> Self {
            let (name, prefix, seen) = (name.into(), prefix.into(), Mutex::default());
            ObjectTarget { store, name, prefix, deadline, seen }
        }

        fn path(&self, cell: &str, ring: &str) -> Path {
            let parts = self.prefix.split('/').chain([cell, ring, OBJECT]);
            Path::from_iter(parts.filter(|part| !part.is_empty()))
        }

        async fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, TargetError> {
            let found = match self.store.get(path).await {
                Err(Error::NotFound { .. }) => {
                    self.seen.lock().remove(path);
                    return Ok(None);
                }
                other => other.map_err(|error| TargetError::new(&error))?,
            };
            let version = UpdateVersion {
                e_tag: found.meta.e_tag.clone(),
                version: found.meta.version.clone(),
            };
            let bytes = found.bytes().await.map_err(|error| TargetError::new(&error))?;
            self.seen.lock().insert(path.clone(), version);
            Ok(Some(bytes.to_vec()))
        }

        async fn write(&self, path: &Path, snapshot: Bytes) -> Result<(), TargetError> {
            let seen = self.seen.lock().get(path).cloned();
            let mode = seen.map_or(PutMode::Create, PutMode::Update);
            let options = PutOptions { mode, ..PutOptions::default() };
            match self.store.put_opts(path, snapshot.into(), options).await {
                Ok(put) => {
                    let version = UpdateVersion { e_tag: put.e_tag, version: put.version };
                    self.seen.lock().insert(path.clone(), version);
                    Ok(())
                }
                Err(error @ (Error::Precondition { .. } | Error::AlreadyExists { .. })) => {
                    // Somebody else wrote it. The next beat knows what is there, and its sequence decides.
                    self.read(path).await?;
                    Err(TargetError(format!("another process has written the object: {error}")))
                }
                Err(error) => Err(TargetError::new(&error)),
            }
        }
    }

    impl TargetStore for ObjectTarget {
        fn name(&self) -> &str {
            &self.name
        }

        fn get<'a>(&'a self, cell: &'a str, ring: &'a str) -> TargetFuture<'a, Option<Vec<u8>>> {
            Box::pin(async move {
                let path = self.path(cell, ring);
                let read = timeout(self.deadline, self.read(&path)).await;
                read.unwrap_or_else(|_| Err(TargetError("no answer in time".to_owned())))
            })
        }

        fn put<'a>(
            &'a self,
            cell: &'a str,
            ring: &'a str,
            snapshot: Bytes,
        ) -> TargetFuture<'a, ()> {
            Box::pin(async move {
                let path = self.path(cell, ring);
                let write = timeout(self.deadline, self.write(&path, snapshot)).await;
                write.unwrap_or_else(|_| Err(TargetError("no answer in time".to_owned())))
            })
        }
    }
}
