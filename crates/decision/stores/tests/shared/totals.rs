//! Counts of eventual limits under random faults, by seed: in the end every region knows every admission, and none
//! twice.
//!
//! Lines are cut, slow or lose answers; servers refuse, fall silent, are replaced by a replica that lacks the last
//! writes, or restart empty. After each step no server has counted more than was admitted; two beats after everything is
//! well, all have counted exactly that.

use std::time::Duration;

use tidegate_algorithms::{
    FixedWindow, Limit, Period, SlidingLog, SlidingWindow, TokenBucket, Window,
};
use tidegate_stores::{Check, Consistency, SharedSettings, SharedStore};

use super::fake::{Condition, Line, VirtualClock};
use super::simulation::Chance;
use super::world::{Node, World, check, pass, policy};

const REGIONS: usize = 3;
const NODES: usize = 2;
/// High enough that nothing is refused, in shares too.
const LIMIT: u64 = 10_000;

/// Limits whose units all count for as long as a run takes.
fn limits() -> [(&'static str, Limit); 4] {
    let hourly = FixedWindow::new(LIMIT, Window::Every(Period::HOUR));
    [
        ("window", Limit::new(hourly)),
        ("bucket", Limit::new(TokenBucket::new(1, Period::HOUR, LIMIT))),
        ("log", Limit::new(SlidingLog::new(LIMIT, Period::HOUR).expect("below the maximum"))),
        ("slices", Limit::new(SlidingWindow::new(LIMIT, Period::HOUR, 4).expect("few slices"))),
    ]
}

fn eventual<'a>(name: &str, limit: &'a Limit) -> Check<'a> {
    check(name, limit, 1, policy(Consistency::Eventual))
}

/// Regions of nodes that report to all of them.
struct Regions {
    worlds: Vec<World>,
    nodes: Vec<Node>,
    /// The lines to other regions.
    across: Vec<Line>,
    chance: Chance,
    admitted: [u64; 4],
}

impl Regions {
    fn new(seed: u64) -> Self {
        let worlds: Vec<World> = (0..REGIONS).map(|_| World::new()).collect();
        let (mut nodes, mut across) = (Vec::new(), Vec::new());
        for region in 0..REGIONS {
            for number in 0..NODES {
                let mut lines = Vec::new();
                for (other, world) in worlds.iter().enumerate() {
                    if other != region {
                        let clock = VirtualClock::off_by(world.origin, 0);
                        lines.push(Line::new(&world.server, clock));
                    }
                }
                across.extend(lines.iter().cloned());
                let with_all = |store: SharedStore<Line>| {
                    let add = |store: SharedStore<Line>, line| store.with_region("another", line);
                    lines.into_iter().fold(store, add)
                };
                let id = seed * 100 + (region * NODES + number) as u64;
                let settings =
                    SharedSettings { nodes_expected: NODES, ..SharedSettings::default() };
                nodes.push(worlds[region].node_with(id, 0, with_all, &settings));
            }
        }
        Regions { worlds, nodes, across, chance: Chance::new(seed), admitted: [0; 4] }
    }

    async fn admit_some(&mut self, limits: &[(&str, Limit); 4]) {
        for node in &self.nodes {
            for (admitted, (name, limit)) in self.admitted.iter_mut().zip(limits) {
                for _ in 0..self.chance.below(4) {
                    let (decision, _) = node.ask(eventual(name, limit)).await;
                    assert!(decision.is_admitted(), "{name}: {decision:?}");
                    *admitted += 1;
                }
            }
        }
    }

    /// One thing goes wrong, or gets well.
    fn trouble(&self) {
        use Condition::{Deaf, Refusing, Silent, Well};
        let condition = *self.chance.one_of(&[Well, Well, Refusing, Silent, Deaf]);
        let server = &self.chance.one_of(&self.worlds).server;
        match self.chance.below(7) {
            0 => server.set(condition),
            1 => self.chance.one_of(&self.nodes).line.set(condition),
            2 | 3 => self.chance.one_of(&self.across).set(condition),
            4 => {
                let latency = Duration::from_millis(self.chance.below(120));
                self.chance.one_of(&self.across).slow(latency);
            }
            5 => server.fail_over(Some(Duration::from_millis(self.chance.below(500)))),
            _ => server.fail_over(None),
        }
    }

