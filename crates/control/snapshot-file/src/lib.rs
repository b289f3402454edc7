//! The snapshot file: all settings of a cell in one signed file of fixed size.
//!
//! A publisher writes one file for each ring of nodes on every beat, whatever changed; nodes read it whole. The size
//! depends on the [`CellClass`] alone, so a full cell costs what an empty one costs. Every file has a new sequence
//! number, so that a publisher that stopped and a store that answers the same for ever are noticed.
//!
//! ```
//! use tidegate_row_table::{Rows, RowTable};
//! use tidegate_snapshot_file::{
//!     CellClass, DocumentText, EncodedContent, Freshness, RulesPart, SigningKey, SnapshotContent, Stamp, Trust, read,
//! };
//!
//! let class = CellClass::Small;
//! let rows = Rows::build(class.rows_max(), 7, &[])?;
//! let text = "domain: api\ndescriptors: []\n".to_owned();
//! let content = SnapshotContent {
//!     rules: RulesPart { documents: vec![DocumentText { name: "api.yaml".into(), text }], terms: rows.terms },
//!     table: rows.table,
//!     ..SnapshotContent::default()
//! };
//! let key = SigningKey::generate()?;
//! let stamp = Stamp { cell: "eu".into(), ring: "all".into(), epoch: 1, sequence: 1, ..Stamp::default() };
//! let file = EncodedContent::new(class, &content)?.sign(&stamp, &key)?;
//! assert_eq!(file.len(), class.file_bytes());
//!
//! let trust = Trust { cell: "eu".into(), keys: vec![key.public_key()], ..Trust::default() };
//! let snapshot = read(&mut file.as_slice(), &trust, None, None)?;
//! assert_eq!(snapshot.content.rules.documents[0].name, "api.yaml");
//! // The same file again is no news; an older one is refused.
//! let last = snapshot.position();
//! assert_eq!(read(&mut file.as_slice(), &trust, Some(&last), None)?.freshness, Freshness::Same);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//!
//! Little-endian, zero-filled, at offsets that the class decides:
//!
//! | Part | Small / medium / large | Holds |
//! |---|---|---|
//! | head | 4 KiB | what [`Head`] has, the length and BLAKE3 of every part, an Ed25519 signature of all before it |
//! | switches | 64 KiB | JSON: a list of [`SwitchSetting`] |
//! | keys | 64 KiB / 1 MiB / 4 MiB | the text of an API key file: lines of hash, name and plan |
//! | rules | 1 / 4 / 8 MiB | JSON: [`RulesPart`], the rule documents and the list of terms |
//! | tables | 160,000 / 1,600,000 / 16,000,000 bytes | the lines of a [`RowTable`](tidegate_row_table::RowTable) |
//! | tail | 64 bytes | epoch, sequence and the BLAKE3 of the head |
//!
//! A reader checks in this order: the head's format, the signature, cell and ring, epoch and sequence, each part's hash,
//! the tail, and that the file ends there; then it decodes the parts. It reads no byte beyond the size of the class
//! but one, and nothing of a file whose head it refuses. Whatever the bytes are, it reports an error or a snapshot that
//! a trusted key signed.
//!
//! An epoch counts histories: it grows when a database was restored or a key was stolen. Where [`Trust`] has an epoch key,
//! a higher epoch needs an [`EpochCertificate`], which also names the only key that signs in this epoch.
//!
//! Knows nothing of where files come from (`tidegate-retriever`) and what rules mean (`tidegate-rules`).

mod class;
mod content;
mod encode;
mod error;
mod head;
mod key;
mod read;

pub use class::CellClass;
pub use content::{DocumentText, RulesPart, SnapshotContent, SwitchSetting, SwitchTarget};
pub use encode::EncodedContent;
pub use error::{EncodeError, SnapshotError};
pub use head::{FORMAT, HEAD_BYTES, Head, NAME_BYTES_MAX, Stamp, content_hash_of};
pub use key::{EpochCertificate, KeyError, PublicKey, SigningKey};
pub use read::{Freshness, Position, Trust, VerifiedSnapshot, inspect, read};
