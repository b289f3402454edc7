//! Renders a report: tables, JSON and charts.

mod chart;
mod json;
mod table;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use chart::Chart;

pub(crate) use self::table::Table;
use super::Options;
use super::contender::Contender;
use super::fleet::FleetFindings;
use super::goals::Goal;
use super::metric::{Better, Metric};
use super::report::{Report, Round};

/// The format of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns for a terminal.
    Text,
    /// Markdown for a document.
    Markdown,
    /// JSON for a program.
    Json,
}

/// The columns of a round.
const COLUMNS: [(Metric, &str); 13] = [
    (Metric::CriticalOnset, "critical, onset"),
    (Metric::CriticalSteady, "critical, steady"),
    (Metric::Goodput, "goodput / C"),
    (Metric::ServedOfGate, "served / gate"),
    (Metric::CriticalP99, "critical p99, ms"),
    (Metric::Oscillation, "oscillation"),
    (Metric::Oscillation10s, "over 10 s"),
    (Metric::Reversals, "turns / min"),
    (Metric::ShedAfter, "shed, s"),
    (Metric::RestoredAfter, "restored, s"),
    (Metric::Inversion, "inversion"),
    (Metric::Refusing, "refusing"),
    (Metric::Stickiness, "sticky"),
];

/// Columns of some scenarios.
const FURTHER: [(Metric, &str); 7] = [
    (Metric::LimitGrowth, "limit grows"),
    (Metric::LevelGrowth, "level grows"),
    (Metric::Refused, "refused"),
    (Metric::RefusedCritical, "critical refused"),
    (Metric::Tasks, "tasks"),
    (Metric::Score, "score"),
    (Metric::Amplification, "requests made"),
];

impl Report {
    /// The whole report in a format.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Json => json::render(self),
            Format::Text | Format::Markdown => {
                let mut parts: Vec<String> =
                    self.rounds.iter().map(|round| render_round(round, format)).collect();
                if !self.goals.is_empty() {
                    parts.push(format!(
                        "{}\n\n{}",
                        heading("Goals", format),
                        goals(&self.goals, format)
                    ));
                }
                if let Some(fleet) = &self.fleet {
                    let title = heading("S9, S10: ten nodes, one board", format);
                    parts.push(format!("{title}\n\n{}", fleet_goals(fleet, format)));
                }
                parts.push(format!("Made by: {}", self.command));
                parts.join("\n\n") + "\n"
            }
        }
    }

    /// Writes tables, JSON and charts into a folder, and returns their paths.
    ///
    /// # Errors
    /// When the folder or a file cannot be written.
    pub fn write_to(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::create_dir_all(folder)?;
        let mut files = vec![
            (folder.join("overload.md"), self.render(Format::Markdown)),
            (folder.join("overload.json"), self.render(Format::Json)),
        ];
        for round in &self.rounds {
            for chart in Chart::ALL {
                let name = format!("{}-{}.svg", round.scenario.name(), chart.name());
                files.push((folder.join(name), chart.draw(round)));
            }
        }
        for (path, text) in &files {
            fs::write(path, text)?;
        }
        Ok(files.into_iter().map(|(path, _)| path).collect())
    }
}

/// The command that makes the same report.
pub(crate) fn command(options: &Options) -> String {
    let usual = Options::default();
    let mut words = vec!["tidegate simulate overload".to_owned()];
    if options.scenarios != usual.scenarios {
        let names: Vec<&str> = options.scenarios.iter().map(|scenario| scenario.name()).collect();
        words.push(format!("--scenario {}", names.join(",")));
    }
    if options.contenders != usual.contenders {
        let names: Vec<&str> = options.contenders.iter().map(|who| who.name()).collect();
        words.push(format!("--contenders {}", names.join(",")));
    }
    for (differs, word) in [
        (options.mix != usual.mix, format!("--mix {}", options.mix.name())),
        (options.factor != usual.factor, format!("--factor {}", options.factor)),
        (options.after != usual.after, format!("--after {}", options.after)),
        (options.workers != usual.workers, format!("--workers {}", options.workers)),
        (options.discipline != usual.discipline, format!("--model {}", options.discipline.name())),
        (options.service != usual.service, format!("--service {}", options.service.name())),
        (
            options.refusal_cost != usual.refusal_cost,
            format!("--refusal-cost {}", options.refusal_cost.name()),
        ),
        (
            options.overload_seconds != usual.overload_seconds,
            format!("--overload-seconds {}", options.overload_seconds),
        ),
        (options.tuned, "--tuned".to_owned()),
        (options.fleet, "--fleet".to_owned()),
        (options.first_seed != usual.first_seed, format!("--first-seed {}", options.first_seed)),
        (options.seeds != usual.seeds, format!("--seeds {}", options.seeds)),
    ] {
        if differs {
            words.push(word);
        }
    }
    words.join(" ")
}

