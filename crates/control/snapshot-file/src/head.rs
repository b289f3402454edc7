//! The head of the file: what it is, for whom, and the hashes of its parts.

use tidegate_row_table::BaseHour;

use crate::class::{CellClass, Part};
use crate::error::{EncodeError, SnapshotError};
use crate::key::{EpochCertificate, PublicKey, SIGNATURE_BYTES};

/// The format that this version writes and reads.
pub const FORMAT: u16 = 1;
/// The bytes of the head.
pub const HEAD_BYTES: usize = 4096;
pub(crate) const TAIL_BYTES: usize = 64;
/// The most bytes of the name of a cell or a ring.
pub const NAME_BYTES_MAX: usize = 63;

/// The bytes that the signature covers.
pub(crate) const SIGNED_BYTES: usize = HEAD_BYTES - SIGNATURE_BYTES;
const MAGIC: [u8; 8] = *b"tidegate";
const TAIL_MAGIC: [u8; 8] = *b"etagedit";

/// The bytes of a BLAKE3 hash.
pub(crate) type Hash = [u8; 32];

/// What a publisher says of a file beside its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The cell.
    pub cell: String,
    /// The ring of nodes.
    pub ring: String,
    /// The number of the history; it grows when a person begins a new one.
    pub epoch: u64,
    /// The number of the beat in the epoch; it grows with every file, also when nothing changed.
    pub sequence: u64,
    /// The version of the content in the database.
    pub version: u64,
    /// The fence of the publisher's lease.
    pub fence: u64,
    /// When the file was made, in milliseconds since the epoch.
    pub published_at: u64,
    /// When its content was read from the database, in milliseconds since the epoch.
    pub content_at: u64,
    /// The time between two files, in milliseconds.
    pub beat_ms: u32,
    /// The hash of the newest entry of the audit log.
    pub audit_head: [u8; 32],
    /// The certificate of the epoch, if it was begun with one.
    pub certificate: Option<EpochCertificate>,
}

/// The head of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The class of the cell.
    pub class: CellClass,
    /// What the publisher says.
    pub stamp: Stamp,
    /// The number of rows.
    pub rows: u64,
    /// The number that the hashes of rows are seeded with.
    pub hash_key: u64,
    /// The hour from which the ends of rows are counted.
    pub base: BaseHour,
    /// The BLAKE3 of all parts: equal contents have equal hashes.
    pub content_hash: [u8; 32],
    /// The key that signed.
    pub signer: PublicKey,
    pub(crate) parts: [PartEntry; 4],
}

/// The length and the hash of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartEntry {
    /// The bytes that are used.
    pub(crate) length: u64,
    /// Of the whole part, with the zeros behind the bytes that are used.
    pub(crate) hash: Hash,
}

/// Writes fields one after another.
struct FieldWriter<'b> {
    bytes: &'b mut [u8],
    at: usize,
}

impl FieldWriter<'_> {
    fn put(&mut self, field: &[u8]) {
        if let Some(bytes) = self.bytes.get_mut(self.at..self.at + field.len()) {
            bytes.copy_from_slice(field);
        }
        self.at += field.len();
    }

    fn name(&mut self, name: &str) {
        let length = u8::try_from(name.len()).unwrap_or(0);
        let mut field = [0; NAME_BYTES_MAX + 1];
        field[0] = length;
        field[1..=usize::from(length)].copy_from_slice(name.as_bytes());
        self.put(&field);
    }
}

/// Reads fields one after another.
struct FieldReader<'b>(&'b [u8]);

impl FieldReader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *field
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn name(&mut self) -> Option<String> {
        let field: [u8; NAME_BYTES_MAX + 1] = self.take();
        let name = field.get(1..=usize::from(field[0]))?;
        String::from_utf8(name.to_vec()).ok().filter(|name| !name.is_empty())
    }
}

/// Checks the name of a cell or a ring.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), EncodeError> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(EncodeError::Name { what, name: name.to_owned() })
}

impl Head {
    /// The bytes of the head, without the signature.
    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let mut out = FieldWriter { bytes: &mut bytes, at: 0 };
        let stamp = &self.stamp;
        out.put(&MAGIC);
        out.put(&FORMAT.to_le_bytes());
        out.put(&[self.class.code(), u8::from(stamp.certificate.is_some()), 0, 0, 0, 0]);
        for number in [
            stamp.epoch,
            stamp.sequence,
            stamp.version,
            stamp.fence,
            stamp.published_at,
            stamp.content_at,
            self.rows,
            self.hash_key,
        ] {
            out.put(&number.to_le_bytes());
        }
        out.put(&stamp.beat_ms.to_le_bytes());
        out.put(&self.base.0.to_le_bytes());
        out.put(&self.content_hash);
        out.put(&stamp.audit_head);
        for part in &self.parts {
            out.put(&part.length.to_le_bytes());
            out.put(&part.hash);
        }
        out.name(&stamp.cell);
        out.name(&stamp.ring);
        out.put(self.signer.as_bytes());
        let none = EpochCertificate([0; SIGNATURE_BYTES]);
        out.put(&stamp.certificate.unwrap_or(none).0);
        bytes
    }

    /// The head in these bytes. Does not check the signature.
    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Self, SnapshotError> {
        let mut fields = FieldReader(bytes);
        if fields.take() != MAGIC {
            return Err(SnapshotError::NoSnapshot);
        }
        let found = u16::from_le_bytes(fields.take());
        if found != FORMAT {
            return Err(SnapshotError::Format { found });
        }
        let [class, has_certificate, ..]: [u8; 6] = fields.take();
        let class = CellClass::from_code(class).ok_or(SnapshotError::NoSnapshot)?;
        let [epoch, sequence, version, fence, published_at, content_at, rows, hash_key] =
            std::array::from_fn(|_| fields.number());
        let beat_ms = u32::from_le_bytes(fields.take());
        let base = BaseHour(u32::from_le_bytes(fields.take()));
        let (content_hash, audit_head) = (fields.take(), fields.take());
        let parts =
            std::array::from_fn(|_| PartEntry { length: fields.number(), hash: fields.take() });
        let cell = fields.name().ok_or(SnapshotError::NoSnapshot)?;
        let ring = fields.name().ok_or(SnapshotError::NoSnapshot)?;
        let signer = PublicKey::from_bytes(fields.take());
        let certificate = EpochCertificate(fields.take());
        let certificate = (has_certificate > 0).then_some(certificate);
        let stamp = Stamp {
            cell,
            ring,
            epoch,
            sequence,
            version,
            fence,
            published_at,
            content_at,
            beat_ms,
            audit_head,
            certificate,
        };
        Ok(Head { class, stamp, rows, hash_key, base, content_hash, signer, parts })
    }

    pub(crate) const fn part(&self, part: Part) -> &PartEntry {
        &self.parts[part as usize]
    }
}

/// The tail of a file with this head.
pub(crate) fn tail(stamp: &Stamp, head: &[u8; HEAD_BYTES]) -> [u8; TAIL_BYTES] {
    let mut bytes = [0; TAIL_BYTES];
    let mut out = FieldWriter { bytes: &mut bytes, at: 0 };
    out.put(&TAIL_MAGIC);
    out.put(&stamp.epoch.to_le_bytes());
    out.put(&stamp.sequence.to_le_bytes());
    out.put(blake3::hash(head).as_bytes());
    bytes
}

/// The hash of the content that a head says, before anything of it is verified; `None` if the bytes are no head.
pub fn content_hash_of(head: &[u8]) -> Option<[u8; 32]> {
    Head::decode(head.first_chunk()?).ok().map(|head| head.content_hash)
}
