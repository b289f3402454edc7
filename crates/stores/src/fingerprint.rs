//! Keys as 128-bit fingerprints.
//!
//! A key costs the same however long it is. In one process fingerprints are
//! seeded: nobody who does not know the seed can choose keys that collide.
//! Processes that share a store cannot each have a seed of their own; theirs
//! are cut from a cryptographic digest, which anybody may know. The text itself
//! is not kept: whoever wants to inspect or reset a key names it again, and the
//! same fingerprint finds it.

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
    Seeded(u64),
    Shared,
}

impl Fingerprinter {
    /// With a seed drawn from the operating system.
    pub fn random() -> Self {
        Fingerprinter { way: Way::Seeded(RandomState::new().hash_one(0_u64)) }
    }

    /// With a seed given, so that runs repeat.
    pub const fn seeded(seed: u64) -> Self {
        Fingerprinter { way: Way::Seeded(seed) }
    }

    /// The same in every process. BLAKE3 cut to 128 bits: keys that collide
    /// cannot be found by who knows the code, in less than 2⁶⁴ tries.
    pub const fn shared() -> Self {
        Fingerprinter { way: Way::Shared }
    }

    /// The fingerprint of `value` within a group (a rule).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes the hash apart")]
    pub fn of(&self, group: u64, value: &[u8]) -> Fingerprint {
        let bits = match self.way {
            Way::Seeded(seed) => xxh3_128_with_seed(value, seed ^ group),
            Way::Shared => digest(group, value),
        };
        Fingerprint::new(bits as u64, (bits >> 64) as u64)
    }
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

    #[test]
    fn a_shared_fingerprint_is_told_apart_by_group_and_value() {
        let shared = Fingerprinter::shared();
        assert_eq!(shared.of(1, b"a"), Fingerprinter::shared().of(1, b"a"));
        assert_ne!(shared.of(1, b"a"), shared.of(2, b"a"));
        assert_ne!(shared.of(1, b"a"), shared.of(1, b"b"));
    }
}
