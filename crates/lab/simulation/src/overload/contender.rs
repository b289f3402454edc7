//! The contenders and their settings.

use super::episode::{Episode, RefusalCost};
use super::load::Levels;
use super::record::Record;
use super::scenario::Script;
use super::shield::{
    CRITICAL_FIRST, Cinnamon, CinnamonSettings, Codel, CodelSettings, Dagor, DagorSettings,
    Failsafe, FailsafeSettings, Gradient2, Gradient2Settings, Netflix, NoShield, Shield,
    StaticLimit, StaticSettings, Stripe, StripeSettings, Tidegate, TidegateSettings, Vegas,
    VegasSettings,
};
use crate::chance::Chance;
use crate::time::{MILLISECOND, SECOND};

/// A load shedder in front of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// Tidegate: worker shedder and gate.
    Tidegate,
    /// Tidegate's gate alone.
    GateOnly,
    /// (a) No protection.
    Unprotected,
    /// (b) A static limit with a queue.
    Static,
    /// (c1) Netflix Vegas.
    Vegas,
    /// (c1) Netflix Gradient2.
    Gradient2,
    /// (c2) Netflix Vegas, partitioned.
    VegasPartitioned,
    /// (c2) Netflix Gradient2, partitioned.
    Gradient2Partitioned,
    /// (d) failsafe-go's prioritized limiter.
    Failsafe,
    /// (e) Stripe's law on the static limit.
    Stripe,
    /// (f) WeChat DAGOR.
    Dagor,
    /// (g) Uber Cinnamon's controller.
    Cinnamon,
    /// (h) Controlled delay with adaptive LIFO.
    Codel,
}

impl Contender {
    /// All contenders: Tidegate, then the others in the order of the evaluation plan.
    pub const ALL: [Contender; 13] = [
        Contender::Tidegate,
        Contender::GateOnly,
        Contender::Unprotected,
        Contender::Static,
        Contender::Vegas,
        Contender::Gradient2,
        Contender::VegasPartitioned,
        Contender::Gradient2Partitioned,
        Contender::Failsafe,
        Contender::Stripe,
        Contender::Dagor,
        Contender::Cinnamon,
        Contender::Codel,
    ];

    /// The name on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Contender::Tidegate => "tidegate",
            Contender::GateOnly => "tidegate-gate-only",
            Contender::Unprotected => "none",
            Contender::Static => "static",
            Contender::Vegas => "vegas",
            Contender::Gradient2 => "gradient2",
            Contender::VegasPartitioned => "vegas-partitioned",
            Contender::Gradient2Partitioned => "gradient2-partitioned",
            Contender::Failsafe => "failsafe",
            Contender::Stripe => "stripe",
            Contender::Dagor => "dagor",
            Contender::Cinnamon => "cinnamon",
            Contender::Codel => "codel",
        }
    }

    /// The name in charts.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Contender::Tidegate => "Tidegate",
            Contender::GateOnly => "Tidegate, gate only",
            Contender::Unprotected => "No protection",
            Contender::Static => "Fixed limit and queue",
            Contender::Vegas => "Netflix Vegas",
            Contender::Gradient2 => "Netflix Gradient2",
            Contender::VegasPartitioned => "Netflix Vegas, partitioned",
            Contender::Gradient2Partitioned => "Netflix Gradient2, partitioned",
            Contender::Failsafe => "failsafe-go",
            Contender::Stripe => "Stripe",
            Contender::Dagor => "WeChat DAGOR",
            Contender::Cinnamon => "Uber Cinnamon",
            Contender::Codel => "Facebook controlled delay",
        }
    }

    /// A sentence about the contender, in two lines of a chart.
    pub(crate) const fn about(self) -> [&'static str; 2] {
        match self {
            Contender::Tidegate => {
                ["Sheds low categories at a threshold", "and queues the rest briefly at a gate."]
            }
            Contender::GateOnly => {
                ["A fixed limit and a short queue that", "is ordered by category; no threshold."]
            }
            Contender::Unprotected => {
                ["Queues as many requests as sockets", "hold, however late the answers are."]
            }
            Contender::Static => ["A fixed limit and a short queue that", "ignores categories."],
            Contender::Vegas => {
                ["A limit that follows the shortest", "round trip; no queue, no categories."]
            }
            Contender::Gradient2 => {
                ["A limit that follows the trend of", "latency; no queue, no categories."]
            }
            Contender::VegasPartitioned => {
                ["Vegas with a guaranteed share of the", "limit for each category."]
            }
            Contender::Gradient2Partitioned => {
                ["Gradient2 with a guaranteed share of", "the limit for each category."]
            }
            Contender::Failsafe => {
                ["A limit that follows latency, and a", "priority threshold when it queues."]
            }
            Contender::Stripe => {
                ["Sheds by the share of busy workers,", "lowest category first, over minutes."]
            }
            Contender::Dagor => {
                ["A priority threshold that follows", "the waiting time in the queue."]
            }
            Contender::Cinnamon => {
                ["A PI controller sets a priority", "threshold in front of the queue."]
            }
            Contender::Codel => {
                ["Short waits and newest first when a", "queue stands; ignores categories."]
            }
        }
    }
}

