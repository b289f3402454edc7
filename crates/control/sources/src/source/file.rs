//! Rules from files and directories.
//!
//! A file is read whatever its name. Of a directory, the rule files in it and below it are
//! read. Names that begin with a dot are skipped there: editors leave such files, and Kubernetes
//! keeps the contents of a mounted volume in `..data` beside links to them. Links are followed,
//! and a file that is reached twice is read once.

use std::path::PathBuf;

use tidegate_rules::Source;

use super::reader::{self, Reader, SourceNames};
use super::walk::{Selection, Walk};
use super::watched_paths::WatchedPaths;
use super::{LoadError, TextSource};

/// Rules from files and directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSource {
    paths: Vec<PathBuf>,
}

impl FileSource {
    /// A source of these files and directories, in this order.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        FileSource { paths: paths.into_iter().map(Into::into).collect() }
    }
}

impl TextSource for FileSource {
    fn load(&self) -> Result<Vec<Source>, LoadError> {
        let mut walk = Walk::new(Selection::RuleFiles, Reader::new(SourceNames::Path));
        for path in &self.paths {
            walk.walk_required(path);
        }
        reader::texts(walk)
    }

    fn watched(&self) -> WatchedPaths {
        let mut walk = Walk::new(Selection::RuleFiles, WatchedPaths::new());
        for path in &self.paths {
            walk.visitor.add_path(path);
            walk.walk_required(path);
        }
        // Loading reports the faults.
        walk.finish().0
    }
}
