//! Random numbers from a seed (SplitMix64), the same on every machine, so that a seed replays a run.

/// A stream of random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A stream that starts at this seed.
    pub const fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// Any number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.draw()) * u128::from(end)) >> 64).unwrap_or(0)
    }

    /// A number in `[0, 1)`.
    pub fn fraction(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
        let bits = (self.draw() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// A number of the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_seed_repeat_and_spread() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..1_000).map(|_| chance.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        for number in 0..10 {
            assert!(draw(3).iter().filter(|drawn| **drawn == number).count() > 50, "{number}");
        }
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_deviation_one() {
        let mut chance = Chance::new(1);
        let drawn: Vec<f64> = (0..20_000).map(|_| chance.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / 20_000.0;
        let variance = drawn.iter().map(|number| number * number).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