fn heading(text: &str, format: Format) -> String {
    match format {
        Format::Markdown => format!("### {text}"),
        Format::Text | Format::Json => text.to_owned(),
    }
}

fn render_round(round: &Round, format: Format) -> String {
    let has_values = |metric: Metric| {
        round.standings.iter().any(|standing| {
            standing
                .spread(metric)
                .is_some_and(|spread| spread.worst != 0.0 || spread.median != 0.0)
        })
    };
    let further = FURTHER.iter().filter(|(metric, _)| belongs(round, *metric));
    let columns: Vec<(Metric, &str)> =
        COLUMNS.iter().filter(|(metric, _)| has_values(*metric)).chain(further).copied().collect();
    let mut header = vec!["".to_owned()];
    header.extend(columns.iter().map(|(_, title)| (*title).to_owned()));
    let mut table = Table::new(header);
    for standing in &round.standings {
        let mut row = vec![standing.name()];
        row.extend(columns.iter().map(|(metric, _)| match standing.spread(*metric) {
            Some(spread) => format!("{} ({})", number(spread.median), number(spread.worst)),
            None => "-".to_owned(),
        }));
        table.push(row);
    }
    let title = format!(
        "{} {}, capacity {} requests/s: median (worst)",
        round.scenario.number(),
        round.scenario.name(),
        number(round.capacity)
    );
    let mut text = format!("{}\n\n{}", heading(&title, format), table.render(format));
    let tuned = round.standings.iter().filter_map(|standing| {
        standing.tuned.as_ref().map(|label| format!("{}: {label}", standing.name()))
    });
    let tuned: Vec<String> = tuned.collect();
    if !tuned.is_empty() {
        text.push_str(&format!("\n\nBest of the grid: {}.", tuned.join("; ")));
    }
    text
}

/// Whether one of the [`FURTHER`] columns belongs to this scenario.
fn belongs(round: &Round, metric: Metric) -> bool {
    use super::scenario::Scenario as S;
    match metric {
        Metric::LimitGrowth | Metric::LevelGrowth => round.scenario == S::Drift,
        Metric::Refused | Metric::RefusedCritical => round.scenario == S::Healthy,
        Metric::Tasks => round.scenario == S::TwoCalls,
        Metric::Score => round.scenario == S::Tripwire,
        Metric::Amplification => matches!(round.scenario, S::Retries | S::RetriesUnbounded),
        _ => false,
    }
}

fn goals(goals: &[Goal], format: Format) -> String {
    let header = ["scenario", "metric", "beside", "ours (worst)", "theirs", "ratio", "goal", "met"];
    let mut table = Table::new(header.map(str::to_owned).to_vec());
    for goal in goals {
        let sign = match goal.metric.better() {
            Better::Higher => "≥",
            Better::Lower => "≤",
        };
        let times = if goal.versus.is_some() { "×" } else { "" };
        table.push(vec![
            goal.scenario.number().to_owned(),
            goal.metric.name().to_owned(),
            goal.versus.map_or("-", Contender::name).to_owned(),
            format!("{} ({})", number(goal.ours), number(goal.worst)),
            goal.theirs.map_or("-".to_owned(), number),
            goal.theirs.map_or("-".to_owned(), |_| number(goal.reached)),
            format!("{sign} {}{times}", number(goal.wanted)),
            if goal.is_met() { "yes" } else { "**no**" }.to_owned(),
        ]);
    }
    table.render(format)
}

fn fleet_goals(fleet: &FleetFindings, format: Format) -> String {
    let mut table = Table::new(["", "reached", "goal", "met"].map(str::to_owned).to_vec());
    for (name, reached, wanted, met) in fleet.goals() {
        let met = if met { "yes" } else { "**no**" };
        table.push(vec![name.to_owned(), number(reached), number(wanted), met.to_owned()]);
    }
    table.render(format)
}

/// A number with three to four significant digits.
pub(crate) fn number(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        "∞".to_owned()
    } else if number.fract() == 0.0 || size >= 100.0 {
        format!("{number:.0}")
    } else if size >= 10.0 {
        format!("{number:.1}")
    } else if (0.9..1.0).contains(&size) {
        format!("{number:.4}")
    } else {
        format!("{number:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_they_deserve() {
        let numbers = [0.0, 0.99987, 0.05, 1.234, 12.34, 3_200.4, f64::INFINITY].map(number);
        assert_eq!(numbers, ["0", "0.9999", "0.050", "1.234", "12.3", "3200", "∞"]);
    }

    #[test]
    fn the_command_names_what_differs_from_the_default() {
        assert_eq!(command(&Options::default()), "tidegate simulate overload");
        let options = Options { factor: 3.0, seeds: 2, tuned: true, ..Options::default() };
        assert_eq!(command(&options), "tidegate simulate overload --factor 3 --tuned --seeds 2");
    }
}