/// A contender with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Entry {
    Tidegate,
    GateOnly,
    Unprotected,
    Static(StaticSettings),
    Vegas(VegasSettings),
    Gradient2(Gradient2Settings),
    VegasPartitioned(VegasSettings),
    Gradient2Partitioned(Gradient2Settings),
    Failsafe(FailsafeSettings),
    Stripe(StripeSettings),
    Dagor(DagorSettings),
    Cinnamon(CinnamonSettings),
    Codel(CodelSettings),
}

impl Entry {
    /// With the published settings.
    pub(crate) fn published(contender: Contender) -> Self {
        match contender {
            Contender::Tidegate => Entry::Tidegate,
            Contender::GateOnly => Entry::GateOnly,
            Contender::Unprotected => Entry::Unprotected,
            Contender::Static => Entry::Static(StaticSettings::default()),
            Contender::Vegas => Entry::Vegas(VegasSettings::default()),
            Contender::Gradient2 => Entry::Gradient2(Gradient2Settings::default()),
            Contender::VegasPartitioned => Entry::VegasPartitioned(VegasSettings::default()),
            Contender::Gradient2Partitioned => {
                Entry::Gradient2Partitioned(Gradient2Settings::default())
            }
            Contender::Failsafe => Entry::Failsafe(FailsafeSettings::default()),
            Contender::Stripe => Entry::Stripe(StripeSettings::default()),
            Contender::Dagor => Entry::Dagor(DagorSettings::default()),
            Contender::Cinnamon => Entry::Cinnamon(CinnamonSettings::default()),
            Contender::Codel => Entry::Codel(CodelSettings::default()),
        }
    }

    /// Other settings that an operator might try, each with its label.
    pub(crate) fn grid(contender: Contender) -> Vec<(String, Self)> {
        match contender {
            Contender::Tidegate | Contender::GateOnly | Contender::Unprotected => Vec::new(),
            Contender::Static => [0.0, 1.0, 2.0]
                .map(|queue| {
                    let settings = StaticSettings { queue, ..StaticSettings::default() };
                    (format!("queue {queue}"), Entry::Static(settings))
                })
                .to_vec(),
            Contender::Vegas => vegas_grid(Entry::Vegas),
            Contender::VegasPartitioned => vegas_grid(Entry::VegasPartitioned),
            Contender::Gradient2 => gradient2_grid(Entry::Gradient2),
            Contender::Gradient2Partitioned => gradient2_grid(Entry::Gradient2Partitioned),
            Contender::Failsafe => failsafe_grid(),
            Contender::Stripe => stripe_grid(),
            Contender::Dagor => dagor_grid(),
            Contender::Cinnamon => cinnamon_grid(),
            Contender::Codel => [(100, 20), (20, 5), (500, 20)]
                .map(|(interval, target)| {
                    let settings = CodelSettings {
                        interval: interval * MILLISECOND,
                        target: target * MILLISECOND,
                    };
                    (format!("N {interval} ms, M {target} ms"), Entry::Codel(settings))
                })
                .to_vec(),
        }
    }

    pub(crate) fn play(self, script: &Script, cost: RefusalCost, seed: u64) -> Record {
        let workers = script.workers;
        // A separate stream from those of the traffic.
        let own = Chance::new(seed ^ 0x5EED_0F5E_1F5E_1F00).next();
        let run = Run { script, cost, seed };
        match self {
            Entry::Tidegate => run.with(Tidegate::new(TidegateSettings::new(workers))),
            Entry::GateOnly => {
                let settings = TidegateSettings { worker: None, ..TidegateSettings::new(workers) };
                run.with(Tidegate::new(settings))
            }
            Entry::Unprotected => run.with(NoShield::default()),
            Entry::Static(settings) => run.with(StaticLimit::new(workers, settings)),
            Entry::Vegas(settings) => run.with(Netflix::new(Vegas::new(settings, own), None)),
            Entry::Gradient2(settings) => run.with(Netflix::new(Gradient2::new(settings), None)),
            Entry::VegasPartitioned(settings) => {
                run.with(Netflix::new(Vegas::new(settings, own), Some(CRITICAL_FIRST)))
            }
            Entry::Gradient2Partitioned(settings) => {
                run.with(Netflix::new(Gradient2::new(settings), Some(CRITICAL_FIRST)))
            }
            Entry::Failsafe(settings) => run.with(Failsafe::new(settings)),
            Entry::Stripe(settings) => run.with(Stripe::new(workers, settings, own)),
            Entry::Dagor(settings) => run.with(Dagor::new(workers, settings)),
            Entry::Cinnamon(settings) => run.with(Cinnamon::new(workers, settings)),
            Entry::Codel(settings) => run.with(Codel::new(workers, settings)),
        }
    }
}

