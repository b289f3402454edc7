//! The `overload` command: parses options, and writes the report.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use crate::overload::{
    Contender, Discipline, FACTOR_MAX, FACTOR_MIN, Format, Mix, OVERLOAD_SECONDS_MAX, Options,
    Progress, RefusalCost, SEEDS_MAX, Scenario, ServiceTimes, THREADS_MAX, WORKERS_MAX, run,
};
use clap::Args;

/// What to play, and how to tell it.
#[derive(Debug, Args)]
pub struct OverloadArguments {
    /// Scenarios by name, or `all`.
    #[arg(long, value_delimiter = ',', default_value = "step", value_parser = scenario)]
    scenario: Vec<Vec<Scenario>>,
    /// What the traffic is made of: m1, m2 or m3.
    #[arg(long, default_value = "m1", value_parser = mix)]
    mix: Mix,
    /// How many capacities the step goes up to.
    #[arg(long, default_value_t = 10.0, value_parser = factor)]
    factor: f64,
    /// How many capacities the step comes down to.
    #[arg(long, default_value_t = 0.5, value_parser = factor)]
    after: f64,
    /// Workers of the server.
    #[arg(long, default_value_t = 64, value_parser = within(1..=WORKERS_MAX))]
    workers: u32,
    /// How requests share the workers: workers or sharing.
    #[arg(long, default_value = "workers", value_parser = model)]
    model: Discipline,
    /// How long work takes: lognormal, exponential, bimodal, slow or fixed-50ms.
    #[arg(long, default_value = "lognormal", value_parser = service)]
    service: ServiceTimes,
    /// What refusing costs: by-place, threshold, gate or handler.
    #[arg(long, default_value = "by-place", value_parser = cost)]
    refusal_cost: RefusalCost,
    /// How long the overload of a step lasts.
    #[arg(long, default_value_t = 300, value_parser = within(3..=OVERLOAD_SECONDS_MAX))]
    overload_seconds: u64,
    /// Who takes part, by name, or `all`.
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = contender)]
    contenders: Vec<Vec<Contender>>,
    /// Baselines also take part with the best setting of a small grid.
    #[arg(long)]
    tuned: bool,
    /// A fleet is played too: a dead node, a silent board.
    #[arg(long)]
    fleet: bool,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 10, value_parser = within(1..=SEEDS_MAX))]
    seeds: u64,
    /// Threads that play; the report is the same with any number.
    #[arg(long, default_value_t = 1, value_parser = within(1..=THREADS_MAX))]
    threads: usize,
    /// How tables are printed: text, markdown or json.
    #[arg(long, default_value = "text", value_parser = format)]
    format: Format,
    /// A folder for tables, JSON and charts.
    #[arg(long)]
    out: Option<PathBuf>,
}

impl OverloadArguments {
    /// Plays, and writes the tables; how far it is goes to standard error.
    ///
    /// # Errors
    /// When the tables or the files cannot be written.
    pub fn run(&self, out: &mut impl Write) -> io::Result<()> {
        let report = run(&self.options(), &show);
        writeln!(out, "{}", report.render(self.format))?;
        let Some(folder) = &self.out else { return Ok(()) };
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
        };
        for file in report.write_to(folder).map_err(named)? {
            eprintln!("wrote {}", file.display());
        }
        Ok(())
    }

    fn options(&self) -> Options {
        Options {
            scenarios: self.scenario.concat(),
            mix: self.mix,
            factor: self.factor,
            after: self.after,
            workers: self.workers,
            discipline: self.model,
            service: self.service,
            refusal_cost: self.refusal_cost,
            overload_seconds: self.overload_seconds,
            contenders: self.contenders.concat(),
            tuned: self.tuned,
            fleet: self.fleet,
            first_seed: self.first_seed,
            seeds: self.seeds,
            threads: self.threads,
        }
    }
}

/// Shows progress: a line that changes on a terminal, otherwise a line for each scenario.
fn show(progress: Progress) {
    let Progress { scenario, done, of } = progress;
    if io::stderr().is_terminal() {
        eprint!("\r{}: {done} of {of}   ", scenario.name());
    } else if done == of {
        eprint!("{}: {of} episodes played", scenario.name());
    }
    if done == of {
        eprintln!();
    }
}

fn named<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        format!("one of {}", names.join(", "))
    })
}

/// Rejects numbers that the simulator would clamp.
fn within<T>(bounds: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| format!("a number from {} to {}", bounds.start(), bounds.end()))
    }
}

fn factor(text: &str) -> Result<f64, String> {
    within(FACTOR_MIN..=FACTOR_MAX)(text)
}

fn scenario(text: &str) -> Result<Vec<Scenario>, String> {
    if text == "all" {
        return Ok(Scenario::ALL.to_vec());
    }
    named(text, &Scenario::ALL, Scenario::name).map(|one| vec![one])
}

fn contender(text: &str) -> Result<Vec<Contender>, String> {
    if text == "all" {
        return Ok(Contender::ALL.to_vec());
    }
    named(text, &Contender::ALL, Contender::name).map(|one| vec![one])
}

fn mix(text: &str) -> Result<Mix, String> {
    named(text, &Mix::ALL, Mix::name)
}

fn model(text: &str) -> Result<Discipline, String> {
    named(text, &Discipline::ALL, Discipline::name)
}

fn service(text: &str) -> Result<ServiceTimes, String> {
    named(text, &ServiceTimes::ALL, ServiceTimes::name)
}

fn cost(text: &str) -> Result<RefusalCost, String> {
    named(text, &RefusalCost::ALL, RefusalCost::name)
}

fn format(text: &str) -> Result<Format, String> {
    named(text, &[Format::Text, Format::Markdown, Format::Json], |format| match format {
        Format::Text => "text",
        Format::Markdown => "markdown",
        Format::Json => "json",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        assert!(Scenario::ALL.iter().all(|one| scenario(one.name()) == Ok(vec![*one])));
        assert!(Contender::ALL.iter().all(|one| contender(one.name()) == Ok(vec![*one])));
        assert_eq!(scenario("all").map(|all| all.len()), Ok(Scenario::ALL.len()));
        assert!(mix("m4").unwrap_err().contains("m1, m2, m3"));
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        assert_eq!(factor("1.5"), Ok(1.5));
        for wrong in ["0", "-1", "nan", "inf", "1e300", "", "ten"] {
            assert_eq!(factor(wrong), Err("a number from 0.1 to 100".to_owned()), "{wrong}");
        }
        let seeds = within(1..=SEEDS_MAX);
        assert_eq!((seeds("1"), seeds("1000")), (Ok(1), Ok(1_000)));
        for wrong in ["0", "1001", "18446744073709551616", "-1", "1.5"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }
}
