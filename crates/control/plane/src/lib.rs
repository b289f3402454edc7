//! The control plane: limits of many clients in a database, changed through a service, published whole on a beat.
//!
//! - [`RulesDatabase`] keeps entries (documents, plans, clients, rows, switches, API keys) with their whole history, on
//!   SQLite or PostgreSQL: versions, drafts, restore, an audit that can be verified.
//! - [`RulesService`] is that database over HTTP, with tokens, roles and owners.
//! - [`Publisher`] writes a whole signed snapshot to a directory or an object store on every beat. Its guards refuse
//!   contents that look like an accident.
//!
//! Nodes never ask the database: they read the snapshots, and go on with the last one when everything here is gone.
//!
//! ```
//! use serde_json::json;
//! use tidegate_plane::{Author, Change, ChangeSet, EntryKey, EntryKind, RulesDatabase};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = tempfile::tempdir()?;
//! # let path = parent.path().join("data");
//! let database = RulesDatabase::open(&path).await?;
//! let row = EntryKey::new(EntryKind::Row, "acme").within("api/clients");
//! let change = Change::set(row.clone(), json!({"terms": "rate=500"}));
//! let set = ChangeSet::new(Author::named("ada"), "a new contract", vec![change]);
//! let applied = database.apply(set, 10_000, 0).await?;
//! assert_eq!((applied.version, applied.changed), (1, 1));
//! let found = database.entry(row, applied.version).await?.expect("it was set");
//! assert_eq!((found.set_by.as_str(), found.why.as_str()), ("ada", "a new contract"));
//! # Ok(())
//! # }
//! ```

mod cell;
mod change;
mod content;
mod database;
mod entry;
mod error;
mod keys;
mod publisher;
mod service;

pub use cell::CellSettings;
pub use change::{
    ApplyOutcome, Author, CHANGES_MAX, Change, ChangeAction, ChangeSet, ChangeView, Difference,
    Expectation, VersionView,
};
pub use content::{RuleTexts, TEXT_BYTES_MAX, check_rules, split_collection};
pub use database::{
    AuditCheck, AuditEvent, AuditRow, DIFFERENCES_MAX, Draft, DraftState, NODES_MAX, NodeReport,
    NodeView, PAGE_MAX, PageQuery, PublishPermit, ReviewNote, RulesDatabase, StoredToken,
    TERMS_MAX, TokenView, Totals,
};
pub use entry::{
    Entry, EntryKey, EntryKind, EntryView, NAME_BYTES_MAX, WHY_BYTES_MAX, show_time, switch_scope,
};
pub use error::{InputProblem, PlaneError};
pub use keys::{KeyFiles, NewKeys, back_up};
#[cfg(feature = "objects")]
pub use publisher::ObjectTarget;
pub use publisher::{
    BeatOutcome, Broadcast, BuiltContent, ContentCounts, DirectoryTarget, Guard, PUBLISHER_METRICS,
    Publisher, PublisherSettings, PublisherStatus, TargetError, TargetFuture, TargetStatus,
    TargetStore, check_growth,
};
pub use service::{ApiBody, OPENAPI, RulesService, new_token};
pub use tidegate_snapshot_file::{CellClass, EpochCertificate, KeyError, PublicKey, SigningKey};
