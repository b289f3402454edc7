//! One run: a world and a sequence of random events.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::chance::Chance;
use crate::checker::{BrokenPromise, HonestRetry};
use crate::time::{DAY, HOUR, MINUTE, SECOND};
use crate::traffic::Traffic;
use crate::world::{AnsweredCall, Tally, World};
use crate::written_rules::DrawnRequest;

/// The most requests of a burst.
const BURST_MAX: u64 = 30;
/// The most new keys of a flood.
const FLOOD_MAX: u64 = 250;
/// A longer wait before a retry is not tested.
const PATIENCE: u64 = 8 * DAY;

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of events. Default: 500.
    pub steps: u32,
    /// The most rules. Default: 8.
    pub rules_max: usize,
    /// Callers that send several requests. Default: 6.
    pub callers: u64,
}

impl Default for Size {
    fn default() -> Self {
        Size { steps: 500, rules_max: 8, callers: 6 }
    }
}

/// The counts of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The seed.
    pub seed: u64,
    /// The number of events.
    pub steps: u32,
    /// All requests.
    pub requests: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Refused requests.
    pub refused: u64,
    /// Answers from shared counters, peeks included.
    pub on_shared_counters: u64,
    /// Answers without a counter, peeks included.
    pub on_no_counter: u64,
    /// How often each promise was checked.
    pub checks: BTreeMap<&'static str, u64>,
}

impl RunReport {
    /// The number of checks of all promises.
    pub fn checks_made(&self) -> u64 {
        self.checks.values().sum()
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunReport { seed, steps, requests, admitted, refused, .. } = self;
        write!(f, "seed {seed}: {steps} steps, {requests} requests, {admitted} admitted, ")?;
        let (shared, none) = (self.on_shared_counters, self.on_no_counter);
        write!(f, "{refused} refused, {shared} answers from shared counters, {none} from none, ")?;
        write!(f, "{} checks", self.checks_made())
    }
}

/// A promise that did not hold, and how to reproduce it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "seed {seed}, step {step} ({event}): {promise} does not hold: {detail}\n\
     replay: cargo run -p tidegate-simulation -- --seed {seed} --steps {steps}"
)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The number of steps of the run.
    pub steps: u32,
    /// The step at which it was found, from zero.
    pub step: u32,
    /// The event of that step.
    pub event: &'static str,
    /// The promise.
    pub promise: &'static str,
    /// The observation.
    pub detail: String,
}

/// The event of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Steady,
    Burst,
    Flood,
    Idle,
    Reload,
    Switch,
    KillSwitch,
    SmallStepBack,
    LargeStepBack,
    StepForward,
    Sweep,
    GiveBack,
}

/// A seeded run of the whole in-process system in virtual time.
#[derive(Debug)]
pub struct Simulation {
    seed: u64,
    size: Size,
    chance: Chance,
    traffic: Traffic,
}

impl Simulation {
    /// A run from this seed.
    pub const fn new(seed: u64, size: Size) -> Self {
        Simulation { seed, size, chance: Chance::new(seed), traffic: Traffic::new(size.callers) }
    }

    /// Runs to the end, or to the first promise that does not hold.
    ///
    /// # Errors
    /// When a promise does not hold.
    pub fn run(mut self) -> Result<RunReport, Violation> {
        let world = World::draw(&mut self.chance, self.size.rules_max);
        let mut world = world.map_err(|broken| self.violation(0, "start", broken))?;
        for step in 0..self.size.steps {
            let event = self.draw_event();
            // A panic outside the engine must not hide the seed.
            let done = catch_unwind(AssertUnwindSafe(|| self.step(&mut world, event)));
            let done = done.unwrap_or_else(|_| {
                Err(BrokenPromise { promise: "nothing panics", detail: "see above".to_owned() })
            });
            done.map_err(|broken| self.violation(step, event.name(), broken))?;
        }
        let Tally { requests, admitted, refused, on_shared_counters, on_no_counter } = world.tally;
        Ok(RunReport {
            seed: self.seed,
            steps: self.size.steps,
            requests,
            admitted,
            refused,
            on_shared_counters,
            on_no_counter,
            checks: world.checks.0,
        })
    }

    fn violation(&self, step: u32, event: &'static str, broken: BrokenPromise) -> Violation {
        let BrokenPromise { promise, detail } = broken;
        let (seed, steps) = (self.seed, self.size.steps);
        Violation { seed, steps, step, event, promise, detail }
    }

    fn draw_event(&mut self) -> Event {
        match self.chance.between(1, 100) {
            1..=12 => Event::Burst,
            13..=16 => Event::Flood,
            17..=22 => Event::Idle,
            23..=26 => Event::Reload,
            27..=30 => Event::Switch,
            31..=33 => Event::KillSwitch,
            34..=37 => Event::SmallStepBack,
            38 => Event::LargeStepBack,
            39..=40 => Event::StepForward,
            41..=44 => Event::Sweep,
            45..=50 => Event::GiveBack,
            _ => Event::Steady,
        }
    }

