//! The goals of the evaluation plan, and whether they were reached.
//!
//! A goal is judged on the median over the seeds; the worst is shown too. A goal beside a baseline
//! compares medians.

use super::contender::Contender;
use super::metric::{Better, Metric};
use super::report::{ContenderResult, Round};
use super::scenario::Scenario;

/// Smaller differences are ignored: requests in flight at either end of a window cause as much.
const EQUAL: f64 = 0.001;

/// A goal and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The scenario.
    pub scenario: Scenario,
    /// The metric.
    pub metric: Metric,
    /// The baseline of a ratio; none for an absolute goal.
    pub versus: Option<Contender>,
    /// The goal: a value, or the ratio of ours to theirs.
    pub wanted: f64,
    /// Our median.
    pub ours: f64,
    /// Our worst.
    pub worst: f64,
    /// Their median.
    pub theirs: Option<f64>,
    /// The result: our value, or the ratio of ours to theirs.
    pub reached: f64,
}

impl Goal {
    /// Whether the goal was reached.
    pub fn is_met(&self) -> bool {
        match self.metric.better() {
            Better::Higher => self.reached >= self.wanted * (1.0 - EQUAL),
            Better::Lower => self.reached <= self.wanted * (1.0 + EQUAL),
        }
    }
}

/// The baseline of a ratio, if any, and the goal.
type WantedValue = (Option<Contender>, f64);

/// The goals of the step, from the plan's table.
const STEP: &[(Metric, &[WantedValue])] = &[
    (
        Metric::CriticalSteady,
        &[
            (None, 0.995),
            (Some(Contender::Unprotected), 20.0),
            (Some(Contender::Static), 9.0),
            (Some(Contender::Vegas), 8.0),
            (Some(Contender::Gradient2), 8.0),
            (Some(Contender::VegasPartitioned), 1.0),
            (Some(Contender::Gradient2Partitioned), 1.0),
            (Some(Contender::Failsafe), 1.05),
            (Some(Contender::Stripe), 1.0),
        ],
    ),
    (
        Metric::CriticalOnset,
        &[
            (None, 0.97),
            (Some(Contender::Unprotected), 10.0),
            (Some(Contender::Static), 9.0),
            (Some(Contender::VegasPartitioned), 1.0),
            (Some(Contender::Gradient2Partitioned), 1.0),
            (Some(Contender::Failsafe), 1.2),
            (Some(Contender::Stripe), 5.0),
        ],
    ),
    (
        Metric::Goodput,
        &[
            (None, 0.95),
            (Some(Contender::Unprotected), 20.0),
            (Some(Contender::Static), 0.95),
            (Some(Contender::Vegas), 1.0),
            (Some(Contender::Gradient2), 1.0),
            (Some(Contender::VegasPartitioned), 1.0),
            (Some(Contender::Gradient2Partitioned), 1.0),
            (Some(Contender::Failsafe), 1.0),
            (Some(Contender::Stripe), 1.2),
        ],
    ),
    (
        Metric::P99Ratio,
        &[
            (None, 1.5),
            (Some(Contender::Unprotected), 0.1),
            (Some(Contender::Static), 1.0),
            (Some(Contender::Vegas), 0.6),
            (Some(Contender::Gradient2), 0.6),
            (Some(Contender::VegasPartitioned), 0.7),
            (Some(Contender::Gradient2Partitioned), 0.7),
            (Some(Contender::Failsafe), 0.5),
            (Some(Contender::Stripe), 0.8),
        ],
    ),
    (
        Metric::Oscillation,
        &[
            (None, 0.05),
            (Some(Contender::Vegas), 0.5),
            (Some(Contender::Gradient2), 0.5),
            (Some(Contender::Failsafe), 0.5),
            (Some(Contender::Stripe), 0.25),
        ],
    ),
    (
        Metric::Oscillation10s,
        &[(None, 0.05), (Some(Contender::Failsafe), 0.5), (Some(Contender::Stripe), 0.25)],
    ),
    (
        Metric::Reversals,
        &[(None, 1.0), (Some(Contender::Failsafe), 0.5), (Some(Contender::Stripe), 0.25)],
    ),
    (Metric::ShedAfter, &[(None, 45.0), (Some(Contender::Stripe), 0.4)]),
    (Metric::ServedOfGate, &[(None, 1.0)]),
    (Metric::RestoredAfter, &[(None, 10.0)]),
    (Metric::ShedAgain, &[(None, 0.0)]),
    (Metric::Inversion, &[(None, 0.0)]),
];

