//! Overload in virtual time: our shedders beside those of others.
//!
//! A run plays scenarios of load against a simulated server, once for each way to
//! protect it and for each seed. Ours is the production code of `tidegate-overload`;
//! the others are ported small (`shield`). Arrivals are open loop, time is
//! virtual, and everything follows from the seed.
//!
//! | Module | Holds |
//! |---|---|
//! | `load`, `draw` | who comes when, and how long the work takes |
//! | `server` | workers, and how requests share them |
//! | `clients` | timeouts, retries, tasks of two calls |
//! | `shield` | ourselves and the baselines |
//! | `scenario`, `contender` | what is played, and by whom |
//! | `fleet` | several nodes, one that dies, a board that is silent |
//! | `episode`, `record` | one run, and what happened in it |
//! | `measures`, `metric`, `goals` | what that is worth |
//! | `report`, `render` | how it is told |
//!
//! Loopback, sockets and real time are not here; the gateway's tests have them.

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
pub use render::{Chart, Format};
pub use report::{ContenderResult, Report, Round};
pub use scenario::{Mix, Scenario};
pub use server::Discipline;
pub use shield::Place;

use contender::Entry;
use measures::Measures;
use record::Second;
use scenario::{Script, Setting};

/// Seeds that choose the best setting of a grid.
const GRID_SEEDS: u64 = 2;
/// Bounds of what can be asked for: a run is to end, and to fit into memory.
pub(crate) const WORKERS_MAX: u32 = 4_096;
pub(crate) const SEEDS_MAX: u64 = 1_000;
/// Below it hardly anybody comes, and shares of nothing say nothing.
pub(crate) const FACTOR_MIN: f64 = 0.1;
pub(crate) const FACTOR_MAX: f64 = 100.0;
pub(crate) const OVERLOAD_SECONDS_MAX: u64 = 3_600;
pub(crate) const THREADS_MAX: usize = 64;

/// What to run. Numbers out of bounds are taken for the nearest within.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What happens. Default: the step.
    pub scenarios: Vec<Scenario>,
    /// What the traffic is made of. Default: M1.
    pub mix: Mix,
    /// How many capacities the step goes up to, from 0.1 to 100. Default: 10.
    pub factor: f64,
    /// How many capacities the step comes down to, from 0.1 to 100. Default: 0.5.
    pub after: f64,
    /// Workers of the server, to 4096. Default: 64.
    pub workers: u32,
    /// How they are shared. Default: one request each.
    pub discipline: Discipline,
    /// How long work takes. Default: lognormal, 20 ms.
    pub service: ServiceTimes,
    /// What refusing costs. Default: by its place.
    pub refusal_cost: RefusalCost,
    /// How long the overload of a step lasts, to an hour. Default: 300 s.
    pub overload_seconds: u64,
    /// Who takes part. Default: everybody.
    pub contenders: Vec<Contender>,
    /// Whether baselines also take part with the best setting of a small grid. Default: no.
    pub tuned: bool,
    /// Whether a fleet is played too: a dead node, a silent board. Default: no.
    pub fleet: bool,
    /// The first seed. Default: 1.
    pub first_seed: u64,
    /// How many seeds, to 1000. Default: 10.
    pub seeds: u64,
    /// Threads that play, to 64. The report is the same with any number. Default: 1.
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
            refusal_cost: RefusalCost::ByPlace,
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

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The scenario that is played.
    pub scenario: Scenario,
    /// Episodes that are done in it.
    pub done: usize,
    /// Episodes that there are.
    pub of: usize,
}

/// Plays everything that the options ask for.
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
        capacity: measures::capacity(&script),
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

/// A scenario, ready to be played.
struct Stage<'a> {
    options: &'a Options,
    script: &'a Script,
    scenario: Scenario,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl Stage<'_> {
    /// Plays all jobs. The answers are in their order, whoever played them.
    fn play(&self, jobs: &[Job]) -> Vec<(Measures, Vec<Second>)> {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let answers: Mutex<Vec<_>> = Mutex::new(vec![None; jobs.len()]);
        let work = || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(place) else { return };
                let answer = self.play_one(job, place);
                if let Some(slot) = answers.lock().expect("nobody panicked").get_mut(place) {
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
        let answers = answers.into_inner().expect("nobody panicked");
        answers.into_iter().flatten().collect()
    }

    fn play_one(&self, job: &Job, place: usize) -> (Measures, Vec<Second>) {
        let record = job.entry.play(self.script, self.options.refusal_cost, job.seed);
        let measures = Measures::of(self.script, &record);
        // Charts show the first seed; the others' seconds would only fill memory.
        let seeds = usize::try_from(self.options.seeds).unwrap_or(1).max(1);
        let shown = place.is_multiple_of(seeds);
        (measures, if shown { record.seconds } else { Vec::new() })
    }

    /// The best setting of each baseline's grid, judged on a few seeds.
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
            let worth = |place: usize| {
                let own = played.iter().skip(place * seeds.len()).take(seeds.len());
                own.map(|(measures, _)| worth(measures)).sum::<f64>()
            };
            let place = (0..grid.len()).max_by(|a, b| worth(*a).total_cmp(&worth(*b)))?;
            let (label, entry) = grid.swap_remove(place);
            Some((*contender, Some(label), entry))
        };
        self.options.contenders.iter().filter_map(best).collect()
    }
}

fn seeds_of_grid() -> usize {
    usize::try_from(GRID_SEEDS).unwrap_or(1)
}

/// What a setting is chosen by: critical requests first, then everything.
fn worth(measures: &Measures) -> f64 {
    let critical = measures.critical_onset.unwrap_or(0.0) + measures.critical_steady.unwrap_or(0.0);
    critical + measures.goodput
}

#[cfg(test)]
mod tests;
