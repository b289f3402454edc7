//! Keys as 128-bit fingerprints.
//!
//! A fingerprint has the same size for every key. In one process fingerprints are seeded, so that a
//! client that does not know the seed cannot choose keys that collide. Processes that share a store
//! cannot have different seeds; they use a cryptographic digest. The text of a key is not stored:
//! to inspect or reset a key, name it again, and it has the same fingerprint.
//!
//! Seeded fingerprints of up to sixteen bytes, which is most keys, are two products of the key and
//! secret numbers; the shard is known after the first product. Two chosen keys collide for one in
//! about 2⁶⁴ secrets. Longer keys are hashed by XXH3.

use std::hash::{BuildHasher, RandomState};

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The 128-bit hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    low: u64,
    high: u64,
}

impl Fingerprint {
    /// Sets the lowest bit: zero marks an empty slot.
    #[inline]
    const fn new(low: u64, high: u64) -> Self {
        Fingerprint { low: low | 1, high }
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes the hash apart")]
    const fn from_bits(bits: u128) -> Self {
        Fingerprint::new(bits as u64, (bits >> 64) as u64)
    }

    /// The bits that distinguish the keys of one shard.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes the fingerprint apart")]
    pub(crate) const fn stored(self) -> (u64, u32) {
        (self.low, self.high as u32)
    }

    /// The bits that choose the shard.
    #[inline]
    pub(crate) const fn shard_bits(self) -> u32 {
        (self.high >> 32) as u32
    }

    /// The bits that choose the hash slot in a cluster: twelve of the shard bits.
    #[cfg(feature = "redis")]
    pub(crate) const fn tag(self) -> u16 {
        (self.high >> 52) as u16
    }

    /// The bits that are not in the tag.
    #[cfg(feature = "redis")]
    pub(crate) const fn untagged(self) -> u128 {
        (((self.high as u128) << 64) | self.low as u128) & ((1 << 116) - 1)
    }

    /// The fingerprint of the same key under one of several limits. The shard stays the same, so
    /// that all limits of a rule are decided under one lock.
    #[inline]
    #[must_use]
    pub const fn under(self, limit: u64) -> Self {
        // Two odd multipliers spread the identity over all 96 stored bits.
        let low = self.low ^ limit.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let high = self.high ^ (limit.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32);
        Fingerprint::new(low, high)
    }
}

/// A hash function for keys.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprinter {
    /// None if processes share the fingerprints.
    secrets: Option<Secrets>,
}

impl Fingerprinter {
    /// With a seed from the operating system.
    pub fn random() -> Self {
        let random = RandomState::new();
        let secrets = [1, 2, 3, 4, 5].map(|number: u64| random.hash_one(number));
        Fingerprinter { secrets: Some(Secrets(secrets)) }
    }

    /// With a given seed, so that runs can be repeated.
    pub fn seeded(seed: u64) -> Self {
        let numbered = |number: u64| seed.wrapping_add(number.wrapping_mul(SPREAD[0]));
        let secrets = [1, 2, 3, 4, 5].map(|number| fold(numbered(number), SPREAD[1]));
        Fingerprinter { secrets: Some(Secrets(secrets)) }
    }

    /// The same in every process: BLAKE3 cut to 128 bits. Finding keys that collide takes about 2⁶⁴
    /// attempts.
    pub const fn shared() -> Self {
        Fingerprinter { secrets: None }
    }

    /// The fingerprint of `value` within a group (a rule).
    #[inline]
    pub fn of(&self, group: u64, value: &[u8]) -> Fingerprint {
        match &self.secrets {
            Some(secrets) => secrets.fingerprint(group, value),
            None => Fingerprint::from_bits(digest(group, value)),
        }
    }
}

/// Two odd numbers with irregular bits.
const SPREAD: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93];

/// Secret random numbers.
#[derive(Clone, Copy, Debug)]
struct Secrets([u64; 5]);

impl Secrets {
    #[inline(always)]
    fn fingerprint(&self, group: u64, value: &[u8]) -> Fingerprint {
        let Secrets([first, second, third, fourth, _]) = self;
        let Some((head, tail)) = ends(value) else { return self.long(group, value) };
        // Bytes of the key cannot compensate for group and length: their contribution is secret.
        let length = (value.len() as u64).wrapping_mul(SPREAD[0]);
        let blind = fold(group ^ length ^ first, *second);
        let (low, high) = product(head ^ third, tail ^ blind);
        Fingerprint::new(fold(low ^ fourth, high ^ blind), low ^ high)
    }

    #[inline(never)]
    fn long(&self, group: u64, value: &[u8]) -> Fingerprint {
        Fingerprint::from_bits(xxh3_128_with_seed(value, self.0[4] ^ group))
    }
}

/// The first and the last eight bytes of a value of up to sixteen bytes; they may overlap.
#[inline(always)]
fn ends(value: &[u8]) -> Option<(u64, u64)> {
    if value.len() > 16 {
        return None;
    }
    if let (Some(head), Some(tail)) = (value.first_chunk(), value.last_chunk()) {
        return Some((u64::from_le_bytes(*head), u64::from_le_bytes(*tail)));
    }
    Some(ends_of_short(value))
}

