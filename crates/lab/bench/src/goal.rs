//! What a figure should be.

/// The most, or the least, that a figure should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    bound: Bound,
    unit: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    Most(f64),
    Least(f64),
}

impl Goal {
    /// A figure without a unit: a ratio or a count.
    pub(crate) const fn at_most(most: f64) -> Self {
        Goal { bound: Bound::Most(most), unit: "" }
    }

    /// A figure with a unit.
    pub(crate) const fn at_most_of(most: f64, unit: &'static str) -> Self {
        Goal { bound: Bound::Most(most), unit }
    }

    /// A figure without a unit that should be high.
    pub(crate) const fn at_least(least: f64) -> Self {
        Goal { bound: Bound::Least(least), unit: "" }
    }

    /// The goal in words, and whether the figure meets it. A figure that is
    /// not a number does not.
    pub(crate) fn judge(&self, figure: f64) -> String {
        let (sign, bound, is_met) = match self.bound {
            Bound::Most(most) => ('≤', most, figure <= most),
            Bound::Least(least) => ('≥', least, figure >= least),
        };
        let said = if is_met { "met" } else { "NOT met" };
        format!("{sign} {bound}{}: {said}", self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_at_the_goal_meets_it() {
        assert_eq!(Goal::at_most(0.6).judge(0.6), "≤ 0.6: met");
        assert_eq!(Goal::at_most_of(48.0, " B").judge(48.5), "≤ 48 B: NOT met");
        assert_eq!(Goal::at_least(1.0).judge(1.0), "≥ 1: met");
        assert_eq!(Goal::at_least(1.0).judge(0.9), "≥ 1: NOT met");
    }

    #[test]
    fn what_could_not_be_measured_does_not_meet_a_goal() {
        assert_eq!(Goal::at_most(0.6).judge(f64::NAN), "≤ 0.6: NOT met");
        assert_eq!(Goal::at_least(1.0).judge(f64::NAN), "≥ 1: NOT met");
    }
}
