//! Rules from files and directories.
//!
//! A path that is a file is read whatever it is called; of a directory, the
//! rule files in it and below it. Names that begin with a dot are skipped
//! there: editors leave such files, and Kubernetes keeps the real contents of a
//! mounted volume in `..data` beside links to them. Links are followed, and
//! a file that is reached twice is read once.
//!
//! Reads once, when asked. Noticing that files have changed is not here.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use tidegate_rules::{SOURCE_BYTES_MAX, Source};

use super::{Cause, Fault, LoadError, RuleSource};

/// The most rule files of one source.
pub const FILES_MAX: usize = 10_000;
/// The most bytes of all rule files together: they are held in memory at once.
pub const BYTES_MAX: usize = 256 * 1024 * 1024;
/// How many levels of directories are followed: rules are sorted by hand, and
/// nobody sorts deeper than this.
pub const DEPTH_MAX: usize = 16;
/// The most directory entries that are looked at, rule files or not. Somebody
/// who gives `/` by mistake should be told soon.
pub const ENTRIES_MAX: usize = 100_000;
/// The most faults that one error lists.
pub const FAULTS_MAX: usize = 100;

/// What Unix systems say of a link that leads to itself (`ELOOP`).
#[cfg(target_os = "linux")]
pub(super) const TOO_MANY_LINKS: i32 = 40;
#[cfg(not(target_os = "linux"))]
pub(super) const TOO_MANY_LINKS: i32 = 62;

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

impl RuleSource for FileSource {
    fn load(&self) -> Result<Vec<Source>, LoadError> {
        let mut reading = Reading::default();
        for path in &self.paths {
            reading.given(path);
        }
        if reading.faults.is_empty() {
            Ok(reading.sources)
        } else {
            Err(LoadError::new(reading.faults))
        }
    }
}

/// Whether a directory's entry of this name is taken for a rule file.
fn is_rule_file_name(name: &OsStr) -> bool {
    let extension = Path::new(name).extension();
    let yaml = extension.is_some_and(|extension| extension == "yaml" || extension == "yml");
    yaml && !is_hidden(name)
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// What one load has come to so far.
#[derive(Debug, Default)]
struct Reading {
    sources: Vec<Source>,
    faults: Vec<Fault>,
    /// The files behind the paths, so that none is read twice.
    seen: HashSet<PathBuf>,
    bytes: usize,
    entries: usize,
    /// A maximum was reached: nothing more is looked at.
    stopped: bool,
}

impl Reading {
    /// Reads a path that somebody gave.
    fn given(&mut self, path: &Path) {
        if self.stopped {
            return;
        }
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let (files, faults) = (self.seen.len(), self.faults.len());
                self.directory(path, &mut Vec::new());
                if self.seen.len() == files && self.faults.len() == faults && !self.knows(path) {
                    self.fault(path, Cause::NoRuleFiles);
                }
            }
            Ok(_) => self.file(path),
            Err(error) => self.fault(path, error.into()),
        }
    }

    /// Reads the rule files in a directory and below it; `above` are the
    /// directories that led here.
    // Recursion ends at DEPTH_MAX.
    fn directory(&mut self, path: &Path, above: &mut Vec<PathBuf>) {
        if above.len() >= DEPTH_MAX {
            return self.fault(path, Cause::TooDeep);
        }
        let place = match path.canonicalize() {
            Ok(place) if above.contains(&place) => return self.fault(path, Cause::Loop),
            Ok(place) => place,
            Err(error) => return self.fault(path, error.into()),
        };
        let entries = match self.entries(path) {
            Ok(entries) => entries,
            Err(cause) => return self.fault(path, cause),
        };
        above.push(place);
        for entry in entries {
            self.entry(&entry, above);
        }
        above.pop();
    }

    /// The entries of a directory that are not hidden, sorted by name.
    fn entries(&mut self, path: &Path) -> Result<Vec<PathBuf>, Cause> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name();
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                return Err(Cause::TooManyEntries);
            }
            if !is_hidden(&name) {
                entries.push(path.join(name));
            }
        }
        entries.sort_unstable();
        Ok(entries)
    }

    fn entry(&mut self, path: &Path, above: &mut Vec<PathBuf>) {
        if self.stopped {
            return;
        }
        let rule_file = path.file_name().is_some_and(is_rule_file_name);
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.directory(path, above),
            // A pipe would keep the reader waiting for ever.
            Ok(metadata) if rule_file && !metadata.is_file() => self.fault(path, Cause::NotAFile),
            Ok(_) if rule_file => self.file(path),
            Err(error) if rule_file => self.fault(path, error.into()),
            // Nobody asked for this one.
            Ok(_) | Err(_) => {}
        }
    }

    fn file(&mut self, path: &Path) {
        // What has no place of its own, such as a shell's pipe, is read as it is.
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if !self.seen.insert(place) {
            return;
        }
        if self.sources.len() >= FILES_MAX {
            return self.fault(path, Cause::TooManyFiles);
        }
        match read(path) {
            Ok(text) if self.bytes.saturating_add(text.len()) > BYTES_MAX => {
                self.fault(path, Cause::TooLargeTogether);
            }
            Ok(text) => {
                self.bytes += text.len();
                self.sources.push(Source::new(path.to_string_lossy(), text));
            }
            Err(cause) => self.fault(path, cause),
        }
    }

    /// Whether a file under this directory was read already.
    fn knows(&self, path: &Path) -> bool {
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.seen.iter().any(|file| file.starts_with(&place))
    }

    fn fault(&mut self, path: &Path, cause: Cause) {
        let maximum =
            matches!(cause, Cause::TooLargeTogether | Cause::TooManyFiles | Cause::TooManyEntries);
        self.faults.push(Fault { place: path.to_string_lossy().into_owned(), cause });
        self.stopped = maximum || self.faults.len() >= FAULTS_MAX;
    }
}

fn read(path: &Path) -> Result<String, Cause> {
    let file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    // The size is not asked for: it may change, and pipes have none.
    file.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > SOURCE_BYTES_MAX {
        return Err(Cause::TooLarge);
    }
    String::from_utf8(bytes)
        .map_err(|error| Cause::NotUtf8 { offset: error.utf8_error().valid_up_to() })
}
