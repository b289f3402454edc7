//! Random numbers from a seed: SplitMix64, the same on every machine and in every version, so that a
//! seed replays a run.

/// A stream of random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// Any number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Any byte.
    pub const fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[7]
    }

    /// A number below `end`; zero when there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u128::try_from(end).unwrap_or(0);
        usize::try_from((u128::from(self.number()) * end) >> 64).unwrap_or(0)
    }

    /// One of the items; `None` without items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..20).map(|_| chance.number()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn every_number_below_the_end_comes_and_none_beyond() {
        let mut chance = Chance::new(1);
        let mut seen = [0; 5];
        for _ in 0..1_000 {
            seen[chance.below(5)] += 1;
        }
        assert!(seen.iter().all(|times| *times > 100), "{seen:?}");
        assert_eq!((chance.below(0), chance.pick::<u8>(&[])), (0, None));
    }
}
