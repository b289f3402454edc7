//! The middle of several measurements, and how far they lie apart.

use std::fmt;

/// The quartiles of some measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// The quartiles; not a number when there are no measurements.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len().saturating_sub(1);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        Spread { low: at(last / 4), median: at(last / 2), high: at(last - last / 4) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.2} ({:.2}–{:.2})", self.median, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_median_and_the_quartiles() {
        let spread = Spread::of(vec![9.0, 1.0, 3.0, 2.0, 100.0]);
        assert_eq!(spread.to_string(), "3.00 (2.00–9.00)");
    }

    #[test]
    fn one_measurement_is_its_own_median() {
        assert_eq!(Spread::of(vec![4.0]), Spread { low: 4.0, median: 4.0, high: 4.0 });
    }

    #[test]
    fn nothing_measured_is_not_a_number() {
        assert!(Spread::of(Vec::new()).median.is_nan());
    }
}
