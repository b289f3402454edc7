//! The results of a run.

use std::ops::Range;

use super::contender::Contender;
use super::fleet::FleetFindings;
use super::goals::Goal;
use super::measures::Measures;
use super::metric::{Metric, Spread};
use super::record::Second;
use super::scenario::Scenario;

/// The results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The command that repeats the run.
    pub command: String,
    /// One for each scenario.
    pub rounds: Vec<Round>,
    /// The goals and the results.
    pub goals: Vec<Goal>,
    /// The results of the fleet, if it was simulated.
    pub fleet: Option<FleetFindings>,
}

impl Report {
    /// The round of a scenario, if it was run.
    pub fn round(&self, scenario: Scenario) -> Option<&Round> {
        self.rounds.iter().find(|round| round.scenario == scenario)
    }
}

/// The results of one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// The scenario.
    pub scenario: Scenario,
    /// Requests a second that the server can serve.
    pub capacity: f64,
    /// The seconds in which more arrives than the server can serve.
    pub overload: Vec<Range<usize>>,
    /// The highest load, in capacities.
    pub peak_load: f64,
    /// The result of each contender.
    pub standings: Vec<ContenderResult>,
}

impl Round {
    /// The result of a contender with its published settings, if it took part.
    pub fn of(&self, contender: Contender) -> Option<&ContenderResult> {
        let published = |standing: &&ContenderResult| {
            standing.contender == contender && standing.tuned.is_none()
        };
        self.standings.iter().find(published)
    }
}

/// One contender in one scenario, over all seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct ContenderResult {
    /// The contender.
    pub contender: Contender,
    /// The settings, when they are the best of a small grid instead of the published ones.
    pub tuned: Option<String>,
    pub(crate) seeds: Vec<Measures>,
    /// The first seed, second by second.
    pub(crate) seconds: Vec<Second>,
}

impl ContenderResult {
    /// A metric over all seeds; `None` when it has no meaning in this scenario.
    pub fn spread(&self, metric: Metric) -> Option<Spread> {
        Spread::over(metric, &self.seeds)
    }

    /// The name in tables.
    pub fn name(&self) -> String {
        let name = self.contender.name();
        if self.tuned.is_some() { format!("{name} (tuned)") } else { name.to_owned() }
    }
}
