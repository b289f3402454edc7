//! What a figure should be.

/// The most that a figure should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    most: f64,
    unit: &'static str,
}

impl Goal {
    /// A figure without a unit: a ratio or a count.
    pub(crate) const fn at_most(most: f64) -> Self {
        Goal { most, unit: "" }
    }

    /// A figure with a unit.
    pub(crate) const fn at_most_of(most: f64, unit: &'static str) -> Self {
        Goal { most, unit }
    }

    /// The goal in words, and whether the figure meets it. A figure that is
    /// not a number does not.
    pub(crate) fn judge(&self, figure: f64) -> String {
        let said = if figure <= self.most { "met" } else { "NOT met" };
        format!("≤ {}{}: {said}", self.most, self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_at_the_goal_meets_it() {
        assert_eq!(Goal::at_most(0.6).judge(0.6), "≤ 0.6: met");
        assert_eq!(Goal::at_most_of(48.0, " B").judge(48.5), "≤ 48 B: NOT met");
    }

    #[test]
    fn what_could_not_be_measured_does_not_meet_a_goal() {
        assert_eq!(Goal::at_most(0.6).judge(f64::NAN), "≤ 0.6: NOT met");
    }
}
