//! Overload in virtual time: Tidegate beside other load shedders.
//!
//! A run simulates scenarios of load on a server, for each contender and each seed. Tidegate is the
//! production code of `tidegate-overload`; the others are small ports (`shield`). Arrivals are open
//! loop, time is virtual, and everything follows from the seed.
//!
//! | Module | Contents |
//! |---|---|
//! | `load`, `draw` | arrivals and service times |
//! | `server` | workers, and how requests share them |
//! | `clients` | timeouts, retries, tasks of two calls |
//! | `shield` | Tidegate and the baselines |
//! | `scenario`, `contender` | the scenarios and the contenders |
//! | `fleet` | several nodes, of which one dies, and a board that stops answering |
//! | `episode`, `record` | one simulated run and its record |
//! | `measures`, `metric`, `goals` | the metrics and their goals |
//! | `report`, `render` | the results and their formats |
//!
//! Sockets and real time are not simulated; the gateway's tests and benchmarks have them.

mod clients;
mod contender;
mod draw;
mod episode;
mod fleet;
mod goals;
mod load;
mod measures;
mod metric;
mod record;
mod render;
mod report;
mod scenario;
mod server;
mod shield;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use contender::Contender;
pub use episode::RefusalCost;
pub use fleet::FleetFindings;
pub use goals::Goal;
pub use load::ServiceTimes;
pub use metric::{Better, Metric, Spread};
pub(crate) use render::Table;
pub use render::{Chart, Format};
pub use report::{ContenderResult, Report, Round};
pub use scenario::{Mix, Scenario};
pub use server::Discipline;
pub use shield::RefusalStage;

use contender::Entry;
use measures::Measures;
use record::Second;
use scenario::{Script, Setting};

/// The seeds on which the best setting of a grid is chosen.
const GRID_SEEDS: u64 = 2;
/// Bounds of the options, so that a run ends and fits into memory.
pub(crate) const WORKERS_MAX: u32 = 4_096;
pub(crate) const SEEDS_MAX: u64 = 1_000;
/// With less load shares of requests mean nothing.
pub(crate) const FACTOR_MIN: f64 = 0.1;
pub(crate) const FACTOR_MAX: f64 = 100.0;
pub(crate) const OVERLOAD_SECONDS_MAX: u64 = 3_600;
pub(crate) const THREADS_MAX: usize = 64;

/// The options of a run. Numbers out of bounds are clamped.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The scenarios. Default: the step.
    pub scenarios: Vec<Scenario>,
    /// The mix of categories. Default: M1.
    pub mix: Mix,
    /// How many capacities the step goes up to, from 0.1 to 100. Default: 10.
    pub factor: f64,
    /// How many capacities the step comes down to, from 0.1 to 100. Default: 0.5.
    pub after: f64,
    /// Workers of the server, to 4096. Default: 64.
    pub workers: u32,
    /// How requests share the workers. Default: one request each.
    pub discipline: Discipline,
    /// The service times. Default: lognormal, 20 ms.
    pub service: ServiceTimes,
    /// The cost of a refusal. Default: that of the stage that refuses.
    pub refusal_cost: RefusalCost,
    /// How long the overload of a step lasts, to an hour. Default: 300 s.
    pub overload_seconds: u64,
    /// The contenders. Default: all.
    pub contenders: Vec<Contender>,
    /// Whether baselines also take part with the best setting of a small grid. Default: no.
    pub tuned: bool,
    /// Whether a fleet is simulated too: a dead node, a silent board. Default: no.
    pub fleet: bool,
    /// The first seed. Default: 1.
    pub first_seed: u64,
    /// How many seeds, to 1000. Default: 10.
    pub seeds: u64,
    /// Threads, to 64. The report is the same with any number. Default: 1.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            scenarios: vec![Scenario::Step],
            mix: Mix::M1,
            factor: 10.0,
            after: 0.5,
            workers: 64,
            discipline: Discipline::Workers,
            service: ServiceTimes::Lognormal,
            refusal_cost: RefusalCost::ByStage,
            overload_seconds: 300,
            contenders: Contender::ALL.to_vec(),
            tuned: false,
            fleet: false,
            first_seed: 1,
            seeds: 10,
            threads: 1,
        }
    }
}

impl Options {
    fn within_bounds(&self) -> Self {
        let bounded =
            |load: f64| if load.is_finite() { load.clamp(FACTOR_MIN, FACTOR_MAX) } else { 1.0 };
        Options {
            factor: bounded(self.factor),
            after: bounded(self.after),
            workers: self.workers.clamp(1, WORKERS_MAX),
            seeds: self.seeds.clamp(1, SEEDS_MAX),
            overload_seconds: self.overload_seconds.clamp(3, OVERLOAD_SECONDS_MAX),
            threads: self.threads.clamp(1, THREADS_MAX),
            ..self.clone()
        }
    }

    fn script(&self, scenario: Scenario) -> Script {
        let Options { mix, factor, after, workers, discipline, service, overload_seconds, .. } =
            *self;
        Setting { scenario, mix, factor, after, workers, discipline, service, overload_seconds }
            .script()
    }

