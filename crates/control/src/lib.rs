//! Rule delivery: from where rules are kept to the texts that are compiled.
//!
//! A [`RuleSource`] gives rule files as texts; [`FileSource`] reads them from
//! files and directories, [`RuntimeSource`] from the layout of
//! envoyproxy/ratelimit. Compiling the texts is the work of `tidegate-rules`,
//! using them that of the engine, which this crate does not know.

mod source;

pub use source::file::FileSource;
pub use source::places::Watched;
pub use source::reading::{BYTES_MAX, FILES_MAX};
pub use source::runtime::{DotFiles, RuntimeChanges, RuntimeSource};
pub use source::walk::{DEPTH_MAX, ENTRIES_MAX, FAULTS_MAX};
pub use source::{Cause, Fault, LoadError, RuleSource};
