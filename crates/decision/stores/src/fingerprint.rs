//! Keys as 128-bit fingerprints.
//!
//! A key costs the same however long it is. In one process fingerprints are
//! seeded: nobody who does not know the seed can choose keys that collide.
//! Processes that share a store cannot each have a seed of their own; theirs
//! are cut from a cryptographic digest, which anybody may know. The text itself
//! is not kept: whoever wants to inspect or reset a key names it again, and the
//! same fingerprint finds it.
//!
//! Seeded fingerprints of up to sixteen bytes, which is most keys, are two
//! products of secret numbers and the key: the key waits for nothing else, and
//! the shard is known after the first. Two keys that somebody chose have one
//! fingerprint for one in about 2⁶⁴ secrets. Longer keys are left to XXH3.

use std::hash::{BuildHasher, RandomState};

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// 128 bits that stand for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    low: u64,
    high: u64,
}

impl Fingerprint {
    /// The lowest bit is always set: a slot with nothing in it is told by zero.
    #[inline]
    const fn new(low: u64, high: u64) -> Self {
        Fingerprint { low: low | 1, high }
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes the hash apart")]
    const fn cut(bits: u128) -> Self {
        Fingerprint::new(bits as u64, (bits >> 64) as u64)
    }

    /// The bits that tell keys of one shard apart.
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

    /// The bits that choose the slot in a cluster: twelve of those that choose the shard.
    #[cfg(feature = "redis")]
    pub(crate) const fn tag(self) -> u16 {
        (self.high >> 52) as u16
    }

    /// Those that are not in the tag, the highest first.
    #[cfg(feature = "redis")]
    pub(crate) const fn untagged(self) -> u128 {
        (((self.high as u128) << 64) | self.low as u128) & ((1 << 116) - 1)
    }

    /// The fingerprint of the same key under one of several limits. Stays in
    /// the same shard, so that all limits of a rule are decided under one lock.
    #[inline]
    #[must_use]
    pub const fn under(self, limit: u64) -> Self {
        // Two odd multipliers spread the identity over all 96 stored bits.
        let low = self.low ^ limit.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let high = self.high ^ (limit.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32);
        Fingerprint::new(low, high)
    }
}

/// Makes fingerprints, all in one way.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprinter {
    way: Way,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Seeded(Secrets),
    Shared,
}

impl Fingerprinter {
    /// With a seed drawn from the operating system.
    pub fn random() -> Self {
        let random = RandomState::new();
        let secrets = [1, 2, 3, 4, 5].map(|number: u64| random.hash_one(number));
        Fingerprinter { way: Way::Seeded(Secrets(secrets)) }
    }

    /// With a seed given, so that runs repeat.
    pub fn seeded(seed: u64) -> Self {
        let numbered = |number: u64| seed.wrapping_add(number.wrapping_mul(SPREAD[0]));
        let secrets = [1, 2, 3, 4, 5].map(|number| fold(numbered(number), SPREAD[1]));
        Fingerprinter { way: Way::Seeded(Secrets(secrets)) }
    }

    /// The same in every process. BLAKE3 cut to 128 bits: keys that collide
    /// cannot be found by who knows the code, in less than 2⁶⁴ tries.
    pub const fn shared() -> Self {
        Fingerprinter { way: Way::Shared }
    }

    /// The fingerprint of `value` within a group (a rule).
    #[inline]
    pub fn of(&self, group: u64, value: &[u8]) -> Fingerprint {
        match &self.way {
            Way::Seeded(secrets) => secrets.fingerprint(group, value),
            Way::Shared => Fingerprint::cut(digest(group, value)),
        }
    }
}

/// Two odd numbers without a pattern in their bits.
const SPREAD: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93];

/// Random numbers that nobody outside knows.
#[derive(Clone, Copy, Debug)]
struct Secrets([u64; 5]);

