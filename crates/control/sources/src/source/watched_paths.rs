//! The directories to watch, so that no change of texts is missed.
//!
//! Only directories, never files: a watch on a file follows its inode and ends with the first
//! rename over it. For every path that is a rule file or leads to one, these are the directories
//! that hold
//!
//! - the rule file itself,
//! - every symbolic link on the way to it, since deployments swap links,
//! - the first missing part of the path, if one is missing.
//!
//! The slow poll finds the rename of a directory further up: watching all directories up to the
//! root would wake for unrelated changes of the machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};

use super::walk::Visitor;

/// The most links on the way to one path, the limit of the system.
const LINKS_MAX: usize = 40;

/// The directories and entries where a change of a source's texts shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedPaths {
    directories: BTreeMap<PathBuf, Names>,
    mark: Option<String>,
}

/// The names in a directory that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    Only(BTreeSet<OsString>),
}

impl WatchedPaths {
    /// Nothing to watch: only polling finds changes.
    pub fn new() -> Self {
        WatchedPaths::default()
    }

    /// Adds a directory in which every entry matters.
    pub fn add_directory(&mut self, path: impl Into<PathBuf>) {
        self.directories.insert(path.into(), Names::All);
    }

    /// Adds one entry of a directory.
    pub fn add_entry(&mut self, directory: impl Into<PathBuf>, name: impl Into<OsString>) {
        let names = self.directories.entry(directory.into());
        if let Names::Only(names) = names.or_insert_with(|| Names::Only(BTreeSet::new())) {
            names.insert(name.into());
        }
    }

    /// Makes the poll read the texts only when this mark has changed since they
    /// were read. Without a mark the poll reads them every time.
    #[must_use]
    pub fn with_mark(mut self, mark: impl Into<String>) -> Self {
        self.mark = Some(mark.into());
        self
    }

    /// The directories to watch, not recursively.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.keys().map(PathBuf::as_path)
    }

    /// The mark that has to change before the poll reads the texts.
    pub fn mark(&self) -> Option<&str> {
        self.mark.as_deref()
    }

    /// Whether a change of this path may be a change of texts.
    pub fn concerns(&self, path: &Path) -> bool {
        if self.directories.contains_key(path) {
            return true;
        }
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return false;
        };
        match self.directories.get(directory) {
            Some(Names::All) => true,
            Some(Names::Only(names)) => names.contains(name),
            None => false,
        }
    }

    /// Whether this directory or one below it is watched.
    pub(crate) fn has_below(&self, path: &Path) -> bool {
        // Paths sort by their parts, so the first path below follows directly.
        let from_path = (Bound::Included(path), Bound::Unbounded);
        let next = self.directories.range::<Path, _>(from_path).next();
        next.is_some_and(|(directory, _)| directory.starts_with(path))
    }
}

impl WatchedPaths {
    /// Adds what a path depends on: the links on the way, and its end or first missing part.
    pub(super) fn add_path(&mut self, path: &Path) {
        // Fails only for an empty path or a missing working directory.
        let Ok(path) = std::path::absolute(path) else { return };
        let mut current = PathBuf::new();
        let mut rest: VecDeque<OsString> = parts(&path).collect();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                current.pop();
                continue;
            }
            let next = current.join(&part);
            let Ok(metadata) = fs::symlink_metadata(&next) else {
                self.add_entry(current, part);
                return;
            };
            if metadata.is_symlink() {
                self.add_entry(&current, &part);
                links += 1;
                let Ok(target) = fs::read_link(&next) else { return };
                if links > LINKS_MAX {
                    return;
                }
                for part in parts(&target).rev() {
                    rest.push_front(part);
                }
                continue;
            }
            // The root is in no directory.
            if rest.is_empty() && current.has_root() {
                self.add_entry(&current, &part);
            }
            current = next;
        }
    }
}

/// The parts of a path, the root being one.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.map(|part| part.as_os_str().to_owned())
}

/// Collects the paths to watch during a walk.
impl Visitor for WatchedPaths {
    fn directory(&mut self, path: &Path) {
        self.add_directory(path);
    }

    fn link(&mut self, path: &Path) {
        self.add_path(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> WatchedPaths {
        let mut watched = WatchedPaths::new();
        watched.add_directory("/rules/inner");
        watched.add_entry("/rules", "a.yaml");
        watched
    }

    #[test]
    fn a_change_matters_where_the_directory_or_the_name_is_watched() {
        let watched = watched();
        for path in ["/rules/inner/x", "/rules/inner/..data", "/rules/a.yaml", "/rules"] {
            assert!(watched.concerns(Path::new(path)), "{path}");
        }
        for path in ["/rules/b.yaml", "/rules/inner/deep/x", "/", ""] {
            assert!(!watched.concerns(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn one_name_of_a_directory_does_not_narrow_what_all_of_it_is_watched_for() {
        let mut watched = watched();
        watched.add_entry("/rules/inner", "a.yaml");
        assert!(watched.concerns(Path::new("/rules/inner/b.yaml")));
    }

    #[test]
    fn directories_below_a_path_are_found() {
        let watched = watched();
        for path in ["/", "/rules", "/rules/inner"] {
            assert!(watched.has_below(Path::new(path)), "{path}");
        }
        for path in ["/rules/a.yaml", "/rules/inner/deep", "/rul", "/z"] {
            assert!(!watched.has_below(Path::new(path)), "{path}");
        }
    }
}
