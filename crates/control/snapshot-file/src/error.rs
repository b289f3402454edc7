//! Why a file is refused, or cannot be written.

use std::io;

use tidegate_row_table::TableFault;

use crate::class::CellClass;
use crate::head::FORMAT;

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The source failed.
    #[error("the snapshot cannot be read: {0}")]
    Unreadable(io::Error),
    /// It is shorter or longer than its class says.
    #[error(
        "the file does not have the {expected} bytes of a {class} cell; it was cut, or is still being written"
    )]
    Size {
        /// The class.
        class: CellClass,
        /// The bytes that such a file has.
        expected: usize,
    },
    /// It does not begin like a snapshot.
    #[error("this is no snapshot file")]
    NoSnapshot,
    /// A later version of Tidegate wrote it.
    #[error(
        "the file has format {found}, and this version of Tidegate reads format {FORMAT}; upgrade Tidegate"
    )]
    Format {
        /// The format.
        found: u16,
    },
    /// The signature is not by a trusted key.
    #[error(
        "the signature is not by a trusted key; compare the public keys in the join file and at the control plane"
    )]
    Signature,
    /// The epoch is new, and no certificate of the epoch key allows it.
    #[error("epoch {found} has no certificate by the epoch key (the last was {last})")]
    Epoch {
        /// The epoch of the file.
        found: u64,
        /// The last epoch that was accepted.
        last: u64,
    },
    /// It is for another cell.
    #[error("the file is for cell `{found}`, this node is of cell `{expected}`")]
    Cell {
        /// The file's.
        found: String,
        /// The node's.
        expected: String,
    },
    /// It is for another ring.
    #[error("the file is for ring `{found}`, this node is in ring `{expected}`")]
    Ring {
        /// The file's.
        found: String,
        /// The node's.
        expected: String,
    },
    /// It is older than what was accepted, or another file with the same sequence number.
    #[error(
        "epoch {epoch}, sequence {sequence} is not after the last accepted: {last_epoch}, {last_sequence}"
    )]
    Older {
        /// The epoch of the file.
        epoch: u64,
        /// Its sequence.
        sequence: u64,
        /// The last epoch.
        last_epoch: u64,
        /// The last sequence.
        last_sequence: u64,
    },
    /// Bytes of a part are not those that were signed.
    #[error("the part `{part}` is damaged")]
    Hash {
        /// The part.
        part: &'static str,
    },
    /// A part is intact and signed, but not as this version understands it.
    #[error("the part `{part}` cannot be used: {detail}")]
    Content {
        /// The part.
        part: &'static str,
        /// What is wrong.
        detail: String,
    },
}

impl SnapshotError {
    /// The reason in one word, for metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            SnapshotError::Unreadable(_) => "unreachable",
            SnapshotError::Size { .. } => "size",
            SnapshotError::NoSnapshot | SnapshotError::Format { .. } => "format",
            SnapshotError::Signature | SnapshotError::Epoch { .. } => "signature",
            SnapshotError::Cell { .. } | SnapshotError::Ring { .. } => "cell",
            SnapshotError::Older { .. } => "older",
            SnapshotError::Hash { .. } => "hash",
            SnapshotError::Content { .. } => "content",
        }
    }
}

/// Why a file cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A part is larger than the class allows.
    #[error(
        "the part `{part}` has {bytes} bytes, and a {class} cell holds {max}; use a larger class, or remove some"
    )]
    PartTooLarge {
        /// The part.
        part: &'static str,
        /// Its bytes.
        bytes: usize,
        /// The class.
        class: CellClass,
        /// The most bytes.
        max: usize,
    },
    /// The table is not made for the class.
    #[error("the table has {lines} lines, and a {class} cell has {expected}")]
    TableSize {
        /// The lines of the table.
        lines: usize,
        /// The class.
        class: CellClass,
        /// The lines that it should have.
        expected: usize,
    },
    /// A row has terms that are not in the list, or an end that is none.
    #[error("a row is wrong: {0}")]
    Row(#[from] TableFault),
    /// The name of a cell or a ring does not fit.
    #[error("`{name}` is no name of a {what}: it has 1 to {max} bytes", max = crate::NAME_BYTES_MAX)]
    Name {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },
}