/// Goals of the other scenarios.
const OTHERS: &[(Scenario, Metric, Option<Contender>, f64)] = &[
    (Scenario::Drift, Metric::LimitGrowth, None, 0.1),
    (Scenario::Drift, Metric::LevelGrowth, None, 0.1),
    // Three turns a minute are two in a period of 40 s.
    (Scenario::FlapBait, Metric::Reversals, None, 3.0),
    (Scenario::Spike, Metric::CriticalSteady, None, 0.999),
    (Scenario::Tripwire, Metric::Score, Some(Contender::Vegas), 1.05),
    (Scenario::Tripwire, Metric::Score, Some(Contender::Gradient2), 1.05),
    (Scenario::Healthy, Metric::Refused, None, 0.0),
    (Scenario::Healthy, Metric::RefusedCritical, None, 0.0),
    (Scenario::Healthy, Metric::LevelGrowth, None, 0.0),
    // Half of the tasks fit.
    (Scenario::TwoCalls, Metric::Tasks, None, 0.45),
    (Scenario::TwoCalls, Metric::Tasks, Some(Contender::Codel), 1.3),
];

/// The results of all goals of these rounds, without those whose baseline did not take part.
pub(crate) fn judge(rounds: &[Round]) -> Vec<Goal> {
    let step = STEP.iter().flat_map(|(metric, goals)| {
        goals.iter().map(|(versus, wanted)| (Scenario::Step, *metric, *versus, *wanted))
    });
    let all = step.chain(OTHERS.iter().copied());
    all.filter_map(|(scenario, metric, versus, wanted)| {
        let round = rounds.iter().find(|round| round.scenario == scenario)?;
        let ours = round.of(Contender::Tidegate)?.spread(metric)?;
        let median = |standing: &ContenderResult| Some(standing.spread(metric)?.median);
        let theirs = match versus {
            Some(contender) => Some(round.of(contender).and_then(median)?),
            None => None,
        };
        let reached = theirs.map_or(ours.median, |theirs| ratio(ours.median, theirs));
        let (ours, worst) = (ours.median, ours.worst);
        Some(Goal { scenario, metric, versus, wanted, ours, worst, theirs, reached })
    })
    .collect()
}

/// Ours over theirs; 1 for equal values, also for zeros.
fn ratio(ours: f64, theirs: f64) -> f64 {
    if ours == theirs { 1.0 } else { ours / theirs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::measures::Measures;

    fn standing(contender: Contender, goodput: f64) -> ContenderResult {
        let seeds = vec![Measures { goodput, ..Measures::default() }];
        ContenderResult { contender, tuned: None, seeds, seconds: Vec::new() }
    }

    #[test]
    fn a_goal_is_judged_alone_or_beside_a_baseline_that_took_part() {
        let standings = vec![standing(Contender::Tidegate, 0.96), standing(Contender::Stripe, 0.9)];
        let round = Round {
            scenario: Scenario::Step,
            capacity: 1.0,
            overload: Vec::new(),
            peak_load: 1.0,
            standings,
        };
        let goals = judge(&[round]);
        let of = |versus| {
            let found = |goal: &&Goal| goal.metric == Metric::Goodput && goal.versus == versus;
            goals.iter().find(found).map(Goal::is_met)
        };
        assert_eq!(of(None), Some(true));
        assert_eq!(of(Some(Contender::Stripe)), Some(false));
        assert_eq!(of(Some(Contender::Static)), None);
    }

    #[test]
    fn a_thousandth_is_no_difference() {
        let goal = |metric, reached| Goal {
            scenario: Scenario::Step,
            metric,
            versus: None,
            wanted: 1.0,
            ours: reached,
            worst: reached,
            theirs: None,
            reached,
        };
        assert!(goal(Metric::Goodput, 0.9995).is_met() && !goal(Metric::Goodput, 0.998).is_met());
        assert!(goal(Metric::P99Ratio, 1.0005).is_met() && !goal(Metric::P99Ratio, 1.002).is_met());
    }

    #[test]
    fn nothing_beside_nothing_is_the_same() {
        assert_eq!(ratio(0.0, 0.0), 1.0);
        assert_eq!(ratio(0.5, 0.0), f64::INFINITY);
    }
}
