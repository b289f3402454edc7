//! Scenarios: the load, the lost workers and the behaviour of clients over time.

use std::ops::Range;

use super::clients::ClientBehaviour;
use super::load::{PerCategory, ServiceTimes};
use super::server::Discipline;
use crate::time::SECOND;

/// A scenario. The numbers are those of the evaluation plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// S1: half of capacity, `factor` times capacity, then `after`.
    Step,
    /// S2: 1.2 times capacity for a quarter of an hour.
    Drift,
    /// S3: 0.8 and 1.5 times capacity in turns of 20 s.
    FlapBait,
    /// S4: three eighths of the workers are left for three minutes, at 0.9 of capacity.
    CapacityLoss,
    /// S5: everything takes five times as long for two minutes, at 0.6 of capacity.
    SlowDependency,
    /// S6: reading and test traffic jump to twelve times, critical stays at 0.4 of capacity.
    Spike,
    /// S7: the step, with up to three attempts and a budget of a tenth.
    Retries,
    /// S7: the step, with up to three attempts and no budget.
    RetriesUnbounded,
    /// S8: one tenant makes four fifths of 2.5 times capacity.
    NoisyTenant,
    /// S8: the same, with a limit on the rate of each tenant.
    NoisyTenantLimited,
    /// S11: the standard workload of Tripwire.
    Tripwire,
    /// S12: from half of capacity to 0.95 of it, in half an hour.
    Healthy,
    /// S13: tasks of two calls, twice what fits.
    TwoCalls,
}

impl Scenario {
    /// All scenarios, in the order of the plan.
    pub const ALL: [Scenario; 13] = [
        Scenario::Step,
        Scenario::Drift,
        Scenario::FlapBait,
        Scenario::CapacityLoss,
        Scenario::SlowDependency,
        Scenario::Spike,
        Scenario::Retries,
        Scenario::RetriesUnbounded,
        Scenario::NoisyTenant,
        Scenario::NoisyTenantLimited,
        Scenario::Tripwire,
        Scenario::Healthy,
        Scenario::TwoCalls,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::Step => "step",
            Scenario::Drift => "drift",
            Scenario::FlapBait => "flap-bait",
            Scenario::CapacityLoss => "capacity-loss",
            Scenario::SlowDependency => "slow-dependency",
            Scenario::Spike => "spike",
            Scenario::Retries => "retries",
            Scenario::RetriesUnbounded => "retries-unbounded",
            Scenario::NoisyTenant => "noisy-tenant",
            Scenario::NoisyTenantLimited => "noisy-tenant-limited",
            Scenario::Tripwire => "tripwire",
            Scenario::Healthy => "healthy",
            Scenario::TwoCalls => "two-calls",
        }
    }

    /// The number in the evaluation plan.
    pub const fn number(self) -> &'static str {
        match self {
            Scenario::Step => "S1",
            Scenario::Drift => "S2",
            Scenario::FlapBait => "S3",
            Scenario::CapacityLoss => "S4",
            Scenario::SlowDependency => "S5",
            Scenario::Spike => "S6",
            Scenario::Retries | Scenario::RetriesUnbounded => "S7",
            Scenario::NoisyTenant | Scenario::NoisyTenantLimited => "S8",
            Scenario::Tripwire => "S11",
            Scenario::Healthy => "S12",
            Scenario::TwoCalls => "S13",
        }
    }
}

/// The shares of the categories in the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Critical 5 %, POST 15 %, GET 60 %, test 20 %.
    M1,
    /// Critical 8 %, POST 15 %, GET 57 %, test 20 %.
    M2,
    /// Critical 20 %, POST 15 %, GET 45 %, test 20 %.
    M3,
}

impl Mix {
    /// All mixes.
    pub const ALL: [Mix; 3] = [Mix::M1, Mix::M2, Mix::M3];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mix::M1 => "m1",
            Mix::M2 => "m2",
            Mix::M3 => "m3",
        }
    }

    /// The share of each category, the lowest first.
    const fn shares(self) -> PerCategory<f64> {
        match self {
            Mix::M1 => [0.20, 0.60, 0.15, 0.05],
            Mix::M2 => [0.20, 0.57, 0.15, 0.08],
            Mix::M3 => [0.20, 0.45, 0.15, 0.20],
        }
    }

    fn at(self, load: f64) -> PerCategory<f64> {
        self.shares().map(|share| share * load)
    }
}

/// A time of constant load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Phase {
    pub(crate) seconds: u64,
    /// In capacities, for each category.
    pub(crate) load: PerCategory<f64>,
    pub(crate) workers: u32,
    /// How many times longer service takes.
    pub(crate) slowdown: f64,
}

