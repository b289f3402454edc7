//! The directory itself: permissions, lock, format file.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::DataDirError;

/// The layout that this version writes: one `format` file, one `lock` file, one SQLite database for each component.
pub const FORMAT_VERSION: u32 = 1;

const FORMAT_FILE: &str = "format";
const LOCK_FILE: &str = "lock";
const FORMAT_PREFIX: &str = "tidegate-data ";
/// A format file is one short line; reading stops here if it is something else.
const FORMAT_BYTES_MAX: u64 = 64;

/// A data directory that this process has open. Dropping it releases the lock.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Opens the directory, creates it if it is missing, and locks it against other processes.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        // First, because the directory of another program must stay as it is.
        if path.exists() && !path.join(FORMAT_FILE).exists() && holds_other_files(path)? {
            return Err(DataDirError::NotADataDir { path: path.to_owned() });
        }
        create_directory(path)?;
        let lock = lock(path)?;
        check_format(path)?;
        Ok(DataDir { path: path.to_owned(), lock })
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that was forked and has not yet executed its program shares it.
        let _ = self.lock.unlock();
    }
}

/// Creates the directory with mode 0700, or restricts an existing one to it.
pub(crate) fn create_directory(path: &Path) -> Result<(), DataDirError> {
    let fail = |error| DataDirError::from_file(path, error);
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail)?;
    let permissions = fs::metadata(path).map_err(fail)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(fail)?;
    }
    Ok(())
}

/// Opens a file that only the owner may read and write, creating it if it is missing.
pub(crate) fn open_private_file(path: &Path) -> Result<File, DataDirError> {
    let options = OpenOptions::new().read(true).write(true).create(true).mode(0o600).clone();
    options.open(path).map_err(|error| DataDirError::from_file(path, error))
}

fn lock(directory: &Path) -> Result<File, DataDirError> {
    let path = directory.join(LOCK_FILE);
    let mut file = open_private_file(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let read = (&mut file).take(FORMAT_BYTES_MAX).read_to_string(&mut owner);
            let owner = read.ok().map(|_| owner.trim().to_owned()).filter(|id| !id.is_empty());
            return Err(DataDirError::InUse { path: directory.to_owned(), owner });
        }
        Err(TryLockError::Error(error)) => return Err(DataDirError::from_file(&path, error)),
    }
    // Only for the message of the next process; a full disk must not keep this one from starting.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn check_format(directory: &Path) -> Result<(), DataDirError> {
    let path = directory.join(FORMAT_FILE);
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(FORMAT_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return write_format(directory);
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => text.clear(),
        Err(error) => return Err(DataDirError::from_file(&path, error)),
    }
    let version = text.strip_prefix(FORMAT_PREFIX).and_then(|rest| rest.trim().parse().ok());
    match version {
        Some(found) if found > FORMAT_VERSION => {
            Err(DataDirError::TooNew { path, found, known: FORMAT_VERSION })
        }
        Some(1..) => Ok(()),
        Some(0) | None => {
            let detail = format!("expected a line like `{FORMAT_PREFIX}{FORMAT_VERSION}`");
            Err(DataDirError::Damaged { path, detail })
        }
    }
}

fn holds_other_files(directory: &Path) -> Result<bool, DataDirError> {
    let fail = |error| DataDirError::from_file(directory, error);
    for entry in fs::read_dir(directory).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        // The root of an ext4 volume has lost+found.
        if !["lock", "lost+found", "format.new"].iter().any(|ours| name == *ours) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes the format file whole or not at all: a new file, synced, then renamed.
pub(crate) fn write_format(directory: &Path) -> Result<(), DataDirError> {
    let new = directory.join("format.new");
    let path = directory.join(FORMAT_FILE);
    let fail = |error| DataDirError::from_file(&path, error);
    let mut file = open_private_file(&new)?;
    file.set_len(0).map_err(fail)?;
    writeln!(file, "{FORMAT_PREFIX}{FORMAT_VERSION}").map_err(fail)?;
    file.sync_all().map_err(fail)?;
    fs::rename(&new, &path).map_err(fail)?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(fail)
}
