//! Rules in the layout of envoyproxy/ratelimit: a runtime directory.
//!
//! Joins root, subdirectory and application directory; every file below is a rule file, whatever its name. Sources have
//! the names that upstream shows. Differences:
//!
//! - files are in the order of their names, not in a random one;
//! - names that begin with two dots are always skipped: a mounted volume keeps its files there, and upstream reads them a
//!   second time (envoyproxy/ratelimit#367);
//! - links to directories are followed;
//! - an unreadable file or a missing directory is an error, not a smaller set of rules.
//!
//! The crate `app` reads the environment variables.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_rules::Source;

use super::reader::{self, Reader, SourceNames};
use super::walk::{Selection, Walk};
use super::watched_paths::WatchedPaths;
use super::{LoadError, TextSource};

/// Rules in the layout of envoyproxy/ratelimit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSource {
    /// `RUNTIME_ROOT`: usually a symbolic link that is swapped as a whole.
    pub root: PathBuf,
    /// `RUNTIME_SUBDIRECTORY`, below the root; may be empty.
    pub subdirectory: PathBuf,
    /// `RUNTIME_APPDIRECTORY`, below the subdirectory; may be empty.
    pub app_directory: PathBuf,
    /// `RUNTIME_IGNOREDOTFILES`.
    pub dot_files: DotFiles,
    /// `RUNTIME_WATCH_ROOT`.
    pub changes: RuntimeChanges,
}

/// The treatment of names that begin with one dot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DotFiles {
    /// Read as rule files.
    #[default]
    Read,
    /// Skipped.
    Skip,
}

/// Which changes of a runtime directory count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuntimeChanges {
    /// Only a swap of the root; changes below it are read with the next swap.
    #[default]
    Root,
    /// Every change in the directory of the rules and below it.
    Directory,
}

impl RuntimeSource {
    /// The directory that holds the rules.
    pub fn directory(&self) -> PathBuf {
        below(&below(&self.root, &self.subdirectory), &self.app_directory)
    }

    const fn selection(&self) -> Selection {
        match self.dot_files {
            DotFiles::Read => Selection::Everything,
            DotFiles::Skip => Selection::Visible,
        }
    }

    /// The directory that names are relative to.
    fn top(&self) -> PathBuf {
        match self.changes {
            // Upstream reads the whole subdirectory and filters by application afterwards, so its
            // names include that part.
            RuntimeChanges::Root => below(&self.root, &self.subdirectory),
            RuntimeChanges::Directory => self.directory(),
        }
    }
}

impl TextSource for RuntimeSource {
    fn load(&self) -> Result<Vec<Source>, LoadError> {
        let reader = Reader::new(SourceNames::Dotted(self.top()));
        let mut walk = Walk::new(self.selection(), reader);
        walk.walk_from(&self.directory());
        reader::texts(walk)
    }

    fn watched(&self) -> WatchedPaths {
        let mut walk = Walk::new(self.selection(), WatchedPaths::new());
        match self.changes {
            RuntimeChanges::Root => {
                walk.visitor.add_path(&self.root);
                walk.finish().0.with_mark(mark(&self.root))
            }
            RuntimeChanges::Directory => {
                let directory = self.directory();
                walk.visitor.add_path(&directory);
                walk.walk_from(&directory);
                walk.finish().0
            }
        }
    }
}

/// A path below another. Unlike `join`, a leading slash does not lead out of it.
fn below(path: &Path, part: &Path) -> PathBuf {
    let mut joined = path.to_owned();
    // Joining an empty part would leave a slash at the end.
    for part in part.iter().filter(|part| *part != "/") {
        joined.push(part);
    }
    joined
}

/// Identifies the target of a path; changes when the path is swapped.
fn mark(path: &Path) -> String {
    let target = path.canonicalize().unwrap_or_default();
    let identity = fs::metadata(path).ok().and_then(|metadata| identity(&metadata));
    format!("{} {identity:?}", target.display())
}

/// Device and inode: differs when a file is replaced.
#[cfg(unix)]
pub(crate) fn identity(metadata: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

/// Not available on this system.
#[cfg(not(unix))]
pub(crate) fn identity(_metadata: &fs::Metadata) -> Option<(u64, u64)> {
    None
}
