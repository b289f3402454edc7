//! A copy of a data directory, made while it is in use.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::directory::{create_directory, open_private_file, write_format};
use crate::error::DataDirError;

/// How long the copy waits for a checkpoint that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Copies every database of the data directory `source` to the new directory `destination`.
///
/// The source may be in use: each database is read in one transaction (`VACUUM INTO`), so its copy is consistent, and
/// writers continue. The copy is a data directory; to restore it, start Tidegate on it. It holds the same secrets as
/// the source and has the same modes.
pub fn back_up(source: &Path, destination: &Path) -> Result<(), DataDirError> {
    let fail = |error| DataDirError::from_file(destination, error);
    if destination.exists() && fs::read_dir(destination).map_err(fail)?.next().is_some() {
        return Err(DataDirError::NotADataDir { path: destination.to_owned() });
    }
    create_directory(destination)?;
    let entries = fs::read_dir(source).map_err(|error| DataDirError::from_file(source, error))?;
    for entry in entries {
        let path = entry.map_err(|error| DataDirError::from_file(source, error))?.path();
        if path.extension().is_some_and(|extension| extension == "db")
            && let Some(name) = path.file_name()
        {
            copy_database(&path, &destination.join(name))?;
        }
    }
    // Last, so that an interrupted copy is not taken for a whole one.
    write_format(destination)
}

fn copy_database(source: &Path, destination: &Path) -> Result<(), DataDirError> {
    // SQLite copies into an empty file and keeps its mode.
    drop(open_private_file(destination)?);
    let fail = |error| DataDirError::from_sqlite(source, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(source, flags).map_err(fail)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(fail)?;
    let target = destination.to_string_lossy();
    connection.execute("VACUUM INTO ?1", [&target]).map_err(fail)?;
    let copy = Connection::open_with_flags(destination, flags);
    let synced = copy
        .and_then(|copy| copy.query_row("PRAGMA quick_check", [], |row| row.get::<_, String>(0)));
    let verdict = synced.map_err(|error| DataDirError::from_sqlite(destination, error))?;
    if verdict != "ok" {
        return Err(DataDirError::Damaged { path: source.to_owned(), detail: verdict });
    }
    let file = open_private_file(destination)?;
    file.sync_all().map_err(|error| DataDirError::from_file(destination, error))
}
