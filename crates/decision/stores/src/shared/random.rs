//! Random numbers for jitter: cheap, seeded, not secret.

use std::hash::{BuildHasher, RandomState};

/// A small generator (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator with this seed, or one from the operating system.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Random(seed.unwrap_or_else(|| RandomState::new().hash_one(0_u64)))
    }

    /// The next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}
