//! One document, and the files that it names.
//!
//! The document is loaded as text. Of the files that it names only metadata is loaded, so that
//! their changes are detected and no secret is kept. The reader of the document sets the list of
//! files in [`NamedFiles`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidegate_rules::{SOURCE_BYTES_MAX, Source};

use super::file::FileSource;
use super::reader;
use super::runtime::identity;
use super::watched_paths::WatchedPaths;
use super::{Fault, LoadError, TextSource};

/// One document, and the files that it names. The document is the first of its texts.
#[derive(Clone, Debug)]
pub struct DocumentSource {
    path: PathBuf,
    named: NamedFiles,
}

/// The files that a document names. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct NamedFiles(Arc<Mutex<Vec<PathBuf>>>);

impl NamedFiles {
    /// Replaces the list.
    pub fn set(&self, files: Vec<PathBuf>) {
        *self.0.lock() = files;
    }

    pub(super) fn get(&self) -> Vec<PathBuf> {
        self.0.lock().clone()
    }
}

impl DocumentSource {
    /// The document in this file, with the files that are in the list when it is loaded.
    pub fn new(path: impl Into<PathBuf>, named: NamedFiles) -> Self {
        DocumentSource { path: path.into(), named }
    }
}

impl TextSource for DocumentSource {
    fn load(&self) -> Result<Vec<Source>, LoadError> {
        let name = self.path.to_string_lossy().into_owned();
        let text = match reader::read(&self.path, SOURCE_BYTES_MAX) {
            Ok(text) => text,
            Err(cause) => return Err(LoadError { faults: vec![Fault { place: name, cause }] }),
        };
        let stamps = self.named.get();
        let stamps = stamps.iter().map(|path| Source::new(path.to_string_lossy(), stamp(path)));
        Ok([Source::new(name, text)].into_iter().chain(stamps).collect())
    }

    fn watched(&self) -> WatchedPaths {
        let named = self.named.get();
        FileSource::new([&self.path].into_iter().chain(&named)).watched()
    }
}

/// Metadata of a file behind its links: identity, length and modification time.
fn stamp(path: &Path) -> String {
    let Ok(metadata) = fs::metadata(path) else { return "not there".to_owned() };
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:?} {} {}", identity(&metadata), metadata.len(), modified.as_nanos())
}
