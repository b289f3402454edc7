//! A bar on the terminal while recordings are played: how much of the files was read, and how many lines.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The width of the bar.
const CELLS: u64 = 30;

/// How much of the recordings was read. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadProgress(Arc<ReadCounts>);

#[derive(Debug, Default)]
struct ReadCounts {
    read: AtomicU64,
    /// The size of all files; zero if one of them has none, such as standard input.
    all: AtomicU64,
    has_unknown: AtomicU64,
}

/// A file whose bytes are counted.
#[derive(Debug)]
pub(crate) struct CountedFile {
    file: File,
    progress: ReadProgress,
}

impl ReadProgress {
    /// Counts what is read of a file.
    pub(crate) fn count(&self, file: File) -> CountedFile {
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => {
                self.0.all.fetch_add(metadata.len(), Ordering::Relaxed);
            }
            _ => self.add_unknown(),
        }
        CountedFile { file, progress: self.clone() }
    }

    /// Adds input whose size is not known.
    pub(crate) fn add_unknown(&self) {
        self.0.has_unknown.store(1, Ordering::Relaxed);
    }

    /// Draws the bar, on a terminal.
    pub(crate) fn show(&self, lines: u64) {
        if io::stderr().is_terminal() {
            eprint!("\r{}", self.text(lines));
        }
    }

    /// Ends the line of the bar.
    pub(crate) fn end() {
        if io::stderr().is_terminal() {
            eprintln!();
        }
    }

    fn text(&self, lines: u64) -> String {
        let read = self.0.read.load(Ordering::Relaxed);
        let all = self.0.all.load(Ordering::Relaxed);
        if self.0.has_unknown.load(Ordering::Relaxed) != 0 || all == 0 {
            return format!("{lines} lines   ");
        }
        let of = |whole: u64| u128::from(read.min(all)) * u128::from(whole) / u128::from(all);
        let full = usize::try_from(of(CELLS)).unwrap_or(0);
        let bar = "#".repeat(full) + &" ".repeat(usize::try_from(CELLS).unwrap_or(0) - full);
        format!("[{bar}] {:>3} %  {lines} lines   ", of(100))
    }
}

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.progress.0.read.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_bar_is_as_full_as_much_of_the_files_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        File::create(&path).unwrap().write_all(&[b'x'; 100]).unwrap();
        let progress = ReadProgress::default();
        let mut file = progress.count(File::open(&path).unwrap());
        assert!(progress.text(0).ends_with("]   0 %  0 lines   "), "{}", progress.text(0));
        file.read_exact(&mut [0; 50]).unwrap();
        let half = progress.text(7);
        assert!(half.contains(" 50 %  7 lines"), "{half}");
        assert_eq!(half.matches('#').count(), 15);
        progress.add_unknown();
        assert_eq!(progress.text(9), "9 lines   ");
    }
}
