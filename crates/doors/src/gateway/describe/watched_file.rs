//! A file that is read again when it has changed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// What the system says of a file: the file behind all links, its length and its time.
type Stamp = (u64, u64, u64, i64, i64);

/// A file and what it was like when it was last read.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    bytes_max: u64,
    seen: Mutex<Option<Stamp>>,
}

impl WatchedFile {
    pub(super) fn new(path: &Path, bytes_max: u64) -> Self {
        WatchedFile { path: path.to_owned(), bytes_max, seen: Mutex::new(None) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The text, if the file has changed since it was last read. Blocks.
    pub(super) fn changed(&self) -> io::Result<Option<String>> {
        let metadata = fs::metadata(&self.path)?;
        let stamp = (
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        );
        if *self.seen.lock() == Some(stamp) {
            return Ok(None);
        }
        let mut text = String::new();
        let read = File::open(&self.path)?.take(self.bytes_max).read_to_string(&mut text)?;
        if u64::try_from(read).unwrap_or(u64::MAX) >= self.bytes_max {
            let limit = self.bytes_max;
            return Err(io::Error::other(format!("it has {limit} bytes or more")));
        }
        // Kept once it was read: a file that cannot be read is tried again.
        *self.seen.lock() = Some(stamp);
        Ok(Some(text))
    }
}
