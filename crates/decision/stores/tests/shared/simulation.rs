//! Many nodes, random traffic, and everything that goes wrong, by seed.
//!
//! Nodes crash and are replaced, lines are cut or slow, the server refuses,
//! falls silent or loses its answers, clocks are put back. After each run the
//! witness says whether every limit held within the bound that is stated for
//! its mode, whether every request was answered in time, and whether everything
//! came back. All of it follows from the seed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tidegate_algorithms::{Clock, FixedWindow, Limit, Period, SlidingLog, TokenBucket, Window};
use tidegate_stores::{Basis, Check, Consistency, OnStoreError, Policy, SharedSettings, Verb};
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::fake::Condition;
use super::world::{Node, Witness, World, check, pass};

const NODES: usize = 4;
const LASTING_MILLIS: u64 = 10_000;
const SECOND: Duration = Duration::from_secs(1);

/// Random numbers that follow from a seed.
struct Chance(Cell<u64>);

impl Chance {
    fn below(&self, bound: u64) -> u64 {
        let state = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_of<'a, T>(&self, things: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(things.len() as u64)).expect("small");
        &things[at]
    }
}

/// A limit under test, and the admissions of it.
struct Subject {
    name: &'static str,
    limit: Limit,
    policy: Policy,
    cost_max: u64,
    /// Admissions that the remote has counted.
    firm: RefCell<Witness>,
    /// These, and the admissions by nodes' shares.
    all: RefCell<Witness>,
}

impl Subject {
    fn new(
        name: &'static str,
        limit: Limit,
        consistency: Consistency,
        on_store_error: OnStoreError,
        cost_max: u64,
    ) -> Self {
        let policy = Policy { consistency, on_store_error };
        assert_eq!(tidegate_stores::consistency_for(consistency, &limit), consistency);
        Subject { name, limit, policy, cost_max, firm: RefCell::default(), all: RefCell::default() }
    }
}

fn subjects() -> Vec<Subject> {
    use Consistency::{Eventual, Exact, Leased};
    use OnStoreError::{Deny, Local};
    let bucket = || Limit::new(TokenBucket::new(100, Period::SECOND, 100));
    let window = || Limit::new(FixedWindow::new(100, Window::Every(Period::SECOND)));
    let log = || Limit::new(SlidingLog::new(100, Period::SECOND).expect("small"));
    vec![
        Subject::new("exact bucket", bucket(), Exact, Local, 3),
        Subject::new("exact log", log(), Exact, Deny, 3),
        Subject::new("leased bucket", bucket(), Leased, Local, 3),
        Subject::new("leased window", window(), Leased, Deny, 3),
        Subject::new("leased log", log(), Leased, Local, 1),
        Subject::new("eventual window", window(), Eventual, Local, 1),
    ]
}

struct Run {
    world: World,
    chance: Chance,
    subjects: Vec<Subject>,
    nodes: RefCell<Vec<Rc<Node>>>,
    sent: Cell<u64>,
    answered: Cell<u64>,
    undecided: Cell<u64>,
    over: Cell<bool>,
}

impl Run {
    fn new(seed: u64) -> Rc<Self> {
        let run = Run {
            world: World::new(),
            chance: Chance(Cell::new(seed)),
            subjects: subjects(),
            nodes: RefCell::default(),
            sent: Cell::new(0),
            answered: Cell::new(0),
            undecided: Cell::new(0),
            over: Cell::new(false),
        };
        for _ in 0..NODES {
            let node = run.fresh_node();
            run.nodes.borrow_mut().push(node);
        }
        Rc::new(run)
    }

    fn fresh_node(&self) -> Rc<Node> {
        let off = self.chance.below(400);
        let off = i64::try_from(off).expect("small") - 200;
        let settings = SharedSettings { nodes_expected: NODES, ..SharedSettings::default() };
        let seed = self.chance.below(u64::MAX);
        let node = self.world.node_with(seed, off, |store| store, &settings);
        node.line.slow(Duration::from_millis(self.chance.below(5)));
        Rc::new(node)
    }

    /// Traffic to the node at this index of the fleet, which may be replaced.
    async fn traffic(self: Rc<Self>, at: usize) {
        while !self.over.get() {
            pass(1 + self.chance.below(2)).await;
            let node = Rc::clone(&self.nodes.borrow()[at]);
            let run = Rc::clone(&self);
            self.sent.set(self.sent.get() + 1);
            tokio::task::spawn_local(async move { run.request(&node).await });
        }
    }

    async fn request(&self, node: &Node) {
        let subject = self.chance.one_of(&self.subjects);
        let cost = 1 + self.chance.below(subject.cost_max);
        let check: Check<'_> = check(subject.name, &subject.limit, cost, subject.policy);
        let begun = Instant::now();
        let decided = node.send(Verb::Check, &[check]).await;
        let waited = begun.elapsed();
        assert!(waited <= Duration::from_millis(12), "{}: waited {waited:?}", subject.name);
        self.answered.set(self.answered.get() + 1);
        let Ok(decided) = decided else {
            assert_eq!(subject.policy.on_store_error, OnStoreError::Deny);
            return self.undecided.set(self.undecided.get() + 1);
        };
        let (decision, basis) = decided[0];
        if decision.is_admitted() {
            let now = self.world.server.clock.now();
            subject.all.borrow_mut().saw(now, cost);
            if basis != Basis::Local {
                subject.firm.borrow_mut().saw(now, cost);
            }
        }
    }