#[inline(never)]
fn ends_of_short(value: &[u8]) -> (u64, u64) {
    if let (Some(head), Some(tail)) = (value.first_chunk(), value.last_chunk()) {
        return (u32::from_le_bytes(*head).into(), u32::from_le_bytes(*tail).into());
    }
    let byte = |at: usize| value.get(at).copied().map_or(0, u64::from);
    (byte(0) | byte(1) << 8, byte(2))
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "takes the product apart")]
fn product(one: u64, other: u64) -> (u64, u64) {
    let product = u128::from(one) * u128::from(other);
    (product as u64, (product >> 64) as u64)
}

/// XORs the halves of a product: each half has its best bits where the other has its worst.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let (low, high) = product(one, other);
    low ^ high
}

// Not inlined: inlining spills the registers of the seeded path.
#[inline(never)]
fn digest(group: u64, value: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&group.to_le_bytes()).update(value);
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes of different versions share counters, so this must never change.
    #[test]
    fn shared_fingerprints_never_change() {
        let one = Fingerprinter::shared().of(7, b"alice");
        assert_eq!((one.low, one.high), (0xBC82_23D7_8609_C727, 0x5516_522E_CB9D_4489));
    }

    /// Asserts that all fingerprints differ.
    fn distinct(all: impl IntoIterator<Item = Fingerprint>) -> Vec<Fingerprint> {
        let mut all: Vec<_> = all.into_iter().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        all
    }

    #[test]
    fn values_of_every_length_differ_though_they_repeat_one_byte() {
        let seeded = Fingerprinter::seeded(1);
        let bytes = [0, b'a', u8::MAX].map(|byte| [byte; 40]);
        let values = bytes.iter().flat_map(|bytes| (1..=40).map(|length| &bytes[..length]));
        distinct(values.map(|value| seeded.of(0, value)).chain([seeded.of(0, b"")]));
    }

    #[test]
    fn a_flipped_bit_changes_about_half_of_the_fingerprint() {
        let seeded = Fingerprinter::seeded(2);
        for length in 1..=17 {
            let value = vec![b'x'; length];
            let one = seeded.of(3, &value);
            let mut flipped = 0;
            for bit in 0..length * 8 {
                let mut other = value.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let other = seeded.of(3, &other);
                flipped +=
                    (one.low ^ other.low).count_ones() + (one.high ^ other.high).count_ones();
            }
            let mean = f64::from(flipped) / (length * 8) as f64;
            assert!((50.0..78.0).contains(&mean), "{length}: {mean}");
        }
    }

    /// The last eight bytes of fifteen are those of sixteen, shifted by one.
    #[test]
    fn other_bytes_cannot_compensate_for_another_length() {
        let seeded = Fingerprinter::seeded(3);
        let long = [[1; 8], [1; 8]].concat();
        let shorter = (0..=u8::MAX).flat_map(|byte| {
            (9..16).map(move |length| {
                let mut value = vec![1; length];
                value[length - 1] = byte;
                value
            })
        });
        distinct(shorter.chain([long]).map(|value| seeded.of(0, &value)));
    }

    #[test]
    fn the_same_value_differs_between_groups() {
        let seeded = Fingerprinter::seeded(4);
        for value in [&b""[..], b"a", b"abcd", b"sixteen bytes ok", b"more than sixteen bytes"] {
            distinct((0..1_000).map(|group| seeded.of(group, value)));
        }
    }

    #[test]
    fn numbered_values_spread_evenly_over_shards_and_slots() {
        const KEYS: usize = 64 * 1024;
        for length in [4, 8, 12, 16] {
            let seeded = Fingerprinter::seeded(5);
            let name = |number: usize| format!("{number:0length$x}");
            let all = distinct((0..KEYS).map(|number| seeded.of(0, name(number).as_bytes())));
            let mut counts = [[0_usize; 256]; 3];
            for one in all {
                counts[0][(one.shard_bits() & 255) as usize] += 1;
                counts[1][(one.stored().0 >> 56) as usize] += 1;
                counts[2][(one.stored().1 & 255) as usize] += 1;
            }
            // 256 of each are expected, give or take 16; this is six times that.
            let even = |count: &usize| (160..=352).contains(count);
            assert!(counts.iter().flatten().all(even), "{length}: {counts:?}");
        }
    }

    #[test]
    fn another_seed_gives_other_fingerprints() {
        let of = |seed| Fingerprinter::seeded(seed).of(0, b"alice");
        distinct((0..1_000).map(of));
        assert_eq!(of(7), of(7));
        assert_ne!(
            Fingerprinter::random().of(0, b"alice"),
            Fingerprinter::random().of(0, b"alice")
        );
    }

    #[test]
    fn shared_fingerprints_differ_by_group_and_value() {
        let shared = Fingerprinter::shared();
        assert_eq!(shared.of(1, b"a"), Fingerprinter::shared().of(1, b"a"));
        assert_ne!(shared.of(1, b"a"), shared.of(2, b"a"));
        assert_ne!(shared.of(1, b"a"), shared.of(1, b"b"));
    }
}