    fn step(&mut self, world: &mut World, event: Event) -> Result<(), BrokenPromise> {
        match event {
            Event::Steady => self.steady(world)?,
            Event::Burst => self.burst(world)?,
            Event::Flood => self.flood(world)?,
            Event::Idle => world.advance(self.chance.up_to(2 * HOUR)),
            Event::Reload => world.reload(&mut self.chance)?,
            Event::Switch => world.switch(&mut self.chance)?,
            // Mostly on: with everything off little can be checked.
            Event::KillSwitch => world.switch_off(!world.is_off() && self.chance.one_in(2)),
            Event::SmallStepBack => world.step_back(self.chance.up_to(SECOND)),
            Event::LargeStepBack => world.step_back(self.chance.up_to(2 * DAY)),
            Event::StepForward => world.advance(self.chance.up_to(40 * DAY)),
            Event::Sweep => world.sweep(),
            Event::GiveBack => world.give_back(&mut self.chance, 50),
        }
        world.check_between()
    }

    /// A few requests with short pauses.
    fn steady(&mut self, world: &mut World) -> Result<(), BrokenPromise> {
        for _ in 0..self.chance.between(1, 4) {
            world.advance(self.chance.up_to(2 * SECOND));
            let asked = self.traffic.request(&mut self.chance, &world.rules);
            self.ask(world, &asked)?;
        }
        world.give_back(&mut self.chance, 10);
        Ok(())
    }

    /// One caller repeats the same request.
    fn burst(&mut self, world: &mut World) -> Result<(), BrokenPromise> {
        let asked = self.traffic.request(&mut self.chance, &world.rules);
        let apart = if self.chance.one_in(2) { 0 } else { self.chance.up_to(SECOND) };
        for _ in 0..self.chance.between(2, BURST_MAX) {
            world.advance(self.chance.between(0, apart));
            self.ask(world, &asked)?;
        }
        Ok(())
    }

    /// One or two requests of each of many new callers.
    fn flood(&mut self, world: &mut World) -> Result<(), BrokenPromise> {
        for _ in 0..self.chance.between(1, FLOOD_MAX) {
            let asked = self.traffic.stranger(&mut self.chance, &world.rules);
            for _ in 0..self.chance.between(1, 2) {
                world.ask(&asked)?;
            }
        }
        Ok(())
    }

    fn ask(&mut self, world: &mut World, asked: &DrawnRequest) -> Result<(), BrokenPromise> {
        let answered = world.ask(asked)?;
        // A long wait makes every counter idle, so it is rare.
        let patient = match answered.testable_wait() {
            None => false,
            Some(wait) if wait > PATIENCE => false,
            Some(wait) if wait > MINUTE => self.chance.one_in(20),
            Some(_) => self.chance.one_in(4),
        };
        if patient { wait_and_retry(world, asked, &answered) } else { Ok(()) }
    }
}

/// Waits exactly as long as the answer says, without other requests, and retries.
fn wait_and_retry(
    world: &mut World,
    asked: &DrawnRequest,
    refused: &AnsweredCall,
) -> Result<(), BrokenPromise> {
    let Some(told) = refused.testable_wait() else { return Ok(()) };
    world.advance(told.saturating_sub(1));
    let early = world.peek(asked);
    world.advance(told.min(1));
    let in_time = world.ask(asked)?.seen;
    let finding = HonestRetry { told }.check(&early, &in_time);
    world.checks.note("a retry is honest", finding)
}

impl Event {
    const fn name(self) -> &'static str {
        match self {
            Event::Steady => "steady",
            Event::Burst => "burst",
            Event::Flood => "flood of new keys",
            Event::Idle => "idle",
            Event::Reload => "reload",
            Event::Switch => "switch",
            Event::KillSwitch => "kill switch",
            Event::SmallStepBack => "small step back",
            Event::LargeStepBack => "large step back",
            Event::StepForward => "step forward",
            Event::Sweep => "sweep",
            Event::GiveBack => "permits given back",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_says_how_to_see_it_again() {
        let simulation = Simulation::new(42, Size { steps: 7, ..Size::default() });
        let broken = BrokenPromise { promise: "a promise", detail: "one too many".to_owned() };
        let text = simulation.violation(3, Event::Burst.name(), broken).to_string();
        assert!(text.starts_with("seed 42, step 3 (burst): a promise does not hold: one too many"));
        assert!(text.ends_with("cargo run -p tidegate-simulation -- --seed 42 --steps 7"));
    }

    #[test]
    fn every_event_happens() {
        let mut simulation = Simulation::new(1, Size::default());
        let mut names: Vec<&str> = (0..2_000).map(|_| simulation.draw_event().name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 12, "{names:?}");
    }
}
