//! Leases in a file that the processes of one machine share.
//!
//! The file is opened for each exchange, so that a file that someone deleted is noticed: the next exchange creates a
//! new one, and its document settles. Leases end by the time since the machine started. The file names that start
//! (the kernel's boot id); after another start every lease in it is void, because its holder is gone.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};
use tidegate_algorithms::Clock;

use super::{CapacityStore, CapacityStoreError, StoredDocument};
use crate::boot_clock::BootClock;
use crate::document::CapacityDocument;

/// How long an exchange waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// Says which program wrote the file: `tgls` in ASCII.
const APPLICATION_ID: i32 = 0x7467_6c73;
/// The tables that this version reads and writes.
const VERSION: i32 = 1;
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// Keeps documents in a SQLite file, for the processes of one machine. The directory must not be on a network.
#[derive(Clone, Debug)]
pub struct SqliteCapacityStore {
    file: Arc<LeaseFile>,
}

#[derive(Debug)]
struct LeaseFile {
    path: PathBuf,
    boot_id: String,
}

impl SqliteCapacityStore {
    /// Opens the file, and creates it if it is missing: readable by its owner only.
    ///
    /// # Errors
    /// When the file cannot be used, or is another program's.
    pub fn open(path: &Path) -> Result<Self, CapacityStoreError> {
        let boot_id = fs::read_to_string(BOOT_ID_FILE).map_err(CapacityStoreError::new)?;
        Self::open_in_boot(path, boot_id.trim().to_owned())
    }

    fn open_in_boot(path: &Path, boot_id: String) -> Result<Self, CapacityStoreError> {
        let file = LeaseFile { path: path.to_owned(), boot_id };
        file.connect()?;
        Ok(SqliteCapacityStore { file: Arc::new(file) })
    }

    /// Runs an exchange where it may wait for the disk.
    async fn run<T: Send + 'static>(
        &self,
        exchange: impl FnOnce(&LeaseFile) -> Result<T, CapacityStoreError> + Send + 'static,
    ) -> Result<T, CapacityStoreError> {
        let file = Arc::clone(&self.file);
        tokio::task::spawn_blocking(move || exchange(&file))
            .await
            .map_err(CapacityStoreError::new)?
    }
}

impl CapacityStore for SqliteCapacityStore {
    async fn read(&self, target: &str) -> Result<StoredDocument, CapacityStoreError> {
        let target = target.to_owned();
        self.run(move |file| file.read(&target)).await
    }

    async fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> Result<bool, CapacityStoreError> {
        let (target, stored) = (target.to_owned(), read.version.clone());
        self.run(move |file| file.replace(&target, &stored, &bytes)).await
    }

    fn outlived_by_members(&self) -> bool {
        true
    }
}

