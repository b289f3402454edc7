//! One document, and the files that it names.
//!
//! The document is a text to be read; of each file that it names only what the system says of it
//! is given, so that a change there is a change too and no secret is held. Which files these are
//! is known once the document was read: whoever reads it says so to [`NamedFiles`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidegate_rules::Source;

use super::file::FileSource;
use super::places::Watched;
use super::reading;
use super::runtime::identity;
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
    /// These and no others.
    pub fn set(&self, files: Vec<PathBuf>) {
        *self.0.lock() = files;
    }

    fn get(&self) -> Vec<PathBuf> {
        self.0.lock().clone()
    }
}

impl DocumentSource {
    /// The document in this file, and whatever files are in the list then.
    pub fn new(path: impl Into<PathBuf>, named: NamedFiles) -> Self {
        DocumentSource { path: path.into(), named }
    }
}

impl TextSource for DocumentSource {
    fn load(&self) -> Result<Vec<Source>, LoadError> {
        let name = self.path.to_string_lossy().into_owned();
        let text = match reading::read(&self.path) {
            Ok(text) => text,
            Err(cause) => return Err(LoadError::new(vec![Fault { place: name, cause }])),
        };
        let stamps = self.named.get();
        let stamps = stamps.iter().map(|path| Source::new(path.to_string_lossy(), stamp(path)));
        Ok([Source::new(name, text)].into_iter().chain(stamps).collect())
    }

    fn watched(&self) -> Watched {
        let named = self.named.get();
        FileSource::new([&self.path].into_iter().chain(&named)).watched()
    }
}

/// What the system says of a file: the file behind all links, its length and its time.
fn stamp(path: &Path) -> String {
    let Ok(metadata) = fs::metadata(path) else { return "not there".to_owned() };
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:?} {} {}", identity(&metadata), metadata.len(), modified.as_nanos())
}
