//! The key of a counter in Redis: `tg{TT}RRRRRRRRRRRRRRRRRRRR`.
//!
//! 26 characters with the default prefix, so that the server's allocator rounds it up to 32 bytes. The two characters
//! in braces are the hash tag of a cluster. It is the same for all limits of one rule and value, so that one script
//! call can decide them.

use tidegate_redis_link::RedisKey;

use crate::fingerprint::Fingerprint;

/// The alphabet of base64url.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Characters after the tag, six bits each.
const REST: u32 = 20;

/// The text of a key.
pub(crate) fn text(prefix: &[u8], fingerprint: Fingerprint) -> RedisKey {
    let letter = |bits: u128| LETTERS[usize::try_from(bits & 63).unwrap_or(0)];
    let (tag, rest) = (u128::from(fingerprint.tag()), fingerprint.untagged());
    let mut key = RedisKey::from_slice(prefix);
    key.extend([b'{', letter(tag >> 6), letter(tag), b'}']);
    key.extend((0..REST).rev().map(|digit| letter(rest >> (6 * digit))));
    key
}

/// The text of the key with the records of the nodes that report counts of this key. It lies in the same slot.
pub(crate) fn of_records(prefix: &[u8], fingerprint: Fingerprint) -> RedisKey {
    let mut key = text(prefix, fingerprint);
    key.extend_from_slice(b":r");
    key
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::fingerprint::Fingerprinter;

    #[test]
    fn a_key_has_twenty_six_characters_and_its_tag_in_braces() {
        let key = text(b"tg", Fingerprinter::shared().of(1, b"alice"));
        assert_eq!(key.len(), 26);
        assert_eq!((&key[..3], key[5]), (&b"tg{"[..], b'}'));
        assert!(key.iter().all(u8::is_ascii_graphic));
    }

    #[test]
    fn limits_of_one_rule_and_value_share_the_tag_and_nothing_else() {
        let base = Fingerprinter::shared().of(1, b"alice");
        let keys: Vec<RedisKey> = (0..100).map(|limit| text(b"tg", base.under(limit))).collect();
        assert!(keys.iter().all(|key| key[..6] == keys[0][..6]));
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    }

    #[test]
    fn the_whole_fingerprint_is_in_the_key() {
        let of = |value: u32| text(b"tg", Fingerprinter::shared().of(1, &value.to_le_bytes()));
        let keys: HashSet<RedisKey> = (0..10_000).map(of).collect();
        assert_eq!(keys.len(), 10_000);
    }
}