/// A scenario with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Script {
    pub(crate) phases: Vec<Phase>,
    pub(crate) workers: u32,
    pub(crate) discipline: Discipline,
    pub(crate) service: ServiceTimes,
    pub(crate) behaviour: ClientBehaviour,
    pub(crate) noisy_share: f64,
    /// The rate allowed to each tenant, in capacities.
    pub(crate) tenant_rate: Option<f64>,
    /// The first seconds of the overload.
    pub(crate) onset: Range<usize>,
    /// The seconds in which the shield should have settled.
    pub(crate) steady: Range<usize>,
    /// The second in which the overload ends.
    pub(crate) relief: Option<usize>,
}

impl Script {
    /// Requests a second that all workers can serve.
    pub(crate) fn capacity(&self) -> f64 {
        f64::from(self.workers) * SECOND as f64 / self.service.mean() as f64
    }

    /// The work that arrives in each phase, in parts of what the workers can do in it.
    pub(crate) fn loads(&self) -> impl Iterator<Item = f64> {
        self.phases.iter().map(|phase| {
            let capacity = f64::from(phase.workers) / f64::from(self.workers) / phase.slowdown;
            phase.load.iter().sum::<f64>() * f64::from(self.behaviour.calls) / capacity
        })
    }

    /// The seconds in which more arrives than the workers can do.
    pub(crate) fn overload(&self) -> Vec<Range<usize>> {
        let mut spans = Vec::new();
        let mut start = 0;
        for (phase, load) in self.phases.iter().zip(self.loads()) {
            let end = start + seconds(phase.seconds);
            if load > 1.0 {
                spans.push(start..end);
            }
            start = end;
        }
        spans
    }
}

/// The parameters of a script.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) scenario: Scenario,
    pub(crate) mix: Mix,
    pub(crate) factor: f64,
    /// What a step comes down to, in capacities; 0.5 in the plan.
    pub(crate) after: f64,
    pub(crate) workers: u32,
    pub(crate) discipline: Discipline,
    pub(crate) service: ServiceTimes,
    /// How long the overload of a step lasts; 300 s in the plan.
    pub(crate) overload_seconds: u64,
}

/// Seconds of calm before a step, and of calm after it.
const BEFORE: u64 = 60;
const AFTER: u64 = 240;

impl Setting {
    pub(crate) fn script(&self) -> Script {
        match self.scenario {
            Scenario::Step => self.step(ClientBehaviour::PLAIN),
            Scenario::Retries => self.step(ClientBehaviour {
                attempts: 3,
                budget: Some(0.1),
                ..ClientBehaviour::PLAIN
            }),
            Scenario::RetriesUnbounded => {
                self.step(ClientBehaviour { attempts: 3, ..ClientBehaviour::PLAIN })
            }
            Scenario::Drift => self.plain(vec![self.phase(900, 1.2)], 0..30, 60..900, None),
            Scenario::FlapBait => {
                let turns = (0..15).flat_map(|_| [self.phase(20, 0.8), self.phase(20, 1.5)]);
                self.plain(turns.collect(), 20..50, 120..600, None)
            }
            Scenario::CapacityLoss => self.capacity_loss(),
            Scenario::SlowDependency => self.slow_dependency(),
            Scenario::Spike => self.spike(),
            Scenario::NoisyTenant => self.noisy(None),
            // A tenth of capacity is what a large plan may have.
            Scenario::NoisyTenantLimited => self.noisy(Some(0.1)),
            Scenario::Tripwire => self.tripwire(),
            Scenario::Healthy => {
                let steps = (0..10).map(|step| self.phase(180, 0.5 + 0.05 * f64::from(step)));
                self.plain(steps.collect(), 0..30, 0..1_800, None)
            }
            Scenario::TwoCalls => self.two_calls(),
        }
    }

    fn phase(&self, seconds: u64, load: f64) -> Phase {
        Phase { seconds, load: self.mix.at(load), workers: self.workers, slowdown: 1.0 }
    }

    fn plain(
        &self,
        phases: Vec<Phase>,
        onset: Range<usize>,
        steady: Range<usize>,
        relief: Option<usize>,
    ) -> Script {
        Script {
            phases,
            workers: self.workers,
            discipline: self.discipline,
            service: self.service,
            behaviour: ClientBehaviour::PLAIN,
            noisy_share: 0.0,
            tenant_rate: None,
            onset,
            steady,
            relief,
        }
    }

    fn step(&self, behaviour: ClientBehaviour) -> Script {
        let overload = self.overload_seconds.max(3);
        let phases = vec![
            self.phase(BEFORE, 0.5),
            self.phase(overload, self.factor),
            self.phase(AFTER, self.after),
        ];
        let (from, until) = (seconds(BEFORE), seconds(BEFORE + overload));
        // The last third: the slowest law needs two minutes of five to settle.
        let steady = seconds(BEFORE + overload * 2 / 3)..until;
        let onset = from..until.min(from + 30);
        Script { behaviour, ..self.plain(phases, onset, steady, Some(until)) }
    }

