//! Random changes of an input.
//!
//! One to eight changes of random kinds. Words of the target's language are inserted as often as
//! bytes are changed, so that most inputs are nearly valid: a plainly wrong input is rejected early
//! and tests nothing. Messages are also changed field by field, because a wrong length would make
//! the rest unreadable.

mod frames;
mod message;

use crate::chance::Chance;

pub(crate) use frames::PREFACE;

/// The longest input: short enough for thousands of tries a second.
pub(crate) const INPUT_BYTES_MAX: usize = 8 * 1024;

/// The longest piece that is moved, removed or doubled in one change.
const PIECE_BYTES_MAX: usize = 64;

/// Numbers at the edges of types.
const NUMBERS: &[&[u8]] = &[
    b"0",
    b"-1",
    b"1",
    b"255",
    b"4294967295",
    b"4294967296",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e309",
    b"0.5",
    b"-0",
    b"007",
];

/// The language of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// Text with these words.
    Text(&'static [&'static str]),
    /// A protobuf message.
    Message,
    /// The bytes of an HTTP connection: text with these words, or frames after the preface of HTTP/2.
    Http(&'static [&'static str]),
}

/// A changed copy of `input`, which may contain parts of `other`.
pub(crate) fn damage(
    input: &[u8],
    other: &[u8],
    language: Language,
    chance: &mut Chance,
) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=chance.below(8).min(chance.below(8)) {
        match language {
            Language::Text(words) if chance.below(2) == 0 => {
                change_words(&mut bytes, words, chance)
            }
            Language::Message if chance.below(4) > 0 => {
                bytes = message::change(&bytes, other, chance);
            }
            Language::Http(_) if bytes.starts_with(PREFACE) => {
                bytes = frames::change(&bytes, chance, |payload, chance| {
                    change_bytes(payload, other, chance);
                });
            }
            Language::Http(words) if chance.below(2) == 0 => {
                change_words(&mut bytes, words, chance);
            }
            Language::Text(_) | Language::Message | Language::Http(_) => {
                change_bytes(&mut bytes, other, chance);
            }
        }
        bytes.truncate(INPUT_BYTES_MAX);
    }
    bytes
}

fn change_words(bytes: &mut Vec<u8>, words: &[&str], chance: &mut Chance) {
    let word = match chance.below(4) {
        0 => chance.pick(NUMBERS).copied(),
        _ => chance.pick(words).map(|word| word.as_bytes()),
    };
    let word = word.unwrap_or_default();
    let (start, end) = match chance.below(3) {
        0 => {
            let at = chance.below(bytes.len() + 1);
            (at, at)
        }
        1 => word_at(bytes, chance.below(bytes.len())),
        _ => line_at(bytes, chance.below(bytes.len())),
    };
    bytes.splice(start..end, word.iter().copied());
}

/// The range of letters and digits around an index.
fn word_at(bytes: &[u8], at: usize) -> (usize, usize) {
    around(bytes, at, |byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// The range of the line around an index.
fn line_at(bytes: &[u8], at: usize) -> (usize, usize) {
    around(bytes, at, |byte| *byte != b'\n')
}

fn around(bytes: &[u8], at: usize, belongs: impl Fn(&u8) -> bool) -> (usize, usize) {
    let (before, after) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
    let left = before.iter().rev().take_while(|byte| belongs(byte)).count();
    let right = after.iter().take_while(|byte| belongs(byte)).count();
    (before.len() - left, before.len() + right)
}

/// A random range of the bytes.
fn piece(bytes: &[u8], chance: &mut Chance) -> (usize, usize) {
    let start = chance.below(bytes.len() + 1);
    let end = start + chance.below(PIECE_BYTES_MAX.min(bytes.len() - start) + 1);
    (start, end)
}

fn change_bytes(bytes: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    let (start, end) = piece(bytes, chance);
    match chance.below(7) {
        0 => {
            if let Some(byte) = bytes.get_mut(start) {
                *byte ^= 1 << chance.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(start) {
                *byte = chance.byte();
            }
        }
        2 => drop(bytes.drain(start..end)),
        3 => {
            let copy: Vec<u8> = bytes.get(start..end).unwrap_or_default().to_vec();
            let at = chance.below(bytes.len() + 1);
            bytes.splice(at..at, copy);
        }
        4 => {
            let made: Vec<u8> = (0..=chance.below(8)).map(|_| chance.byte()).collect();
            bytes.splice(start..start, made);
        }
        5 => bytes.truncate(start),
        _ => {
            let (from, to) = piece(other, chance);
            let taken = other.get(from..to).unwrap_or_default().to_vec();
            bytes.splice(start..end, taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(language: Language, seed: u64) -> Vec<u8> {
        damage(b"domain: a\nkey: 1\n", b"other", language, &mut Chance::new(seed))
    }

    #[test]
    fn a_seed_damages_the_same_way_again() {
        for language in [Language::Text(&["key"]), Language::Message, Language::Http(&["key"])] {
            let all: Vec<_> = (0..200).map(|seed| damaged(language, seed)).collect();
            let again: Vec<_> = (0..200).map(|seed| damaged(language, seed)).collect();
            assert_eq!(all, again);
            let differ = all.iter().filter(|one| *one != b"domain: a\nkey: 1\n").count();
            assert!(differ > 100, "{differ}");
        }
    }

    #[test]
    fn nothing_grows_beyond_its_maximum_and_nothing_is_damaged_too() {
        let mut chance = Chance::new(3);
        for language in [Language::Text(&["key"]), Language::Message, Language::Http(&["key"])] {
            for _ in 0..200 {
                let long = damage(&[b'a'; INPUT_BYTES_MAX], b"b", language, &mut chance);
                assert!(long.len() <= INPUT_BYTES_MAX);
                damage(b"", b"", language, &mut chance);
            }
        }
    }

    #[test]
    fn words_and_lines_are_found_around_a_place() {
        let text = b"ab cd\nef";
        assert_eq!((word_at(text, 4), line_at(text, 4)), ((3, 5), (0, 5)));
        assert_eq!((word_at(text, 99), line_at(b"", 0)), ((6, 8), (0, 0)));
    }
}
