//! Walks through files and directories to the rule files.
//!
//! Sorted by name, links followed, bounded in depth and in number. One visitor reads the files, another lists the paths to
//! watch; sharing the walk makes sure that both see the same files.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Cause, Fault};

/// How many levels of directories are followed: people sort rules by hand, and not deeper than this.
pub const DEPTH_MAX: usize = 16;
/// The maximum of directory entries, rule files or not, so that `/` given by mistake fails soon.
pub const ENTRIES_MAX: usize = 100_000;
/// The maximum of faults that one error lists.
pub const FAULTS_MAX: usize = 100;

/// Handles the entries of a walk.
pub(super) trait Visitor {
    /// A directory that the walk enters, by its real path.
    fn directory(&mut self, _path: &Path) {}

    /// A symbolic link in a directory, whatever its target is.
    fn link(&mut self, _path: &Path) {}

    /// A rule file.
    fn file(&mut self, _path: &Path) -> Result<(), Cause> {
        Ok(())
    }
}

/// Which entries of a directory count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// Names that end in `.yaml` or `.yml` and do not begin with a dot.
    RuleFiles,
    /// Every name that does not begin with a dot.
    Visible,
    /// Every name that does not begin with two dots: Kubernetes keeps the files of a mounted volume under such names, and
    /// links beside them lead there.
    Everything,
}

impl Selection {
    fn skips(self, name: &OsStr) -> bool {
        let hidden: &[u8] = match self {
            Selection::RuleFiles | Selection::Visible => b".",
            Selection::Everything => b"..",
        };
        name.as_encoded_bytes().starts_with(hidden)
    }

    /// Whether an entry of this name, which is not skipped, is taken for a rule file.
    fn takes_for_rules(self, name: &OsStr) -> bool {
        let extension = Path::new(name).extension();
        match self {
            Selection::RuleFiles => {
                extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
            }
            Selection::Visible | Selection::Everything => true,
        }
    }
}

/// A walk in progress.
#[derive(Debug)]
pub(super) struct Walk<V> {
    pub(super) visitor: V,
    selection: Selection,
    faults: Vec<Fault>,
    /// Rule files that were reached; one that is reached twice counts twice.
    files: usize,
    entries: usize,
    /// A maximum was reached: the walk ends.
    stopped: bool,
}

impl<V: Visitor> Walk<V> {
    pub(super) fn new(selection: Selection, visitor: V) -> Self {
        Walk { visitor, selection, faults: Vec::new(), files: 0, entries: 0, stopped: false }
    }

    /// Walks from a configured path; it must have rules.
    pub(super) fn walk_required(&mut self, path: &Path) {
        let (files, faults) = (self.files, self.faults.len());
        self.walk_from(path);
        if !self.stopped && self.files == files && self.faults.len() == faults {
            self.fault(path, Cause::NoRuleFiles);
        }
    }

    /// Walks from a configured path; a directory may be empty.
    pub(super) fn walk_from(&mut self, path: &Path) {
        if self.stopped {
            return;
        }
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.directory(path, &mut Vec::new()),
            Ok(_) => self.file(path),
            Err(error) => self.fault(path, error.into()),
        }
    }

    /// The visitor, and all faults.
    pub(super) fn finish(self) -> (V, Vec<Fault>) {
        (self.visitor, self.faults)
    }

    /// Walks through a directory; `above` are the directories that led here.
    // Recursion ends at DEPTH_MAX.
    fn directory(&mut self, path: &Path, above: &mut Vec<PathBuf>) {
        if above.len() >= DEPTH_MAX {
            return self.fault(path, Cause::TooDeep);
        }
        let target = match path.canonicalize() {
            Ok(target) if above.contains(&target) => return self.fault(path, Cause::Loop),
            Ok(target) => target,
            Err(error) => return self.fault(path, error.into()),
        };
        self.visitor.directory(&target);
        let entries = match self.entries(path) {
            Ok(entries) => entries,
            Err(cause) => return self.fault(path, cause),
        };
        above.push(target);
        for (entry, is_link) in entries {
            if is_link {
                self.visitor.link(&entry);
            }
            self.entry(&entry, above);
        }
        above.pop();
    }

    /// The entries of a directory that are not skipped, sorted by name, and
    /// whether each is a link.
    fn entries(&mut self, path: &Path) -> Result<Vec<(PathBuf, bool)>, Cause> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                return Err(Cause::TooManyEntries);
            }
            if !self.selection.skips(&name) {
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                entries.push((path.join(name), is_link));
            }
        }
        entries.sort_unstable();
        Ok(entries)
    }

    fn entry(&mut self, path: &Path, above: &mut Vec<PathBuf>) {
        if self.stopped {
            return;
        }
        let rule_file = path.file_name().is_some_and(|name| self.selection.takes_for_rules(name));
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.directory(path, above),
            // Reading a pipe would block.
            Ok(metadata) if rule_file && !metadata.is_file() => self.fault(path, Cause::NotAFile),
            Ok(_) if rule_file => self.file(path),
            Err(error) if rule_file => self.fault(path, error.into()),
            // Not a rule file.
            Ok(_) | Err(_) => {}
        }
    }

    fn file(&mut self, path: &Path) {
        self.files += 1;
        if let Err(cause) = self.visitor.file(path) {
            self.fault(path, cause);
        }
    }

    fn fault(&mut self, path: &Path, cause: Cause) {
        let maximum =
            matches!(cause, Cause::TooLargeTogether | Cause::TooManyFiles | Cause::TooManyEntries);
        self.faults.push(Fault { place: path.to_string_lossy().into_owned(), cause });
        self.stopped = maximum || self.faults.len() >= FAULTS_MAX;
    }
}