struct Run<'a> {
    script: &'a Script,
    cost: RefusalCost,
    seed: u64,
}

impl Run<'_> {
    fn with(&self, shield: impl Shield) -> Record {
        Episode::new(self.script, shield, Levels::new(), self.cost, self.seed).run()
    }
}

fn vegas_grid(entry: impl Fn(VegasSettings) -> Entry) -> Vec<(String, Entry)> {
    let usual = VegasSettings::default();
    [(64.0, 96.0, 3.0, 6.0), (64.0, 64.0, 3.0, 6.0), (64.0, 96.0, 6.0, 12.0)]
        .map(|(initial, max, alpha, beta)| {
            let settings = VegasSettings { initial, max, alpha, beta };
            let label = format!("initial {initial}, max {max}, alpha {alpha}, beta {beta}");
            debug_assert!(settings != usual, "the grid leaves the defaults out");
            (label, entry(settings))
        })
        .to_vec()
}

fn gradient2_grid(entry: impl Fn(Gradient2Settings) -> Entry) -> Vec<(String, Entry)> {
    [(64.0, 200.0, 1.5), (64.0, 80.0, 1.5), (64.0, 64.0, 1.5), (64.0, 200.0, 1.05)]
        .map(|(initial, max, tolerance)| {
            let settings =
                Gradient2Settings { initial, max, tolerance, ..Gradient2Settings::default() };
            let label = format!("initial {initial}, max {max}, tolerance {tolerance}");
            (label, entry(settings))
        })
        .to_vec()
}

fn failsafe_grid() -> Vec<(String, Entry)> {
    [(2.0, 3.0, 100, 64.0, 64.0), (1.0, 2.0, 500, 64.0, 64.0), (1.0, 2.0, 100, 64.0, 96.0)]
        .map(|(queue_from, queue_max, period, initial, max)| {
            let period = period * MILLISECOND;
            let settings = FailsafeSettings { queue_from, queue_max, period, initial, max };
            let label = format!(
                "queue {queue_from} to {queue_max}, every {} ms, initial {initial}, max {max}",
                period / MILLISECOND
            );
            (label, Entry::Failsafe(settings))
        })
        .to_vec()
}

fn stripe_grid() -> Vec<(String, Entry)> {
    [(1, 0.7, 0.8, 120.0), (1, 0.9, 0.97, 120.0), (1, 0.9, 0.97, 30.0), (8, 0.9, 0.97, 120.0)]
        .map(|(period, low, high, ramp)| {
            let settings = StripeSettings { period: period * SECOND, low, high, ramp };
            let label = format!("every {period} s, {low} to {high}, ramp {ramp} s");
            (label, Entry::Stripe(settings))
        })
        .to_vec()
}

fn dagor_grid() -> Vec<(String, Entry)> {
    [
        (20, 0.05, 0.01, 500),
        (20, 0.05, 0.001, 2_000),
        (5, 0.02, 0.002, 2_000),
        (20, 0.1, 0.01, 8_000),
    ]
    .map(|(wait, less, more, window)| {
        let settings = DagorSettings { wait: wait * MILLISECOND, less, more, window };
        let label = format!("wait {wait} ms, less {less}, more {more}, window {window}");
        (label, Entry::Dagor(settings))
    })
    .to_vec()
}

fn cinnamon_grid() -> Vec<(String, Entry)> {
    [(0.1, 0.14, 10), (0.02, 0.05, 10), (0.1, 0.14, 1), (0.02, 0.05, 1)]
        .map(|(proportional, integral, patience)| {
            let patience_nanos = patience * SECOND;
            let settings = CinnamonSettings {
                proportional,
                integral,
                patience: patience_nanos,
                ..CinnamonSettings::default()
            };
            let label = format!("gains {proportional} and {integral}, patience {patience} s");
            (label, Entry::Cinnamon(settings))
        })
        .to_vec()
}