    fn capacity_loss(&self) -> Script {
        let whole = self.phase(120, 0.9);
        let lost = Phase { seconds: 180, workers: (self.workers * 3 / 8).max(1), ..whole };
        self.plain(vec![whole, lost, whole], 120..150, 200..300, Some(300))
    }

    fn slow_dependency(&self) -> Script {
        let usual = self.phase(60, 0.6);
        let slow = Phase { seconds: 120, slowdown: 5.0, ..usual };
        let after = Phase { seconds: 180, ..usual };
        self.plain(vec![usual, slow, after], 60..90, 110..180, Some(180))
    }

    fn spike(&self) -> Script {
        let phase = |seconds, times: f64| Phase {
            seconds,
            load: [0.1 * times, 0.2 * times, 0.1, 0.4],
            workers: self.workers,
            slowdown: 1.0,
        };
        let phases = vec![phase(60, 1.0), phase(120, 12.0), phase(180, 1.0)];
        self.plain(phases, 60..90, 60..180, Some(180))
    }

    fn noisy(&self, tenant_rate: Option<f64>) -> Script {
        let phases = vec![self.phase(180, 2.5)];
        Script { noisy_share: 0.8, tenant_rate, ..self.plain(phases, 0..30, 60..180, None) }
    }

    /// 12 threads, 100 requests a second, 50 ms, then 150 ms, then 50 ms again.
    fn tripwire(&self) -> Script {
        let usual =
            Phase { seconds: 20, load: [0.0, 100.0 / 240.0, 0.0, 0.0], workers: 12, slowdown: 1.0 };
        let slow = Phase { seconds: 40, slowdown: 3.0, ..usual };
        Script {
            workers: 12,
            discipline: Discipline::Sharing,
            service: ServiceTimes::Fixed50,
            ..self.plain(vec![usual, slow, usual], 20..30, 20..60, Some(60))
        }
    }

    /// At the usual factor as many tasks as fit calls, so that both calls fit for half.
    fn two_calls(&self) -> Script {
        let phase = |seconds, load| Phase {
            seconds,
            load: [0.0, load, 0.0, 0.0],
            workers: self.workers,
            slowdown: 1.0,
        };
        let phases = vec![phase(30, 0.25), phase(210, self.factor / 10.0)];
        let behaviour = ClientBehaviour { calls: 2, ..ClientBehaviour::PLAIN };
        Script { behaviour, ..self.plain(phases, 30..60, 120..240, None) }
    }
}

fn seconds(seconds: u64) -> usize {
    usize::try_from(seconds).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(scenario: Scenario) -> Setting {
        Setting {
            scenario,
            mix: Mix::M1,
            factor: 10.0,
            after: 0.5,
            workers: 64,
            discipline: Discipline::Workers,
            service: ServiceTimes::Lognormal,
            overload_seconds: 300,
        }
    }

    #[test]
    fn the_windows_of_every_scenario_lie_within_it() {
        for scenario in Scenario::ALL {
            let script = setting(scenario).script();
            let length: u64 = script.phases.iter().map(|phase| phase.seconds).sum();
            let ends = [script.onset.end, script.steady.end, script.relief.unwrap_or(0)];
            assert!(ends.iter().all(|end| *end <= seconds(length)), "{scenario:?}");
            assert!(script.onset.start < script.onset.end, "{scenario:?}");
            assert!(script.steady.start < script.steady.end, "{scenario:?}");
        }
    }

    #[test]
    fn the_overload_is_where_more_arrives_than_fits() {
        let overload = |scenario| -> Vec<(usize, usize)> {
            let spans = setting(scenario).script().overload();
            spans.into_iter().map(|span| (span.start, span.end)).collect()
        };
        assert_eq!(overload(Scenario::Step), [(60, 360)]);
        assert_eq!(overload(Scenario::CapacityLoss), [(120, 300)]);
        assert_eq!(overload(Scenario::SlowDependency), [(60, 180)]);
        assert_eq!(overload(Scenario::TwoCalls), [(30, 240)]);
        assert_eq!(overload(Scenario::FlapBait).len(), 15);
        assert!(overload(Scenario::Healthy).is_empty());
        let peak = setting(Scenario::Step).script().loads().fold(0.0, f64::max);
        assert!((peak - 10.0).abs() < 1e-9);
    }

    #[test]
    fn the_shares_of_each_mix_make_a_whole() {
        for mix in [Mix::M1, Mix::M2, Mix::M3] {
            assert!((mix.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9, "{mix:?}");
        }
        let ten = Mix::M1.at(10.0);
        assert!((ten[3] - 0.5).abs() < 1e-9, "critical is half of capacity");
    }

    #[test]
    fn names_tell_scenarios_apart() {
        let mut names: Vec<&str> = Scenario::ALL.map(Scenario::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Scenario::ALL.len());
    }
}
