//! Rules from files and directories.
//!
//! A file is read whatever its name. Of a directory, the rule files in it and below it are
//! read. Names that begin with a dot are skipped there: editors leave such files, and Kubernetes
//! keeps the contents of a mounted volume in `..data` beside links to them. Links are followed,
//! and a file that is reached twice is read once. Files of rows are read when a rule file names
//! them.

use std::path::PathBuf;

use tidegate_rules::Source;

use super::document::NamedFiles;
use super::reader::{self, Reader, SourceNames};
use super::walk::{Selection, Walk};
use super::watched_paths::WatchedPaths;
use super::{LoadError, TextSource};

/// Rules from files and directories.
#[derive(Clone, Debug)]
pub struct FileSource {
    paths: Vec<PathBuf>,
    /// The files of rows that the rules named when they were loaded last.
    row_files: NamedFiles,
}

impl FileSource {
    /// A source of these files and directories, in this order.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let paths = paths.into_iter().map(Into::into).collect();
        FileSource { paths, row_files: NamedFiles::default() }
    }
}

impl TextSource for FileSource {
    fn load(&self) -> Result<Vec<Source>, LoadError> {
        let mut walk = Walk::new(Selection::RuleFiles, Reader::new(SourceNames::Path));
        for path in &self.paths {
            walk.walk_required(path);
        }
        let texts = reader::texts(walk)?;
        self.row_files.set(reader::row_files(&texts).into_iter().map(PathBuf::from).collect());
        Ok(texts)
    }

    fn watched(&self) -> WatchedPaths {
        let mut walk = Walk::new(Selection::RuleFiles, WatchedPaths::new());
        for path in &self.paths {
            walk.visitor.add_path(path);
            walk.walk_required(path);
        }
        for path in self.row_files.get() {
            walk.visitor.add_path(&path);
        }
        // Loading reports the faults.
        walk.finish().0
    }
}