impl Secrets {
    #[inline(always)]
    fn fingerprint(&self, group: u64, value: &[u8]) -> Fingerprint {
        let Secrets([first, second, third, fourth, _]) = self;
        let Some((head, tail)) = ends(value) else { return self.long(group, value) };
        // Group and length are beyond what bytes of the key could make up for:
        // nobody knows how much they add.
        let length = (value.len() as u64).wrapping_mul(SPREAD[0]);
        let blind = fold(group ^ length ^ first, *second);
        let (low, high) = product(head ^ third, tail ^ blind);
        Fingerprint::new(fold(low ^ fourth, high ^ blind), low ^ high)
    }

    #[inline(never)]
    fn long(&self, group: u64, value: &[u8]) -> Fingerprint {
        Fingerprint::cut(xxh3_128_with_seed(value, self.0[4] ^ group))
    }
}

/// The first and the last bytes of a value of up to sixteen: all of them, some
/// perhaps twice.
#[inline(always)]
fn ends(value: &[u8]) -> Option<(u64, u64)> {
    if value.len() > 16 {
        return None;
    }
    if let (Some(head), Some(tail)) = (value.first_chunk(), value.last_chunk()) {
        return Some((u64::from_le_bytes(*head), u64::from_le_bytes(*tail)));
    }
    Some(ends_of_few(value))
}

#[inline(never)]
fn ends_of_few(value: &[u8]) -> (u64, u64) {
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

/// The halves of a product over each other: each has its best bits where the
/// other has its worst.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let (low, high) = product(one, other);
    low ^ high
}

// Apart: inlined it would take registers from those who need none of it.
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

    /// Processes of different versions share counters: this may never change.
    #[test]
    fn shared_fingerprints_never_change() {
        let one = Fingerprinter::shared().of(7, b"alice");
        assert_eq!((one.low, one.high), (0xBC82_23D7_8609_C727, 0x5516_522E_CB9D_4489));
    }

    /// Many fingerprints, all of them different.
    fn distinct(all: impl IntoIterator<Item = Fingerprint>) -> Vec<Fingerprint> {
        let mut all: Vec<_> = all.into_iter().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        all
    }

    #[test]
    fn values_of_every_length_are_told_apart_though_they_repeat_one_byte() {
        let seeded = Fingerprinter::seeded(1);
        let bytes = [0, b'a', u8::MAX].map(|byte| [byte; 40]);
        let values = bytes.iter().flat_map(|bytes| (1..=40).map(|length| &bytes[..length]));
        distinct(values.map(|value| seeded.of(0, value)).chain([seeded.of(0, b"")]));
    }

    #[test]
    fn a_bit_that_is_turned_changes_about_half_of_the_fingerprint() {
        let seeded = Fingerprinter::seeded(2);
        for length in 1..=17 {
            let value = vec![b'x'; length];
            let one = seeded.of(3, &value);
            let mut turned = 0;
            for bit in 0..length * 8 {
                let mut other = value.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let other = seeded.of(3, &other);
                turned += (one.low ^ other.low).count_ones() + (one.high ^ other.high).count_ones();
            }
            let mean = f64::from(turned) / (length * 8) as f64;
            assert!((50.0..78.0).contains(&mean), "{length}: {mean}");
        }
    }

    /// Bytes that overlap: the last eight of fifteen are those of sixteen but for one step.
    #[test]
    fn lengths_cannot_be_made_up_for_by_other_bytes() {
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
    fn groups_tell_the_same_value_apart() {
        let seeded = Fingerprinter::seeded(4);
        for value in [&b""[..], b"a", b"abcd", b"sixteen bytes ok", b"more than sixteen bytes"] {
            distinct((0..1_000).map(|group| seeded.of(group, value)));
        }
    }

    #[test]
    fn numbered_values_spread_evenly_over_shards_and_places() {
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
    fn a_shared_fingerprint_is_told_apart_by_group_and_value() {
        let shared = Fingerprinter::shared();
        assert_eq!(shared.of(1, b"a"), Fingerprinter::shared().of(1, b"a"));
        assert_ne!(shared.of(1, b"a"), shared.of(2, b"a"));
        assert_ne!(shared.of(1, b"a"), shared.of(1, b"b"));
    }
}
