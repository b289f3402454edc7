//! Loads rules and other documents from files, and watches the files for changes.
//!
//! A [`TextSource`] loads texts: [`FileSource`] rules from files and directories, [`RuntimeSource`] rules from the layout
//! of envoyproxy/ratelimit, [`DocumentSource`] another document with the files that it names. A [`Watch`] detects
//! changes; it compiles rules and publishes each valid [`Snapshot`](tidegate_rules::Snapshot), and passes another
//! document to a function. `tidegate-rules` reads the rules and the engine applies them; this crate does not depend on
//! the engine.
//!
//! ```
//! use tidegate_sources::{FileSource, TextSource};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! std::fs::write(directory.path().join("api.yaml"), "domain: api\ndescriptors: []\n")?;
//! let texts = FileSource::new([directory.path()]).load()?;
//! assert_eq!(texts.len(), 1);
//! # Ok(())
//! # }
//! ```

mod source;
mod watch;

pub use source::document::{DocumentSource, NamedFiles};
pub use source::file::FileSource;
pub use source::reader::{BYTES_MAX, FILES_MAX};
pub use source::runtime::{DotFiles, RuntimeChanges, RuntimeSource};
pub use source::walk::{DEPTH_MAX, ENTRIES_MAX, FAULTS_MAX};
pub use source::watched_paths::WatchedPaths;
pub use source::{Cause, Fault, LoadError, TextSource};
pub use watch::directory_watcher::WATCHES_MAX;
pub use watch::schedule::{ChangeDetection, WatchSettings};
pub use watch::status::{ActiveTexts, ReloadError, ReloadFailure, Ticket, WatchEvent, WatchStatus};
pub use watch::{Watch, WatchBuilder, WatchHandle};
