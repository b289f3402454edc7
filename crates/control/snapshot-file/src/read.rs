//! Reads a file, and trusts nothing in it that a trusted key has not signed.

use std::io::{self, Read};

use tidegate_row_table::{LineBuffer, RowTable};

use crate::class::{CellClass, Part};
use crate::content::SnapshotContent;
use crate::encode::content_hash;
use crate::error::SnapshotError;
use crate::head::{HEAD_BYTES, Head, SIGNED_BYTES, TAIL_BYTES, tail};
use crate::key::PublicKey;

/// Whom a node trusts, and which files are for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The cell of the node.
    pub cell: String,
    /// The ring of the node; files for any ring if not given.
    pub ring: Option<String>,
    /// The keys that may sign; two while one replaces the other.
    pub keys: Vec<PublicKey>,
    /// The key that certifies new epochs. Without it, a file of any higher epoch is accepted.
    pub epoch_key: Option<PublicKey>,
}

/// How far a node has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The epoch of the last accepted file.
    pub epoch: u64,
    /// Its sequence.
    pub sequence: u64,
    /// The only key that signs in this epoch, if a certificate says so.
    pub certified: Option<PublicKey>,
    /// The BLAKE3 of its head.
    pub head_hash: [u8; 32],
}

/// Whether a file is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It comes after the last one.
    Newer,
    /// It is the last one again.
    Same,
}

/// A file that was verified, decoded.
#[derive(Clone, Debug)]
pub struct VerifiedSnapshot {
    /// The head.
    pub head: Head,
    /// The settings.
    pub content: SnapshotContent,
    /// Whether it is new.
    pub freshness: Freshness,
    head_hash: [u8; 32],
}

impl VerifiedSnapshot {
    /// Where a node is that accepted this file.
    pub fn position(&self) -> Position {
        let stamp = &self.head.stamp;
        Position {
            epoch: stamp.epoch,
            sequence: stamp.sequence,
            certified: stamp.certificate.map(|_| self.head.signer),
            head_hash: self.head_hash,
        }
    }
}

/// Reads and verifies a whole file. `last` is what was accepted before; `spare` is memory for the table that nobody reads.
///
/// # Errors
/// When anything is not as it should be. The source is then read only as far as necessary.
pub fn read(
    source: &mut impl Read,
    trust: &Trust,
    last: Option<&Position>,
    spare: Option<LineBuffer>,
) -> Result<VerifiedSnapshot, SnapshotError> {
    let (bytes, head) = read_head(source)?;
    verify_signature(&bytes, &head, trust, last)?;
    verify_addressee(&head, trust)?;
    let freshness = verify_order(&bytes, &head, last)?;
    let content = read_content(source, &bytes, &head, spare)?;
    Ok(VerifiedSnapshot { head, content, freshness, head_hash: blake3::hash(&bytes).into() })
}

/// Reads a file without asking who signed it and for whom: for people who look at one. The hashes are checked.
///
/// # Errors
/// When it is damaged or no snapshot.
pub fn inspect(source: &mut impl Read) -> Result<VerifiedSnapshot, SnapshotError> {
    let (bytes, head) = read_head(source)?;
    let content = read_content(source, &bytes, &head, None)?;
    let head_hash = blake3::hash(&bytes).into();
    Ok(VerifiedSnapshot { head, content, freshness: Freshness::Newer, head_hash })
}

fn read_head(source: &mut impl Read) -> Result<([u8; HEAD_BYTES], Head), SnapshotError> {
    let mut bytes = [0; HEAD_BYTES];
    source.read_exact(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotError::NoSnapshot,
        _ => SnapshotError::Unreadable(error),
    })?;
    let head = Head::decode(&bytes)?;
    Ok((bytes, head))
}

fn verify_signature(
    bytes: &[u8; HEAD_BYTES],
    head: &Head,
    trust: &Trust,
    last: Option<&Position>,
) -> Result<(), SnapshotError> {
    let (signed, signature) = bytes.split_at(SIGNED_BYTES);
    let stamp = &head.stamp;
    let is_certified = trust.epoch_key.zip(stamp.certificate).is_some_and(|(by, certificate)| {
        certificate.is_valid(&by, &trust.cell, stamp.epoch, &head.signer)
    });
    let certified = last.filter(|last| last.epoch == stamp.epoch).and_then(|last| last.certified);
    let is_trusted = match certified {
        // A stolen key does not sign in an epoch that was begun because of that.
        Some(only) if trust.epoch_key.is_some() => head.signer == only,
        _ => is_certified || trust.keys.contains(&head.signer),
    };
    if !is_trusted || !head.signer.verifies(signed, signature) {
        return Err(SnapshotError::Signature);
    }
    match last {
        Some(last) if stamp.epoch > last.epoch && trust.epoch_key.is_some() && !is_certified => {
            Err(SnapshotError::Epoch { found: stamp.epoch, last: last.epoch })
        }
        _ => Ok(()),
    }
}

