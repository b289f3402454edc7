//! Sources of texts, and the errors of loading them.

pub(crate) mod document;
pub(crate) mod file;
pub(crate) mod reader;
pub(crate) mod runtime;
pub(crate) mod walk;
pub(crate) mod watched_paths;

use std::io;

use tidegate_rules::{SOURCE_BYTES_MAX, Source};

use reader::{BYTES_MAX, FILES_MAX};
use walk::{DEPTH_MAX, ENTRIES_MAX};
use watched_paths::WatchedPaths;

/// `ELOOP`: a symbolic link that leads to itself.
#[cfg(target_os = "linux")]
const TOO_MANY_LINKS: i32 = 40;
#[cfg(not(target_os = "linux"))]
const TOO_MANY_LINKS: i32 = 62;

/// A source of texts: rules, or another document.
pub trait TextSource {
    /// Loads all texts, in a stable order.
    ///
    /// # Errors
    /// When any text cannot be read. Half of the rules would admit what the other half refuses.
    fn load(&self) -> Result<Vec<Source>, LoadError>;

    /// The paths to watch for changes. None by default: then only polling finds changes.
    fn watched(&self) -> WatchedPaths {
        WatchedPaths::new()
    }
}

/// All faults that prevented a load.
#[derive(Debug, thiserror::Error)]
#[error("{}", .faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("; "))]
pub struct LoadError {
    pub(crate) faults: Vec<Fault>,
}

impl LoadError {
    /// An error of a source of one's own.
    pub fn new(faults: Vec<Fault>) -> Self {
        LoadError { faults }
    }

    /// The faults, at least one.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The faults, owned.
    pub fn into_faults(self) -> Vec<Fault> {
        self.faults
    }
}

/// A path that cannot be read, and why.
#[derive(Debug, thiserror::Error)]
#[error("`{place}` {cause}")]
pub struct Fault {
    /// The path, as given or found.
    pub place: String,
    /// Why it cannot be read.
    pub cause: Cause,
}

/// Why a path cannot be read, as the end of a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// Nothing is there.
    #[error("does not exist")]
    Missing,
    /// It may not be read.
    #[error("may not be read")]
    NotPermitted,
    /// It is neither a file nor a directory.
    #[error("is neither a file nor a directory")]
    NotAFile,
    /// It is no text.
    #[error("is not UTF-8 text: the byte at offset {offset} is the first that is not")]
    NotUtf8 {
        /// Where the text ends.
        offset: usize,
    },
    /// One file is too large.
    #[error("is larger than {SOURCE_BYTES_MAX} bytes")]
    TooLarge,
    /// The files are too large together.
    #[error("is one too many: rule files may have {BYTES_MAX} bytes together")]
    TooLargeTogether,
    /// There are too many files.
    #[error("is one too many: there may be {FILES_MAX} rule files")]
    TooManyFiles,
    /// There is too much to look at.
    #[error("has too much in it: only {ENTRIES_MAX} directory entries are looked at")]
    TooManyEntries,
    /// Directories are nested too deeply.
    #[error("is too deep: directories are followed {DEPTH_MAX} levels down")]
    TooDeep,
    /// A symbolic link leads back to where it came from.
    #[error("leads back to itself")]
    Loop,
    /// A directory without rule files.
    #[error("holds no rule files")]
    NoRuleFiles,
    /// Any other error of the system.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
}

impl Cause {
    /// What to do about it.
    pub const fn help(&self) -> &'static str {
        match self {
            Cause::Missing => "check the spelling, and the directory that you are in",
            Cause::NotPermitted => "give this user the right to read it",
            Cause::NotAFile => "give a rule file, or a directory that holds some",
            Cause::NotUtf8 { .. } => "save it as UTF-8; a rule file is YAML text",
            Cause::TooLarge => "split it: several files may add to one domain",
            Cause::TooLargeTogether | Cause::TooManyFiles | Cause::TooManyEntries => {
                "give only the directories that hold rules"
            }
            Cause::TooDeep => "move the rule files further up, or give the inner directory",
            Cause::Loop => "remove the symbolic link that makes the loop",
            Cause::NoRuleFiles => {
                "rule files end in `.yaml` or `.yml`; names that begin with a dot are skipped"
            }
            Cause::Unreadable(_) => "see that it can be read, then try again",
        }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Cause::Missing,
            io::ErrorKind::PermissionDenied => Cause::NotPermitted,
            // Not `ErrorKind::FilesystemLoop`: that name is not stable yet.
            _ if error.raw_os_error() == Some(TOO_MANY_LINKS) => Cause::Loop,
            _ => Cause::Unreadable(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_told_apart_from_a_missing_file() {
        let denied = Cause::from(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(denied.to_string(), "may not be read");
        assert_eq!(denied.help(), "give this user the right to read it");
        let missing = Cause::from(io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(missing.to_string(), "does not exist");
    }

    #[test]
    fn an_error_says_everything_that_is_in_the_way() {
        let fault = |place: &str, cause| Fault { place: place.to_owned(), cause };
        let error =
            LoadError { faults: vec![fault("a", Cause::Missing), fault("b", Cause::TooLarge)] };
        let text = error.to_string();
        assert_eq!(text, "`a` does not exist; `b` is larger than 16777216 bytes");
    }
}
