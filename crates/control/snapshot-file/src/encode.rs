//! Writes a file.

use crate::class::{CellClass, Part};
use crate::content::SnapshotContent;
use crate::error::EncodeError;
use crate::head::{Hash, Head, PartEntry, SIGNED_BYTES, Stamp, check_name, tail};
use crate::key::SigningKey;
use tidegate_row_table::BaseHour;

/// The parts of a file, to be signed for each ring. Made once for all rings that have the same content.
#[derive(Debug)]
pub struct EncodedContent {
    class: CellClass,
    rows: u64,
    hash_key: u64,
    base: BaseHour,
    parts: [PartEntry; 4],
    content_hash: Hash,
    /// All parts with the zeros between them.
    bytes: Vec<u8>,
}

impl EncodedContent {
    /// Encodes a content for a class.
    ///
    /// # Errors
    /// When it does not fit, or a row has terms that the list does not have.
    pub fn new(class: CellClass, content: &SnapshotContent) -> Result<Self, EncodeError> {
        let lines = content.table.capacity() / tidegate_row_table::ROWS_PER_LINE;
        if lines != class.lines() {
            return Err(EncodeError::TableSize { lines, class, expected: class.lines() });
        }
        let rows = content.table.check(content.rules.terms.len())? as u64;
        let mut parts = [PartEntry::default(); 4];
        let mut bytes = Vec::with_capacity(class.file_bytes());
        for part in Part::ALL {
            let start = bytes.len();
            match part {
                Part::Switches => write_json(&mut bytes, &content.switches),
                Part::Keys => bytes.extend_from_slice(content.keys.as_bytes()),
                Part::Rules => write_json(&mut bytes, &content.rules),
                Part::Tables => bytes.extend_from_slice(content.table.bytes()),
            }
            let (length, max) = (bytes.len() - start, class.part_bytes(part));
            if length > max {
                let part = part.name();
                return Err(EncodeError::PartTooLarge { part, bytes: length, class, max });
            }
            bytes.resize(start + max, 0);
            let hash = blake3::hash(bytes.get(start..).unwrap_or_default()).into();
            parts[part as usize] = PartEntry { length: length as u64, hash };
        }
        let (hash_key, base) = (content.table.hash_key(), content.table.base());
        let content_hash = content_hash(hash_key, base, &parts);
        Ok(EncodedContent { class, rows, hash_key, base, parts, content_hash, bytes })
    }

    /// The BLAKE3 of the content: equal contents have equal hashes.
    pub const fn content_hash(&self) -> [u8; 32] {
        self.content_hash
    }

    /// The number of rows.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// The file for a ring.
    ///
    /// # Errors
    /// When the name of the cell or the ring does not fit.
    pub fn sign(&self, stamp: &Stamp, key: &SigningKey) -> Result<Vec<u8>, EncodeError> {
        check_name("cell", &stamp.cell)?;
        check_name("ring", &stamp.ring)?;
        let head = Head {
            class: self.class,
            stamp: stamp.clone(),
            rows: self.rows,
            hash_key: self.hash_key,
            base: self.base,
            content_hash: self.content_hash,
            signer: key.public_key(),
            parts: self.parts,
        };
        let mut head = head.encode();
        let (signed, signature) = head.split_at_mut(SIGNED_BYTES);
        signature.copy_from_slice(&key.sign(signed));
        let mut file = Vec::with_capacity(self.class.file_bytes());
        file.extend_from_slice(&head);
        file.extend_from_slice(&self.bytes);
        file.extend_from_slice(&tail(stamp, &head));
        Ok(file)
    }
}

/// The hash of everything that the parts hold.
pub(crate) fn content_hash(hash_key: u64, base: BaseHour, parts: &[PartEntry; 4]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&hash_key.to_le_bytes()).update(&base.0.to_le_bytes());
    for part in parts {
        hasher.update(&part.length.to_le_bytes()).update(&part.hash);
    }
    hasher.finalize().into()
}

/// Cannot fail: the types have no maps with other keys than text, and a vector takes all bytes.
fn write_json(bytes: &mut Vec<u8>, value: &impl serde::Serialize) {
    let start = bytes.len();
    if serde_json::to_writer(&mut *bytes, value).is_err() {
        bytes.truncate(start);
    }
}