fn verify_addressee(head: &Head, trust: &Trust) -> Result<(), SnapshotError> {
    let stamp = &head.stamp;
    if stamp.cell != trust.cell {
        let (found, expected) = (stamp.cell.clone(), trust.cell.clone());
        return Err(SnapshotError::Cell { found, expected });
    }
    match &trust.ring {
        Some(ring) if stamp.ring != *ring => {
            Err(SnapshotError::Ring { found: stamp.ring.clone(), expected: ring.clone() })
        }
        _ => Ok(()),
    }
}

fn verify_order(
    bytes: &[u8; HEAD_BYTES],
    head: &Head,
    last: Option<&Position>,
) -> Result<Freshness, SnapshotError> {
    let Some(last) = last else { return Ok(Freshness::Newer) };
    let (epoch, sequence) = (head.stamp.epoch, head.stamp.sequence);
    let (last_epoch, last_sequence) = (last.epoch, last.sequence);
    if (epoch, sequence) > (last_epoch, last_sequence) {
        return Ok(Freshness::Newer);
    }
    let is_same = (epoch, sequence) == (last_epoch, last_sequence)
        && *blake3::hash(bytes).as_bytes() == last.head_hash;
    if is_same {
        return Ok(Freshness::Same);
    }
    Err(SnapshotError::Older { epoch, sequence, last_epoch, last_sequence })
}

/// Reads everything behind the head.
fn read_content(
    source: &mut impl Read,
    bytes: &[u8; HEAD_BYTES],
    head: &Head,
    spare: Option<LineBuffer>,
) -> Result<SnapshotContent, SnapshotError> {
    let class = head.class;
    let switches = read_part(source, head, Part::Switches)?;
    let keys = read_part(source, head, Part::Keys)?;
    let rules = read_part(source, head, Part::Rules)?;
    let spare = spare.filter(|spare| spare.lines() == class.lines());
    let mut lines = spare.unwrap_or_else(|| LineBuffer::of_lines(class.lines()));
    lines.fill(source).map_err(|error| read_error(error, class))?;
    verify_part(head, Part::Tables, lines.bytes())?;
    let mut found = [0; TAIL_BYTES];
    source.read_exact(&mut found).map_err(|error| read_error(error, class))?;
    if found != tail(&head.stamp, bytes) {
        return Err(SnapshotError::Hash { part: "tail" });
    }
    match source.read(&mut [0]) {
        Ok(0) => {}
        Ok(_) => return Err(SnapshotError::Size { class, expected: class.file_bytes() }),
        Err(error) => return Err(read_error(error, class)),
    }
    if content_hash(head.hash_key, head.base, &head.parts) != head.content_hash {
        return Err(SnapshotError::Hash { part: "content" });
    }
    let switches = decode_json(head, Part::Switches, &switches)?;
    let rules: crate::content::RulesPart = decode_json(head, Part::Rules, &rules)?;
    let keys = used(head, Part::Keys, &keys)?;
    let keys = std::str::from_utf8(keys).map_err(|error| fault(Part::Keys, &error))?.to_owned();
    let table = RowTable::new(lines, head.hash_key, head.base);
    let table = table.map_err(|error| fault(Part::Tables, &error))?;
    let rows = table.check(rules.terms.len()).map_err(|error| fault(Part::Tables, &error))?;
    if rows as u64 != head.rows {
        let detail = format!("it has {rows} rows, and the head says {}", head.rows);
        return Err(SnapshotError::Content { part: Part::Tables.name(), detail });
    }
    Ok(SnapshotContent { rules, keys, switches, table })
}

fn read_part(source: &mut impl Read, head: &Head, part: Part) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = vec![0; head.class.part_bytes(part)];
    source.read_exact(&mut bytes).map_err(|error| read_error(error, head.class))?;
    verify_part(head, part, &bytes)?;
    Ok(bytes)
}

fn verify_part(head: &Head, part: Part, bytes: &[u8]) -> Result<(), SnapshotError> {
    if *blake3::hash(bytes).as_bytes() == head.part(part).hash {
        return Ok(());
    }
    Err(SnapshotError::Hash { part: part.name() })
}

fn read_error(error: io::Error, class: CellClass) -> SnapshotError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotError::Size { class, expected: class.file_bytes() },
        _ => SnapshotError::Unreadable(error),
    }
}

/// The bytes of a part that are used.
fn used<'b>(head: &Head, part: Part, bytes: &'b [u8]) -> Result<&'b [u8], SnapshotError> {
    let length = usize::try_from(head.part(part).length).unwrap_or(usize::MAX);
    bytes.get(..length).ok_or_else(|| fault(part, &"it is longer than it can be"))
}

fn decode_json<T: serde::de::DeserializeOwned>(
    head: &Head,
    part: Part,
    bytes: &[u8],
) -> Result<T, SnapshotError> {
    serde_json::from_slice(used(head, part, bytes)?).map_err(|error| fault(part, &error))
}

fn fault(part: Part, detail: &impl ToString) -> SnapshotError {
    SnapshotError::Content { part: part.name(), detail: detail.to_string() }
}
