//! A file that is reloaded when it has changed.
//!
//! Changes are detected by `stat`, without reading the file: the inode behind all links, the length and the time.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// The version of a file, by `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileStamp {
    /// The current version of the file at this path.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// A file, and the version that was last loaded.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    bytes_max: u64,
    loaded: Mutex<Option<FileStamp>>,
}

impl WatchedFile {
    pub(super) fn new(path: &Path, bytes_max: u64) -> Self {
        WatchedFile { path: path.to_owned(), bytes_max, loaded: Mutex::new(None) }
    }

    /// Calls `load` with the text if the file has changed since it was last loaded, and returns whether it has. Tries
    /// again at the next call if `load` fails. Blocks.
    ///
    /// # Errors
    /// Why it could not be read or loaded, with its path.
    pub(super) fn refresh(
        &self,
        load: impl FnOnce(&str) -> Result<(), String>,
    ) -> Result<bool, String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let stamp = FileStamp::of(&self.path).map_err(|error| at(&error))?;
        if *self.loaded.lock() == Some(stamp) {
            return Ok(false);
        }
        let text = self.read().map_err(|error| at(&error))?;
        load(&text).map_err(|error| at(&error))?;
        *self.loaded.lock() = Some(stamp);
        Ok(true)
    }

    fn read(&self) -> io::Result<String> {
        let mut text = String::new();
        let read = File::open(&self.path)?.take(self.bytes_max).read_to_string(&mut text)?;
        if u64::try_from(read).unwrap_or(u64::MAX) >= self.bytes_max {
            let limit = self.bytes_max;
            return Err(io::Error::other(format!("it has {limit} bytes or more")));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_loaded_once_per_change_and_again_after_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        fs::write(&path, "one").unwrap();
        let file = WatchedFile::new(&path, 100);
        let refused = || file.refresh(|_| Err("no".to_owned())).unwrap_err();
        assert_eq!(refused(), format!("{}: no", path.display()));
        assert_eq!(refused(), format!("{}: no", path.display()));
        let loaded = |wanted: &'static str| {
            file.refresh(|text| {
                assert_eq!(text, wanted);
                Ok(())
            })
        };
        assert_eq!(loaded("one"), Ok(true));
        assert_eq!(loaded("one"), Ok(false));
        fs::write(&path, "another").unwrap();
        assert_eq!(loaded("another"), Ok(true));
    }

    #[test]
    fn a_file_that_is_too_large_or_missing_is_reported_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let file = WatchedFile::new(&path, 3);
        let gone = file.refresh(|_| Ok(())).unwrap_err();
        assert!(gone.starts_with(&path.display().to_string()), "{gone}");
        fs::write(&path, "abc").unwrap();
        assert!(file.refresh(|_| Ok(())).unwrap_err().ends_with("it has 3 bytes or more"));
    }
}