    fn seeds(&self) -> Vec<u64> {
        (0..self.seeds).map(|seed| self.first_seed.wrapping_add(seed)).collect()
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The present scenario.
    pub scenario: Scenario,
    /// Its finished episodes.
    pub done: usize,
    /// All its episodes.
    pub of: usize,
}

/// Simulates everything that the options select.
pub fn run(options: &Options, progress: &(dyn Fn(Progress) + Sync)) -> Report {
    let options = options.within_bounds();
    let rounds: Vec<Round> = options
        .scenarios
        .iter()
        .map(|scenario| play_round(&options, *scenario, progress))
        .collect();
    let goals = goals::judge(&rounds);
    let fleet = options.fleet.then(fleet::play);
    Report { command: render::command(&options), rounds, goals, fleet }
}

fn play_round(
    options: &Options,
    scenario: Scenario,
    progress: &(dyn Fn(Progress) + Sync),
) -> Round {
    let script = options.script(scenario);
    let stage = Stage { options, script: &script, scenario, progress };
    let mut entries: Vec<(Contender, Option<String>, Entry)> = options
        .contenders
        .iter()
        .map(|contender| (*contender, None, Entry::published(*contender)))
        .collect();
    if options.tuned {
        entries.extend(stage.tuned());
    }
    let seeds = options.seeds();
    let jobs: Vec<Job> = entries
        .iter()
        .flat_map(|(_, _, entry)| seeds.iter().map(|seed| Job { entry: *entry, seed: *seed }))
        .collect();
    let mut played = stage.play(&jobs).into_iter();
    let standings = entries.into_iter().map(|(contender, tuned, _)| {
        let (seeds, mut seconds): (Vec<Measures>, Vec<Vec<Second>>) =
            played.by_ref().take(seeds.len()).unzip();
        let seconds = if seconds.is_empty() { Vec::new() } else { seconds.swap_remove(0) };
        ContenderResult { contender, tuned, seeds, seconds }
    });
    let mut standings: Vec<ContenderResult> = standings.collect();
    measures::compare_served(&mut standings);
    Round {
        scenario,
        capacity: script.capacity(),
        overload: script.overload(),
        peak_load: script.loads().fold(0.0, f64::max),
        standings,
    }
}

#[derive(Clone, Copy, Debug)]
struct Job {
    entry: Entry,
    seed: u64,
}

/// A scenario with its options.
struct Stage<'a> {
    options: &'a Options,
    script: &'a Script,
    scenario: Scenario,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl Stage<'_> {
    /// Simulates all jobs. The results have the order of the jobs.
    fn play(&self, jobs: &[Job]) -> Vec<(Measures, Vec<Second>)> {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let answers: Mutex<Vec<_>> = Mutex::new(vec![None; jobs.len()]);
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else { return };
                let answer = self.play_one(job, index);
                if let Some(slot) = answers.lock().expect("no episode panicked").get_mut(index) {
                    *slot = Some(answer);
                }
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                (self.progress)(Progress { scenario: self.scenario, done, of: jobs.len() });
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.options.threads.min(jobs.len()) {
                scope.spawn(work);
            }
            work();
        });
        let answers = answers.into_inner().expect("no episode panicked");
        answers.into_iter().flatten().collect()
    }

    fn play_one(&self, job: &Job, index: usize) -> (Measures, Vec<Second>) {
        let record = job.entry.play(self.script, self.options.refusal_cost, job.seed);
        let measures = Measures::of(self.script, &record);
        // Charts show the first seed only.
        let seeds = usize::try_from(self.options.seeds).unwrap_or(1).max(1);
        let shown = index.is_multiple_of(seeds);
        (measures, if shown { record.seconds } else { Vec::new() })
    }

    /// The best setting of each baseline's grid on a few seeds.
    fn tuned(&self) -> Vec<(Contender, Option<String>, Entry)> {
        let best = |contender: &Contender| {
            let mut grid = Entry::grid(*contender);
            if grid.is_empty() {
                return None;
            }
            grid.push(("as published".to_owned(), Entry::published(*contender)));
            let seeds: Vec<u64> = self.options.seeds().into_iter().take(seeds_of_grid()).collect();
            let jobs: Vec<Job> = grid
                .iter()
                .flat_map(|(_, entry)| seeds.iter().map(|seed| Job { entry: *entry, seed: *seed }))
                .collect();
            let played = self.play(&jobs);
            let worth = |index: usize| {
                let own = played.iter().skip(index * seeds.len()).take(seeds.len());
                own.map(|(measures, _)| worth(measures)).sum::<f64>()
            };
            let index = (0..grid.len()).max_by(|a, b| worth(*a).total_cmp(&worth(*b)))?;
            let (label, entry) = grid.swap_remove(index);
            Some((*contender, Some(label), entry))
        };
        self.options.contenders.iter().filter_map(best).collect()
    }
}

fn seeds_of_grid() -> usize {
    usize::try_from(GRID_SEEDS).unwrap_or(1)
}

/// The criterion for settings: critical requests first, then all.
fn worth(measures: &Measures) -> f64 {
    let critical = measures.critical_onset.unwrap_or(0.0) + measures.critical_steady.unwrap_or(0.0);
    critical + measures.goodput
}

#[cfg(test)]
mod tests;
