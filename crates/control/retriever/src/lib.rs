//! Reads the snapshots of a control plane on a beat: verifies each, hands it on, and keeps the last good one on disk.
//!
//! The same work is done on every beat, whatever changed: read the whole file, verify, hand on. While the source cannot
//! be reached or its file is wrong, the kept copy is read instead, so that failure costs what success costs, and nothing
//! is tried again before the next beat. A node starts from the kept copy, without control plane and network.
//!
//! ```no_run
//! use tidegate_retriever::{JoinFile, Retriever, RetrieverSettings};
//!
//! let join = JoinFile::read("join.json".as_ref())?;
//! let settings = RetrieverSettings::new(join, "/var/lib/my-service/control", "node-1");
//! let retriever = Retriever::start(settings, |snapshot| {
//!     // Compile `snapshot.content.rules` with `tidegate_rules::compile_with_rows`, and install them.
//!     println!("version {} with {} rows", snapshot.head.stamp.version, snapshot.head.rows);
//!     Ok(())
//! })?;
//! println!("{:?}", retriever.handle().status().age);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`JoinFile`] names the source: the URL of a control plane, or a directory that it writes to. Knows nothing of
//! rules: whoever starts it compiles them. A snapshot that is refused there is not kept.

mod fetch;
mod join;
mod kept_copy;
mod metrics;
mod schedule;
mod status;
mod worker;

pub use join::{JoinError, JoinFile};
pub use metrics::RETRIEVER_METRICS;
pub use status::{BeatOutcome, Origin, RetrieverHandle, RetrieverStatus, RunningSnapshot};
pub use tidegate_snapshot_file::{
    DocumentText, SnapshotContent, SwitchSetting, SwitchTarget, Trust, VerifiedSnapshot,
};
pub use worker::{Retriever, RetrieverSettings, StartError};
