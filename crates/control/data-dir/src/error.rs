//! Why a data directory cannot be used, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// A failure of the data directory or of a database in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// Another process has the directory open.
    #[error(
        "{} is in use by another process{}; stop that process or choose another directory",
        path.display(), owner.as_ref().map(|id| format!(" (id {id})")).unwrap_or_default()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process id that the owner wrote into the lock file.
        owner: Option<String>,
    },
    /// The directory holds files, but no `format` file.
    #[error("{} holds other files and is no data directory; choose an empty or a new directory", path.display())]
    NotADataDir {
        /// The directory.
        path: PathBuf,
    },
    /// A later version of Tidegate wrote this.
    #[error(
        "{} has format {found}, and this version of Tidegate reads up to {known}; upgrade Tidegate or restore a backup",
        path.display()
    )]
    TooNew {
        /// The directory or the database.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The last version that this build reads.
        known: u32,
    },
    /// The file has unexpected contents.
    #[error(
        "{} is damaged ({detail}); stop Tidegate and keep a copy of the directory, then restore a backup, or rescue \
         the rows with `sqlite3 {} .recover`",
        path.display(), path.display()
    )]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// SQLite's message, or what was found.
        detail: String,
    },
    /// The file system has no room, or the database reached its maximum.
    #[error("no room to write {} ({detail}); free disk space or raise the maximum", path.display())]
    StorageFull {
        /// The file.
        path: PathBuf,
        /// The system's message.
        detail: String,
    },
    /// The SQLite library is older than the first version without the WAL-reset race.
    #[error("SQLite {found} may damage files; Tidegate needs 3.51.3 or newer and bundles one")]
    OldSqlite {
        /// The version of the linked library.
        found: String,
    },
    /// Any other failure of the file system.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Any other failure of SQLite.
    #[error("{}: {source}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
}

impl DataDirError {
    /// The error for a failed call of SQLite on the database at `path`.
    pub fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        let detail = source.to_string();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                DataDirError::Damaged { path, detail }
            }
            Some(ErrorCode::DiskFull) => DataDirError::StorageFull { path, detail },
            _ => match source {
                // Every table is STRICT, so a value of another type was not written by us.
                rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::Utf8Error(..) => DataDirError::Damaged { path, detail },
                source => DataDirError::Database { path, source },
            },
        }
    }

    pub(crate) fn from_file(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                DataDirError::StorageFull { path, detail: source.to_string() }
            }
            _ => DataDirError::File { path, source },
        }
    }
}
