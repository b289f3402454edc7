//! What a run found, ready to be shown.

use std::ops::Range;

use super::contender::Contender;
use super::fleet::FleetFindings;
use super::goals::Goal;
use super::measures::Measures;
use super::metric::{Metric, Spread};
use super::record::Second;
use super::scenario::Scenario;

/// All of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How to make it again.
    pub command: String,
    /// One for each scenario.
    pub rounds: Vec<Round>,
    /// What was to be reached, and what was.
    pub goals: Vec<Goal>,
    /// What became of a fleet, if one was played.
    pub fleet: Option<FleetFindings>,
}

impl Report {
    /// The round of a scenario, if it was run.
    pub fn round(&self, scenario: Scenario) -> Option<&Round> {
        self.rounds.iter().find(|round| round.scenario == scenario)
    }
}

/// One scenario, all contenders.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// What happened.
    pub scenario: Scenario,
    /// Requests a second that the server can serve.
    pub capacity: f64,
    /// The seconds in which more arrives than the server can serve.
    pub overload: Vec<Range<usize>>,
    /// The highest load, in capacities.
    pub peak_load: f64,
    /// How each did.
    pub standings: Vec<ContenderResult>,
}

impl Round {
    /// How a contender did as published, if it took part.
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
    /// Who.
    pub contender: Contender,
    /// With which settings, when they are the best of a small grid and not the published ones.
    pub tuned: Option<String>,
    pub(crate) seeds: Vec<Measures>,
    /// The first seed, second by second.
    pub(crate) seconds: Vec<Second>,
}

impl ContenderResult {
    /// A number over all seeds; `None` when it means nothing here.
    pub fn spread(&self, metric: Metric) -> Option<Spread> {
        Spread::over(metric, &self.seeds)
    }

    /// The name in tables.
    pub fn name(&self) -> String {
        let name = self.contender.name();
        if self.tuned.is_some() { format!("{name} (tuned)") } else { name.to_owned() }
    }
}
