//! A file that is read again when it has changed.
//!
//! Whether it has is told by what the system says of it, without reading it: the file behind all
//! links, its length and its time.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// What the system says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// Of the file at this path, as it is now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// A file and what it was like when it was last used.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    bytes_max: u64,
    used: Mutex<Option<Stamp>>,
}

impl WatchedFile {
    pub(super) fn new(path: &Path, bytes_max: u64) -> Self {
        WatchedFile { path: path.to_owned(), bytes_max, used: Mutex::new(None) }
    }

    /// Gives the text to `take`, if the file has changed since it was last taken; says whether it
    /// has. What is not taken is read again the next time. Blocks.
    ///
    /// # Errors
    /// Why it could not be read or taken, with its path.
    pub(super) fn refresh(
        &self,
        take: impl FnOnce(&str) -> Result<(), String>,
    ) -> Result<bool, String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let stamp = Stamp::of(&self.path).map_err(|error| at(&error))?;
        if *self.used.lock() == Some(stamp) {
            return Ok(false);
        }
        let text = self.read().map_err(|error| at(&error))?;
        take(&text).map_err(|error| at(&error))?;
        *self.used.lock() = Some(stamp);
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
    fn a_file_that_was_not_taken_is_given_again_and_one_that_was_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        fs::write(&path, "one").unwrap();
        let file = WatchedFile::new(&path, 100);
        let refused = || file.refresh(|_| Err("no".to_owned())).unwrap_err();
        assert_eq!(refused(), format!("{}: no", path.display()));
        assert_eq!(refused(), format!("{}: no", path.display()));
        let taken = |wanted: &'static str| {
            file.refresh(|text| {
                assert_eq!(text, wanted);
                Ok(())
            })
        };
        assert_eq!(taken("one"), Ok(true));
        assert_eq!(taken("one"), Ok(false));
        fs::write(&path, "another").unwrap();
        assert_eq!(taken("another"), Ok(true));
    }

    #[test]
    fn a_file_that_is_too_large_or_gone_is_told_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let file = WatchedFile::new(&path, 3);
        let gone = file.refresh(|_| Ok(())).unwrap_err();
        assert!(gone.starts_with(&path.display().to_string()), "{gone}");
        fs::write(&path, "abc").unwrap();
        assert!(file.refresh(|_| Ok(())).unwrap_err().ends_with("it has 3 bytes or more"));
    }
}
