//! Reads rule files as texts, each once, up to a size.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use tidegate_rules::{ROWS_BYTES_MAX, SOURCE_BYTES_MAX, Source, named_row_files};

use super::walk::{Visitor, Walk};
use super::{Cause, Fault, LoadError};

/// The most rule files of one source.
pub const FILES_MAX: usize = 10_000;
/// The most bytes of all rule files: they are in memory at once.
pub const BYTES_MAX: usize = 256 * 1024 * 1024;

/// How sources are named.
#[derive(Debug)]
pub(super) enum SourceNames {
    /// By its path.
    Path,
    /// By its path below this directory, with dots between the parts.
    Dotted(PathBuf),
}

/// The texts read so far.
#[derive(Debug)]
pub(super) struct Reader {
    naming: SourceNames,
    sources: Vec<Source>,
    /// The files behind the paths, so that none is read twice.
    seen: HashSet<PathBuf>,
    bytes: usize,
}

impl Reader {
    pub(super) fn new(naming: SourceNames) -> Self {
        Reader { naming, sources: Vec::new(), seen: HashSet::new(), bytes: 0 }
    }

    fn name(&self, path: &Path) -> String {
        match &self.naming {
            SourceNames::Path => path.to_string_lossy().into_owned(),
            SourceNames::Dotted(top) => {
                let below = path.strip_prefix(top).unwrap_or(path);
                let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
                parts.join(".")
            }
        }
    }
}

/// The texts of a walk and the files of rows that they name, unless there were faults.
pub(super) fn texts(walk: Walk<Reader>) -> Result<Vec<Source>, LoadError> {
    let (mut reader, mut faults) = walk.finish();
    for name in row_files(&reader.sources) {
        match reader.row_file(&name) {
            Ok(()) => {}
            Err(cause) => faults.push(Fault { place: name, cause }),
        }
    }
    if faults.is_empty() { Ok(reader.sources) } else { Err(LoadError { faults }) }
}

/// The files of rows that rule files name, each once.
pub(super) fn row_files(sources: &[Source]) -> BTreeSet<String> {
    sources.iter().flat_map(named_row_files).collect()
}

impl Reader {
    /// Reads a file of rows. The compiler reports a missing one, with the line that names it.
    fn row_file(&mut self, name: &str) -> Result<(), Cause> {
        let text = match read(Path::new(name), ROWS_BYTES_MAX) {
            Ok(text) => text,
            Err(Cause::Missing) => return Ok(()),
            Err(cause) => return Err(cause),
        };
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > BYTES_MAX {
            return Err(Cause::TooLargeTogether);
        }
        self.sources.push(Source::new(name, text));
        Ok(())
    }
}

impl Visitor for Reader {
    fn file(&mut self, path: &Path) -> Result<(), Cause> {
        // A shell's pipe has no canonical path.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if !self.seen.insert(target) {
            return Ok(());
        }
        if self.sources.len() >= FILES_MAX {
            return Err(Cause::TooManyFiles);
        }
        let text = read(path, SOURCE_BYTES_MAX)?;
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > BYTES_MAX {
            return Err(Cause::TooLargeTogether);
        }
        self.sources.push(Source::new(self.name(path), text));
        Ok(())
    }
}

/// The text in a file.
pub(super) fn read(path: &Path, bytes_max: usize) -> Result<String, Cause> {
    let file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    // Without reading the size first: it may change, and pipes have none.
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(Cause::TooLarge);
    }
    String::from_utf8(bytes)
        .map_err(|error| Cause::NotUtf8 { offset: error.utf8_error().valid_up_to() })
}
