//! Keys as 128-bit seeded fingerprints.
//!
//! A key costs the same however long it is, and nobody who does not know the
//! seed can choose keys that collide. The text itself is not kept: whoever
//! wants to inspect or reset a key names it again, and the same fingerprint
//! finds it.

use std::hash::{BuildHasher, RandomState};

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// 128 bits that stand for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Makes fingerprints, all with one seed.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprinter {
    seed: u64,
}

impl Fingerprinter {
    /// With a seed drawn from the operating system.
    pub fn random() -> Self {
        Fingerprinter { seed: RandomState::new().hash_one(0_u64) }
    }

    /// With a seed given, so that runs repeat.
    pub const fn seeded(seed: u64) -> Self {
        Fingerprinter { seed }
    }

    /// The fingerprint of `value` within a group (a rule).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes the hash apart")]
    pub fn of(&self, group: u64, value: &[u8]) -> Fingerprint {
        let bits = xxh3_128_with_seed(value, self.seed ^ group);
        Fingerprint::new(bits as u64, (bits >> 64) as u64)
    }
}
