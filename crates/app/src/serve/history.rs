//! The thread that records the history, and the file that keeps it over a restart.
//!
//! The file is a whole snapshot, written every minute to a temporary file that replaces it: a crash leaves the old one.
//! A file that is damaged or of another version is moved aside and reported; the history begins again.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_admin::{DebugDoor, HistoryFileError};
use tidegate_engine::{Clock, SystemClock, Timestamp};

use super::store::ServiceStore;
use super::system_failure;
use crate::exit::Failure;

/// A reading comes so long after the beginning of each second: late enough that no second has two or none.
const READING_AFTER: u64 = 100_000_000;
const SECOND: u64 = 1_000_000_000;
/// Readings between two snapshots of the file.
const READINGS_PER_SNAPSHOT: u32 = 60;
/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The thread that records.
#[derive(Debug)]
pub(super) struct HistoryThread {
    stop: mpsc::SyncSender<()>,
    thread: JoinHandle<()>,
}

impl HistoryThread {
    /// Reads the file, if there is one, and starts the thread.
    pub(super) fn start<S: ServiceStore>(
        door: DebugDoor<S, SystemClock>,
        file: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        if let Some(path) = &file {
            restore(path, |bytes| door.restore_history(bytes));
        }
        let (stop, stopped) = mpsc::sync_channel(1);
        let run = move || {
            let mut snapshots = Snapshots { file, is_failing: false };
            let mut readings = 0_u32;
            let clock = SystemClock::new();
            while stopped.recv_timeout(until_reading(clock.now())) == Err(RecvTimeoutError::Timeout)
            {
                door.record();
                readings += 1;
                if readings.is_multiple_of(READINGS_PER_SNAPSHOT) {
                    snapshots.write(|| door.encode_history());
                }
            }
            door.record();
            snapshots.write(|| door.encode_history());
        };
        let failed = |error| system_failure("the thread of the history cannot be started", &error);
        let thread = thread::Builder::new().name("tidegate-history".to_owned()).spawn(run);
        Ok(HistoryThread { stop, thread: thread.map_err(failed)? })
    }

    /// Takes the last reading and writes the file.
    pub(super) fn finish(self) {
        let _ = self.stop.try_send(());
        let _ = self.thread.join();
    }
}

/// The time until the next reading.
fn until_reading(now: Timestamp) -> Duration {
    let since_reading = (now.as_nanos() + SECOND - READING_AFTER) % SECOND;
    Duration::from_nanos(SECOND - since_reading)
}

/// Reads a file. One that cannot be used is moved aside, so that the next snapshot does not overwrite it.
fn restore(path: &Path, apply: impl FnOnce(&[u8]) -> Result<(), HistoryFileError>) {
    let file = path.display();
    let bytes = match read(path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%file, %error, "the history cannot be read; it begins again");
            return;
        }
    };
    if let Err(error) = apply(&bytes) {
        let aside = with_suffix(path, ".unusable");
        let moved = fs::rename(path, &aside).is_ok();
        let aside = if moved { aside.display().to_string() } else { String::new() };
        tracing::warn!(%file, %error, aside, "the history cannot be used; it begins again");
    }
}

/// The bytes of a file; [`None`] if it does not exist.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
            Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is too large"))
        }
        Ok(_) => fs::read(path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes snapshots, and reports the first failure of several.
struct Snapshots {
    file: Option<PathBuf>,
    is_failing: bool,
}

impl Snapshots {
    fn write(&mut self, encode: impl FnOnce() -> Vec<u8>) {
        let Some(path) = &self.file else { return };
        match replace(path, &encode()) {
            Ok(()) => self.is_failing = false,
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                let file = path.display();
                tracing::warn!(%file, %error, "the history cannot be written; trying every minute");
            }
            Err(_) => {}
        }
    }
}

/// Replaces a file in one step.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, ".new");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_has_one_reading_however_long_the_last_one_took() {
        let at = |nanos: u64| until_reading(Timestamp::from_nanos(nanos)).as_nanos();
        assert_eq!(at(5_000_000_000), 100_000_000);
        assert_eq!(at(5_100_000_000), 1_000_000_000);
        assert_eq!(at(5_100_000_001), 999_999_999);
        assert_eq!(at(5_999_999_999), 100_000_001);
    }

    #[test]
    fn a_snapshot_replaces_the_file_and_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let mut snapshots = Snapshots { file: Some(path.clone()), is_failing: false };
        snapshots.write(|| b"one".to_vec());
        snapshots.write(|| b"two".to_vec());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_reported_once_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("history");
        let mut snapshots = Snapshots { file: Some(path), is_failing: false };
        snapshots.write(Vec::new);
        assert!(snapshots.is_failing);
        snapshots.write(Vec::new);
        assert!(snapshots.is_failing);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_moved_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        restore(&path, |_| panic!("there is no file"));
        fs::write(&path, "something else").unwrap();
        restore(&path, |_| Err(HistoryFileError::Foreign));
        assert!(!path.exists());
        assert!(folder.path().join("history.unusable").exists());
    }
}
