//! The file of changes at run time: one line of JSON for each, read again at the next start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::history::with_suffix;
use crate::exit::{Complaint, Failure};

/// A file of this size is renamed to `….old`, and a new one begins. A change has about 300 bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The file that changes are appended to.
#[derive(Debug)]
pub(super) struct ChangesFile {
    path: PathBuf,
    state: Mutex<FileState>,
}

#[derive(Debug)]
struct FileState {
    file: File,
    bytes: u64,
    is_failing: bool,
}

impl ChangesFile {
    /// Opens the file, and returns the lines that it has.
    pub(super) fn open(path: &Path) -> Result<(Self, String), Failure> {
        let opened = open(path, FILE_BYTES_MAX).map_err(|error| {
            let message = format!("`{}` cannot be used: {error}", path.display());
            Complaint::new(message, "check `debug.changes_file`: changes are appended to it")
        })?;
        let (file, lines) = opened;
        let bytes = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let state = Mutex::new(FileState { file, bytes, is_failing: false });
        Ok((ChangesFile { path: path.to_owned(), state }, lines))
    }

    /// Appends a line. The change is made whether it can be written or not.
    pub(super) fn append(&self, line: &str) {
        let mut state = self.state.lock();
        match state.append(&self.path, line, FILE_BYTES_MAX) {
            Ok(()) => state.is_failing = false,
            Err(error) if !state.is_failing => {
                state.is_failing = true;
                let file = self.path.display();
                tracing::error!(%file, %error, "a change cannot be written to the file of changes");
            }
            Err(_) => {}
        }
    }
}

impl FileState {
    fn append(&mut self, path: &Path, line: &str, bytes_max: u64) -> io::Result<()> {
        let line = format!("{line}\n");
        let bytes = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > bytes_max {
            fs::rename(path, with_suffix(path, ".old"))?;
            (self.file, _) = open(path, bytes_max)?;
            self.bytes = 0;
        }
        self.file.write_all(line.as_bytes())?;
        self.bytes = self.bytes.saturating_add(bytes);
        self.file.sync_data()
    }
}

/// Opens a file to append to it, and reads its last lines.
fn open(path: &Path, bytes_max: u64) -> io::Result<(File, String)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    (&file).take(bytes_max).read_to_end(&mut bytes)?;
    if bytes.last().is_some_and(|last| *last != b'\n') {
        // A crash cut the last line off; the next one must not continue it.
        file.write_all(b"\n")?;
    }
    Ok((file, String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_again_and_a_line_that_was_cut_off_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes.jsonl");
        let (file, lines) = ChangesFile::open(&path).unwrap();
        assert_eq!(lines, "");
        file.append("one");
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"cut o").unwrap();
        let (file, lines) = ChangesFile::open(&path).unwrap();
        assert_eq!(lines, "one\ncut o");
        file.append("two");
        assert_eq!(ChangesFile::open(&path).unwrap().1, "one\ncut o\ntwo\n");
    }

    #[test]
    fn a_file_that_is_full_is_kept_beside_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes.jsonl");
        let (file, _) = open(&path, 10).unwrap();
        let mut state = FileState { file, bytes: 0, is_failing: false };
        for line in ["first", "second", "third"] {
            state.append(&path, line, 10).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
        let old = fs::read_to_string(folder.path().join("changes.jsonl.old")).unwrap();
        assert_eq!(old, "second\n");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error_that_names_the_setting() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ChangesFile::open(folder.path()).is_err());
        assert!(ChangesFile::open(&folder.path().join("missing").join("changes")).is_err());
    }
}