    /// One thing goes wrong, or gets well.
    fn trouble(&self) {
        use Condition::{Deaf, Refusing, Silent, Well};
        let at = usize::try_from(self.chance.below(NODES as u64)).expect("small");
        let node = Rc::clone(&self.nodes.borrow()[at]);
        match self.chance.below(8) {
            0 => {
                let fresh = self.fresh_node();
                self.nodes.borrow_mut()[at] = fresh;
            }
            1 => node.line.set(*self.chance.one_of(&[Refusing, Silent, Deaf])),
            2 => node.line.slow(Duration::from_millis(self.chance.below(30))),
            3 => self.world.server.set(*self.chance.one_of(&[Refusing, Silent, Deaf])),
            4 => node.clock.step(-i64::try_from(self.chance.below(90)).expect("small")),
            5 => node.line.set(Well),
            _ => {
                self.world.server.set(Well);
                node.line.set(Well);
                node.line.slow(Duration::from_millis(self.chance.below(5)));
            }
        }
    }

    fn heal(&self) {
        self.world.server.set(Condition::Well);
        for node in self.nodes.borrow().iter() {
            node.line.set(Condition::Well);
            node.line.slow(Duration::from_millis(1));
        }
    }
}

/// A run of random traffic and trouble, healed at the end.
async fn run(seed: u64) -> Rc<Run> {
    let run = Run::new(seed);
    for at in 0..NODES {
        tokio::task::spawn_local(Rc::clone(&run).traffic(at));
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(LASTING_MILLIS) {
        pass(50 + run.chance.below(400)).await;
        run.trouble();
    }
    run.heal();
    run.over.set(true);
    // A node that crashed is registered for five beats more, and counted for another five.
    pass(20_000).await;
    run
}

impl Run {
    fn subject(&self, name: &str) -> &Subject {
        self.subjects.iter().find(|subject| subject.name == name).expect("one of them")
    }

    fn limits_held(&self, seed: u64) {
        let firm = |name: &str| self.subject(name).firm.borrow().clone();
        // An exact answer is seen up to a deadline after the remote has given it.
        let burst = firm("exact bucket").burst_at(100, SECOND);
        assert!(burst <= 101, "seed {seed}, exact bucket: {burst}");
        let most = firm("exact log").most_in(SECOND - Duration::from_millis(10));
        assert!(most <= 100, "seed {seed}, exact log: {most}");
        // A leased unit is used after it was taken, and the proof counts on that only.
        let burst = firm("leased bucket").burst_at(100, SECOND);
        assert!(burst <= 100, "seed {seed}, leased bucket: {burst}");
        let most = firm("leased log").most_in(SECOND);
        assert!(most <= 100, "seed {seed}, leased log: {most}");
        let most = firm("leased window").most_in_aligned(SECOND);
        assert!(most <= 100, "seed {seed}, leased window: {most}");
        for (subject, firm) in self.subjects.iter().zip(self.firm_bounds()) {
            // The shares of all nodes, and of two that replaced others, come on top.
            let shares = 100 + 2 * 100 / NODES as u64;
            let windows = firm / 100;
            let all = subject.all.borrow().most_in(SECOND);
            let most = firm + windows * shares;
            assert!(all <= most, "seed {seed}, {}: {all} of {most}", subject.name);
            let seen = subject.firm.borrow().most_in(SECOND);
            assert!(seen <= firm, "seed {seed}, {}: {seen} of {firm} firm", subject.name);
        }
    }

    /// The most that each subject may admit in any second while the remote answers, in the order of the subjects.
    fn firm_bounds(&self) -> [u64; 6] {
        // A burst and its refill; the ends of two windows; a log, whose exact answers are seen late, so that a second
        // may show two windows; and for the eventual window the admissions of all nodes in a beat and until the breaker
        // opens.
        let rate = self.answered.get() * 1_000 / LASTING_MILLIS / self.subjects.len() as u64;
        let until_noticed = 7;
        let eventual = 200 + rate * until_noticed / 10;
        [202, 200, 200, 200, 100, eventual]
    }

    async fn recovered(&self, seed: u64) {
        let nodes = self.nodes.borrow().clone();
        for node in nodes {
            let metrics = node.metrics();
            assert!(!metrics.degraded, "seed {seed}");
            assert_eq!(metrics.nodes, NODES, "seed {seed}");
            assert_eq!(metrics.owing, 0, "seed {seed}");
            assert_eq!(metrics.leases.held, 0, "seed {seed}: all given back or lost");
            for subject in &self.subjects {
                let check = check(subject.name, &subject.limit, 1, subject.policy);
                let decided = node.send(Verb::Check, &[check]).await.expect("it is back")[0];
                assert!(decided.0.is_admitted(), "seed {seed}, {}: {decided:?}", subject.name);
                assert!(!decided.1.is_degraded(), "seed {seed}, {}: {decided:?}", subject.name);
            }
        }
    }
}

async fn holds(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        LocalSet::new()
            .run_until(async {
                let run = run(seed).await;
                assert!(run.sent.get() > 10_000, "seed {seed}: {}", run.sent.get());
                assert_eq!(run.answered.get(), run.sent.get(), "seed {seed}: every request");
                run.limits_held(seed);
                run.recovered(seed).await;
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn limits_hold_and_everything_comes_back_whatever_goes_wrong() {
    holds(0..5).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_follows_from_its_seed() {
    let once = || async {
        LocalSet::new()
            .run_until(async {
                let run = run(77).await;
                let totals: Vec<u64> =
                    run.subjects.iter().map(|subject| subject.all.borrow().total()).collect();
                (run.answered.get(), run.undecided.get(), totals)
            })
            .await
    };
    assert_eq!(once().await, once().await);
}
