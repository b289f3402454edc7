//! Random numbers from the distributions of arrivals and service times.

use crate::chance::Chance;

/// The whole part of a number.
#[expect(clippy::cast_possible_truncation, reason = "a cast from a float saturates")]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}

/// A number from 0 to 1, without 1.
pub(crate) fn unit(chance: &mut Chance) -> f64 {
    // The upper 53 bits: as many as a double holds.
    (chance.next() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// An exponential number with mean 1: the gap between independent arrivals.
pub(crate) fn exponential(chance: &mut Chance) -> f64 {
    -(1.0 - unit(chance)).ln()
}

/// A normal number with mean 0 and deviation 1 (Box–Muller).
pub(crate) fn normal(chance: &mut Chance) -> f64 {
    let radius = (2.0 * exponential(chance)).sqrt();
    radius * (std::f64::consts::TAU * unit(chance)).cos()
}

/// The size of the table of [`Gaps`], as a power of two.
const CELL_BITS: u32 = 10;

/// Draws as [`exponential`] does, from a table: ten million arrivals take a quarter less time.
#[derive(Clone, Debug)]
pub(crate) struct Gaps {
    /// The logarithm of 1 to 2 at the bounds of the cells.
    logarithms: Vec<f64>,
}

impl Gaps {
    pub(crate) fn new() -> Self {
        let cells = 1_u32 << CELL_BITS;
        let logarithm = |cell: u32| (1.0 + f64::from(cell) / f64::from(cells)).ln();
        Gaps { logarithms: (0..=cells).map(logarithm).collect() }
    }

    /// A number with the mean 1.
    #[inline]
    pub(crate) fn draw(&self, chance: &mut Chance) -> f64 {
        // The drawn number is 2^(63 - zeros) times something from 1 to 2, of 2^64.
        let drawn = chance.next() | 1;
        let zeros = drawn.leading_zeros();
        let fraction = (drawn << zeros) << 1;
        let cell = usize::try_from(fraction >> (64 - CELL_BITS)).unwrap_or(0);
        let within = (fraction << CELL_BITS >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0);
        let [low, high] = [self.logarithms[cell], self.logarithms[cell + 1]];
        let logarithm = low + (high - low) * within;
        f64::from(zeros + 1) * std::f64::consts::LN_2 - logarithm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_and_deviation(draw: impl Fn(&mut Chance) -> f64) -> (f64, f64) {
        let mut chance = Chance::new(1);
        let drawn: Vec<f64> = (0..100_000).map(|_| draw(&mut chance)).collect();
        let mean = drawn.iter().sum::<f64>() / 100_000.0;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 100_000.0;
        (mean, variance.sqrt())
    }

    #[test]
    fn the_table_of_gaps_gives_the_logarithm() {
        let gaps = Gaps::new();
        for seed in 0..1_000 {
            let exact = -((Chance::new(seed).next() | 1) as f64 / 2_f64.powi(64)).ln();
            assert!((gaps.draw(&mut Chance::new(seed)) - exact).abs() < 1e-6);
        }
    }

    #[test]
    fn each_law_has_its_mean_and_its_deviation() {
        let gaps = Gaps::new();
        for (drawn, law) in [
            (mean_and_deviation(unit), (0.5, 0.2887)),
            (mean_and_deviation(exponential), (1.0, 1.0)),
            (mean_and_deviation(|chance| gaps.draw(chance)), (1.0, 1.0)),
            (mean_and_deviation(normal), (0.0, 1.0)),
        ] {
            assert!((drawn.0 - law.0).abs() < 0.01 && (drawn.1 - law.1).abs() < 0.01, "{drawn:?}");
        }
    }
}
