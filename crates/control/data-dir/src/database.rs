//! A component's database: how it is opened, and how an older one is migrated.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use crate::directory::{DataDir, open_private_file};
use crate::error::DataDirError;

/// The first SQLite without the WAL-reset race, as `rusqlite::version_number` counts.
pub const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// The page cache of a connection, in KiB; pages beyond it are read again from the system's cache.
const CACHE_KIB: i32 = 4_096;
/// Pages after which the WAL is copied into the database: 16 MiB. The default of 4 MiB syncs four times as often.
const CHECKPOINT_PAGES: i32 = 4_096;
/// What the WAL keeps on disk after a checkpoint, in bytes.
const WAL_BYTES_KEPT: i64 = 64 * 1024 * 1024;

/// The tables of one component.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The file is called `name.db`.
    pub name: &'static str,
    /// SQLite's `application_id`, so that the file of another component is not taken for this one.
    pub application_id: i32,
    /// SQL to reach each version from the one before. Published entries never change.
    pub migrations: &'static [&'static str],
}

impl DataDir {
    /// Where the database of a component is.
    pub fn database_path(&self, schema: &Schema) -> PathBuf {
        self.path().join(format!("{}.db", schema.name))
    }

    /// Opens the database of a component, creates it if it is missing, and migrates it to the newest version.
    pub fn open_database(&self, schema: &Schema) -> Result<Connection, DataDirError> {
        let path = self.database_path(schema);
        // SQLite gives the WAL the mode of the database.
        drop(open_private_file(&path)?);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(&path, flags);
        let mut connection = opened.map_err(|error| DataDirError::from_sqlite(&path, error))?;
        schema.prepare(&mut connection, &path)?;
        Ok(connection)
    }
}

impl Schema {
    /// Opens a database in memory, which ends with the connection.
    pub fn open_in_memory(&self) -> Result<Connection, DataDirError> {
        let path = PathBuf::from(":memory:");
        let opened = Connection::open_in_memory();
        let mut connection = opened.map_err(|error| DataDirError::from_sqlite(&path, error))?;
        self.prepare(&mut connection, &path)?;
        Ok(connection)
    }

    fn prepare(&self, connection: &mut Connection, path: &Path) -> Result<(), DataDirError> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            return Err(DataDirError::OldSqlite { found: rusqlite::version().to_owned() });
        }
        let fail = |error| DataDirError::from_sqlite(path, error);
        let application: i32 =
            connection.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(fail)?;
        let version: u32 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail)?;
        let known = u32::try_from(self.migrations.len()).unwrap_or(u32::MAX);
        if version > 0 && application != self.application_id {
            let detail = format!("it is not the database `{}`", self.name);
            return Err(DataDirError::Damaged { path: path.to_owned(), detail });
        }
        if version > known {
            return Err(DataDirError::TooNew { path: path.to_owned(), found: version, known });
        }
        configure(connection).map_err(fail)?;
        for (applied, sql) in (1_u32..).zip(self.migrations).skip(version as usize) {
            let transaction = connection.transaction().map_err(fail)?;
            transaction.execute_batch(sql).map_err(fail)?;
            transaction
                .pragma_update(None, "application_id", self.application_id)
                .and_then(|()| transaction.pragma_update(None, "user_version", applied))
                .and_then(|()| transaction.commit())
                .map_err(fail)?;
        }
        Ok(())
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA cache_size = -{CACHE_KIB};
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
         PRAGMA journal_size_limit = {WAL_BYTES_KEPT};
         -- A mapped page turns an I/O error into SIGBUS.
         PRAGMA mmap_size = 0;
         -- A damaged schema must not call functions.
         PRAGMA trusted_schema = OFF;"
    ))
}