impl LeaseFile {
    fn connect(&self) -> Result<Connection, CapacityStoreError> {
        let options = OpenOptions::new().read(true).write(true).create(true).mode(0o600).clone();
        drop(options.open(&self.path).map_err(CapacityStoreError::new)?);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection =
            Connection::open_with_flags(&self.path, flags).map_err(CapacityStoreError::new)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(CapacityStoreError::new)?;
        match versions(&connection).map_err(CapacityStoreError::new)? {
            (APPLICATION_ID, VERSION) => return Ok(connection),
            (0, 0) => {}
            (APPLICATION_ID, _) => {
                return Err(CapacityStoreError::new("a later version wrote the lease file"));
            }
            _ => return Err(CapacityStoreError::new("the file holds no leases")),
        }
        // Processes that start together create the table one after the other.
        let created = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                transaction.execute_batch(
                    "CREATE TABLE IF NOT EXISTS documents \
                     (target TEXT PRIMARY KEY, boot_id TEXT NOT NULL, document BLOB NOT NULL) STRICT",
                )?;
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", VERSION)?;
                transaction.commit()
            });
        created.map_err(CapacityStoreError::new)?;
        Ok(connection)
    }

    fn read(&self, target: &str) -> Result<StoredDocument, CapacityStoreError> {
        let connection = self.connect()?;
        let sql = "SELECT boot_id, document FROM documents WHERE target = ?1";
        let row = connection.query_row(sql, [target], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
        });
        let row = row.optional().map_err(CapacityStoreError::new)?;
        let time_ms = Some(BootClock.now().as_nanos() / 1_000_000);
        let Some((boot_id, stored)) = row else {
            return Ok(StoredDocument { time_ms, ..StoredDocument::default() });
        };
        let bytes = if boot_id == self.boot_id { stored.clone() } else { without_members(&stored) };
        Ok(StoredDocument { bytes: Some(bytes), version: stored, time_ms })
    }

    fn replace(
        &self,
        target: &str,
        stored: &[u8],
        bytes: &[u8],
    ) -> Result<bool, CapacityStoreError> {
        let connection = self.connect()?;
        let changed = if stored.is_empty() {
            let sql = "INSERT INTO documents VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            connection.execute(sql, params![target, self.boot_id, bytes])
        } else {
            let sql = "UPDATE documents SET boot_id = ?2, document = ?3 \
                       WHERE target = ?1 AND document = ?4";
            connection.execute(sql, params![target, self.boot_id, bytes, stored])
        };
        Ok(changed.map_err(CapacityStoreError::new)? == 1)
    }
}

/// The application and the version that the file names; zero for an empty one.
fn versions(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    let sql = "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version";
    connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The document with its limits and epochs, and without the members of an earlier start of the machine.
fn without_members(stored: &[u8]) -> Vec<u8> {
    let emptied = CapacityDocument::decode(stored).and_then(|mut document| {
        document.drop_expired(|_, _| true);
        document.settle();
        document.encode()
    });
    // A document that cannot be read is left to the member, which says why.
    emptied.unwrap_or_else(|_| stored.to_vec())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::document::Heartbeat;
    use crate::limits::{Dimension, TargetLimit, TargetLimits};
    use crate::pacing::Pace;

    fn document_with_a_member() -> Vec<u8> {
        let limits = vec![TargetLimit::per_second(Dimension::Units, 100)];
        let limits = TargetLimits::with_slots(limits, 10).unwrap();
        let mut document = CapacityDocument::new(limits, Vec::new(), 1, 7, false);
        let heartbeat = Heartbeat {
            member: "a".to_owned(),
            pool: CapacityDocument::DEFAULT_POOL.to_owned(),
            weight: 1,
            wants: 10,
            reserve: 0,
            holds: Vec::new(),
            incarnation: None,
            brake_ppm: Pace::WHOLE,
            hold_ms: None,
            expires_ms: u64::MAX,
        };
        assert_eq!(document.heartbeat(&heartbeat).unwrap().slots.len(), 10);
        document.encode().unwrap()
    }

    #[tokio::test]
    async fn leases_are_void_after_the_machine_started_again() {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("leases");
        let before = SqliteCapacityStore::open_in_boot(&path, "first".to_owned()).unwrap();
        let bytes = document_with_a_member();
        assert!(before.replace("t", &StoredDocument::default(), bytes).await.unwrap());

        let after = SqliteCapacityStore::open_in_boot(&path, "second".to_owned()).unwrap();
        let read = after.read("t").await.unwrap();
        let document = CapacityDocument::decode(&read.bytes.clone().unwrap()).unwrap();
        assert_eq!(document.holders().count(), 0);
        assert_eq!(document.limits().slots(), 10);
        assert!(after.replace("t", &read, document_with_a_member()).await.unwrap());
        let kept = CapacityDocument::decode(&after.read("t").await.unwrap().bytes.unwrap());
        assert_eq!(kept.unwrap().holders().count(), 1);
    }

    #[test]
    fn the_file_of_another_program_is_refused() {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("other.db");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE t (x); PRAGMA user_version = 4").unwrap();
        let refused = SqliteCapacityStore::open(&path).unwrap_err();
        assert!(refused.to_string().contains("holds no leases"), "{refused}");
    }
}
