//! Random numbers from a seed: SplitMix64, the same on every machine and in every version, so that a
//! seed replays a run.

/// A stream of random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// Any number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        let choices = u128::from(high.saturating_sub(low)) + 1;
        let drawn = (u128::from(self.next()) * choices) >> 64;
        low.saturating_add(u64::try_from(drawn).unwrap_or(0))
    }

    /// A number up to `most`. Its length in bits is drawn first, so small numbers are as frequent as
    /// large ones.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        let bits = self.between(0, u64::from(64 - most.leading_zeros()));
        let longest = 1_u64.checked_shl(u32::try_from(bits).unwrap_or(0)).unwrap_or(u64::MAX);
        self.between(0, longest.min(most))
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.between(1, times) == 1
    }

    /// True with this probability in percent.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    /// An index below `among`.
    pub(crate) fn index(&mut self, among: usize) -> usize {
        let last = u64::try_from(among).unwrap_or(u64::MAX).saturating_sub(1);
        usize::try_from(self.between(0, last)).unwrap_or(0)
    }

    /// One of the items, of which there must be one.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..20).map(|_| chance.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn every_number_of_a_range_comes_and_none_beyond() {
        let mut chance = Chance::new(1);
        let mut seen = [0; 5];
        for _ in 0..1_000 {
            let drawn = chance.between(3, 7);
            seen[usize::try_from(drawn - 3).unwrap()] += 1;
            assert!(chance.up_to(100) <= 100);
        }
        assert!(seen.iter().all(|times| *times > 100), "{seen:?}");
    }
}