    fn heal(&self) {
        self.worlds.iter().for_each(|world| world.server.set(Condition::Well));
        for line in self.nodes.iter().map(|node| &node.line).chain(&self.across) {
            line.set(Condition::Well);
            line.slow(Duration::ZERO);
        }
    }

    /// The counts of each server.
    fn counted(&self, limits: &[(&str, Limit); 4]) -> Vec<[u64; 4]> {
        let of_server = |world: &World| {
            let mut counts = [0; 4];
            for (count, (name, limit)) in counts.iter_mut().zip(limits) {
                *count = LIMIT - world.left(name, limit);
            }
            counts
        };
        self.worlds.iter().map(of_server).collect()
    }
}

async fn run(seed: u64, steps: u64) {
    let limits = limits();
    let mut regions = Regions::new(seed);
    for step in 0..steps {
        regions.admit_some(&limits).await;
        regions.trouble();
        pass(1 + regions.chance.below(150)).await;
        for counts in regions.counted(&limits) {
            let fits = counts.iter().zip(&regions.admitted).all(|(count, most)| count <= most);
            assert!(fits, "seed {seed}, step {step}: {counts:?} of {:?}", regions.admitted);
        }
    }
    regions.heal();
    // A call that hangs at the time of healing ends at its deadline; two beats follow.
    let settings = SharedSettings::default();
    let two_beats = settings.background_within + settings.beat * 2;
    pass(u64::try_from(two_beats.as_millis()).expect("short")).await;
    for counts in regions.counted(&limits) {
        assert_eq!(counts, regions.admitted, "seed {seed}: {:?}", regions.counted(&limits));
    }
}

#[tokio::test(start_paused = true)]
async fn every_admission_is_counted_once_in_every_region_whatever_fails() {
    for seed in 0..60 {
        run(seed, 40).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_crashes_loses_only_the_counts_that_it_had_not_reported() {
    let world = World::new();
    let (one, two) = (world.node(1), world.node(2));
    let limits = limits();
    for (name, limit) in &limits {
        one.burst(eventual(name, limit), 10).await;
        two.burst(eventual(name, limit), 10).await;
    }
    pass(250).await;
    for (name, limit) in &limits {
        one.burst(eventual(name, limit), 5).await;
    }
    drop(one);
    pass(500).await;
    for (name, limit) in &limits {
        assert_eq!(LIMIT - world.left(name, limit), 20, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarts_empty_gets_back_the_counts_of_live_nodes_only() {
    let world = World::new();
    let (one, two) = (world.node(1), world.node(2));
    let limits = limits();
    for (name, limit) in &limits {
        one.burst(eventual(name, limit), 10).await;
        two.burst(eventual(name, limit), 7).await;
    }
    pass(250).await;
    drop(one);
    world.server.fail_over(None);
    pass(250).await;
    for (name, limit) in &limits {
        assert_eq!(LIMIT - world.left(name, limit), 7, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_of_a_window_that_ended_are_not_charged_to_the_next_one() {
    let world = World::new();
    let node = world.node(1);
    let limit = Limit::new(FixedWindow::new(1_000, Window::Every(Period::MINUTE)));
    node.burst(eventual("a", &limit), 10).await;
    pass(250).await;
    world.server.set(Condition::Silent);
    node.burst(eventual("a", &limit), 20).await;
    // The minute ends 40 s after every test began.
    pass(41_000).await;
    world.server.set(Condition::Well);
    node.burst(eventual("a", &limit), 3).await;
    pass(300).await;
    assert_eq!(1_000 - world.left("a", &limit), 3);
}
