//! Rule delivery: from where rules are kept to the texts that are compiled.
//!
//! A [`RuleSource`] gives rule files as texts; [`FileSource`] reads them from
//! files and directories. Compiling the texts is the work of `tidegate-rules`,
//! using them that of the engine, which this crate does not know.

mod source;

pub use source::file::{BYTES_MAX, DEPTH_MAX, ENTRIES_MAX, FAULTS_MAX, FILES_MAX, FileSource};
pub use source::{Cause, Fault, LoadError, RuleSource};
