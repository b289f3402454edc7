//! Numbers drawn from the laws that traffic and service times follow.

use crate::chance::Chance;

/// A number of nanoseconds, or of anything else counted in wholes.
#[expect(clippy::cast_possible_truncation, reason = "a cast from a float saturates")]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}

/// A number from 0 to 1, without 1.
pub(crate) fn unit(chance: &mut Chance) -> f64 {
    // The upper 53 bits: as many as a double holds.
    (chance.next() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// A number with the mean 1, as the gaps between arrivals that know nothing of one another.
pub(crate) fn exponential(chance: &mut Chance) -> f64 {
    -(1.0 - unit(chance)).ln()
}

/// A number around 0 with the deviation 1 (Box and Muller).
pub(crate) fn normal(chance: &mut Chance) -> f64 {
    let radius = (2.0 * exponential(chance)).sqrt();
    radius * (std::f64::consts::TAU * unit(chance)).cos()
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
    fn each_law_has_its_mean_and_its_deviation() {
        for (drawn, law) in [
            (mean_and_deviation(unit), (0.5, 0.2887)),
            (mean_and_deviation(exponential), (1.0, 1.0)),
            (mean_and_deviation(normal), (0.0, 1.0)),
        ] {
            assert!((drawn.0 - law.0).abs() < 0.01 && (drawn.1 - law.1).abs() < 0.01, "{drawn:?}");
        }
    }
}
