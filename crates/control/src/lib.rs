//! Rule delivery: from where rules are kept to the texts that are compiled.
//!
//! A [`RuleSource`] gives rule files as texts; [`FileSource`] reads them from
//! files and directories, [`RuntimeSource`] from the layout of
//! envoyproxy/ratelimit. A [`RuleWatch`] notices changes and publishes each good
//! [`Snapshot`](tidegate_rules::Snapshot). Another document, with the files that it names, is
//! kept fresh in the same way ([`DocumentSource`]). The rule language is the work of
//! `tidegate-rules`, using rules that of the engine, which this crate does not know.

mod source;
mod watch;

pub use source::document::{DocumentSource, NamedFiles};
pub use source::file::FileSource;
pub use source::places::Watched;
pub use source::reading::{BYTES_MAX, FILES_MAX};
pub use source::runtime::{DotFiles, RuntimeChanges, RuntimeSource};
pub use source::walk::{DEPTH_MAX, ENTRIES_MAX, FAULTS_MAX};
pub use source::{Cause, Fault, LoadError, RuleSource};
pub use watch::notice::WATCHES_MAX;
pub use watch::status::{ActiveRules, ReloadError, ReloadFailure, RuleStatus, Ticket, WatchEvent};
pub use watch::timing::{Noticing, WatchSettings};
pub use watch::{RuleWatch, RuleWatchBuilder, WatchHandle};
