//! Changes of a protobuf message, field by field.
//!
//! The message is split into fields without a schema. Fields are removed, doubled, swapped,
//! renumbered or wrapped, and a length-delimited field may be changed as a message. Then lengths
//! are corrected. A rest that cannot be split stays at the end.

use crate::chance::Chance;

/// The depth of nested messages: one more than requests have.
const DEPTH_MAX: usize = 4;

/// The most fields of one block that are looked at.
const FIELDS_MAX: usize = 4_096;

/// The types of the wire.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BLOCK: u8 = 2;
const GROUP: u8 = 3;
const FIXED32: u8 = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    number: u64,
    kind: u8,
    /// As written; for a block without its length.
    content: Vec<u8>,
}

/// A changed copy of a message, which may contain fields of `other`.
pub(super) fn change(message: &[u8], other: &[u8], chance: &mut Chance) -> Vec<u8> {
    change_within(message, other, chance, DEPTH_MAX)
}

fn change_within(message: &[u8], other: &[u8], chance: &mut Chance, depth: usize) -> Vec<u8> {
    let (mut fields, rest) = split(message);
    let at = chance.below(fields.len());
    let deeper = depth > 0 && chance.below(3) > 0;
    if deeper && let Some(field) = fields.get_mut(at).filter(|field| field.kind == BLOCK) {
        field.content = change_within(&field.content, other, chance, depth - 1);
    } else {
        change_fields(&mut fields, at, other, chance);
    }
    join(&fields, &rest)
}

fn change_fields(fields: &mut Vec<Field>, at: usize, other: &[u8], chance: &mut Chance) {
    let place = chance.below(fields.len() + 1);
    match (chance.below(8), fields.get(at).cloned()) {
        (0, Some(_)) => drop(fields.remove(at)),
        (1, Some(field)) => fields.insert(place, field),
        (2, Some(_)) if place < fields.len() => fields.swap(at, place),
        (3, Some(field)) => {
            let number = u64::from(chance.byte() % 6);
            fields.insert(place, Field { number, ..field });
        }
        (4, Some(field)) => {
            let content = join(&[field], &[]);
            let number = u64::from(chance.byte() % 4) + 1;
            fields.insert(place, Field { number, kind: BLOCK, content });
        }
        (5, Some(field)) => {
            let content = join(&[field], &[]);
            let number = u64::from(chance.byte() % 24) + 1;
            let end = put_number(number << 3 | 4);
            fields.insert(place, Field { number, kind: GROUP, content: [content, end].concat() });
        }
        (6, _) => {
            let (others, _) = split(other);
            if let Some(taken) = chance.pick(&others) {
                fields.insert(place, taken.clone());
            }
        }
        _ => fields.insert(place, made(chance)),
    }
}

/// A random field.
fn made(chance: &mut Chance) -> Field {
    let number = u64::from(chance.byte() % 6);
    match chance.below(4) {
        0 => {
            let content = (0..8).map(|_| chance.byte()).collect();
            Field { number, kind: FIXED64, content }
        }
        1 => {
            let content = (0..4).map(|_| chance.byte()).collect();
            Field { number, kind: FIXED32, content }
        }
        2 => {
            let content = (0..chance.below(6)).map(|_| chance.byte() & 0x7F).collect();
            Field { number, kind: BLOCK, content }
        }
        _ => {
            let value = chance.number() >> chance.below(64);
            Field { number, kind: VARINT, content: put_number(value) }
        }
    }
}

/// The fields, and the rest that could not be split.
fn split(mut bytes: &[u8]) -> (Vec<Field>, Vec<u8>) {
    let mut fields = Vec::new();
    while fields.len() < FIELDS_MAX
        && let Some((field, rest)) = take_field(bytes)
    {
        fields.push(field);
        bytes = rest;
    }
    (fields, bytes.to_vec())
}

fn take_field(bytes: &[u8]) -> Option<(Field, &[u8])> {
    let (tag, rest) = take_number(bytes)?;
    let (number, kind) = (tag >> 3, u8::try_from(tag & 7).ok()?);
    let (content, rest) = match kind {
        VARINT => {
            let (_, after) = take_number(rest)?;
            rest.split_at_checked(rest.len() - after.len())?
        }
        FIXED64 => rest.split_at_checked(8)?,
        FIXED32 => rest.split_at_checked(4)?,
        BLOCK => {
            let (length, rest) = take_number(rest)?;
            rest.split_at_checked(usize::try_from(length).ok()?)?
        }
        _ => return None,
    };
    Some((Field { number, kind, content: content.to_vec() }, rest))
}

fn take_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (place, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7F).checked_shl(u32::try_from(place).ok()? * 7)?;
        if *byte < 0x80 {
            return Some((number, bytes.get(place + 1..)?));
        }
    }
    None
}

fn put_number(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

fn join(fields: &[Field], rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Field { number, kind, content } in fields {
        bytes.extend(put_number(number << 3 | u64::from(*kind)));
        if *kind == BLOCK {
            bytes.extend(put_number(u64::try_from(content.len()).unwrap_or(u64::MAX)));
        }
        bytes.extend(content);
    }
    bytes.extend(rest);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_split_is_joined_as_it_was() {
        let message = [0x0A, 2, b'h', b'i', 0x18, 0x96, 1, 0x25, 1, 2, 3, 4, 0x21];
        let (fields, rest) = split(&message);
        assert_eq!((fields.len(), rest.as_slice()), (3, &[0x21][..]));
        assert_eq!(join(&fields, &rest), message);
    }

    #[test]
    fn most_changed_messages_can_still_be_split_to_the_end() {
        let message = [0x0A, 2, b'h', b'i', 0x12, 4, 0x0A, 2, 0x0A, 0, 0x18, 7];
        let mut chance = Chance::new(1);
        let whole = (0..1_000)
            .filter(|_| split(&change(&message, &message, &mut chance)).1.is_empty())
            .count();
        // Groups are not split again.
        assert!(whole > 700, "{whole}");
    }

    #[test]
    fn numbers_of_any_length_are_read_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(take_number(&put_number(number)), Some((number, &[][..])));
        }
        assert_eq!(take_number(&[0xFF; 20]), None);
        assert_eq!(take_number(&[]), None);
    }
}
