//! Rule delivery: from where rules are kept to the texts that are compiled.
//!
//! A [`TextSource`] gives texts: [`FileSource`] rules from files and directories,
//! [`RuntimeSource`] rules from the layout of envoyproxy/ratelimit, [`DocumentSource`] another
//! document with the files that it names. A [`Watch`] notices changes of any of them; it publishes
//! each good [`Snapshot`](tidegate_rules::Snapshot) of rules, and gives another document to
//! whoever reads it. The rule language is the work of
//! `tidegate-rules`, using rules that of the engine, which this crate does not know.

mod source;
mod watch;

pub use source::document::{DocumentSource, NamedFiles};
pub use source::file::FileSource;
pub use source::places::Watched;
pub use source::reading::{BYTES_MAX, FILES_MAX};
pub use source::runtime::{DotFiles, RuntimeChanges, RuntimeSource};
pub use source::walk::{DEPTH_MAX, ENTRIES_MAX, FAULTS_MAX};
pub use source::{Cause, Fault, LoadError, TextSource};
pub use watch::notice::WATCHES_MAX;
pub use watch::status::{ActiveTexts, ReloadError, ReloadFailure, Ticket, WatchEvent, WatchStatus};
pub use watch::timing::{Noticing, WatchSettings};
pub use watch::{Watch, WatchBuilder, WatchHandle};
