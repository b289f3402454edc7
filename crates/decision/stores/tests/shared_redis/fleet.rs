//! Nodes in front of real servers: each a shared store with its own
//! connections, clock and background work.
//!
//! Nodes run on a runtime of their own, so that the test itself can wait for
//! servers without holding anybody up.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_algorithms::{Clock, Timestamp};
use tidegate_stores::{
    Answer, Answers, Batch, Charge, Check, CounterStore, Metrics, RedisSettings, RedisStore,
    SharedSettings, SharedStore, StoreError, Verb,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::load::{Load, Subject};
use tidegate_test_servers::eventually;

pub(crate) type Store = SharedStore<RedisStore>;

/// How long a request may wait: longer than the default, because several suites share the machine.
pub(crate) const WITHIN: Duration = Duration::from_millis(100);
/// For tests in which no call should reach its deadline.
pub(crate) const UNHURRIED: Duration = Duration::from_secs(10);

/// The system's clock, and how far this node's is off.
#[derive(Debug, Default)]
pub(crate) struct Wall {
    off_by_nanos: AtomicI64,
}

impl Wall {
    /// Puts the clock forward or back.
    pub(crate) fn jump(&self, seconds: i64) {
        self.off_by_nanos.fetch_add(seconds * 1_000_000_000, Ordering::Relaxed);
    }
}

impl Clock for Wall {
    #[expect(clippy::disallowed_methods, reason = "nodes and real servers live in real time")]
    fn now(&self) -> Timestamp {
        let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let nanos = u64::try_from(passed.as_nanos()).unwrap();
        let off_by = self.off_by_nanos.load(Ordering::Relaxed);
        Timestamp::from_nanos(nanos.saturating_add_signed(off_by))
    }
}

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<Wall>,
    background: JoinHandle<()>,
}

impl Drop for Node {
    /// A node that goes goes without notice.
    fn drop(&mut self) {
        self.background.abort();
    }
}

impl Node {
    /// Sends one check.
    pub(crate) async fn send(&self, verb: Verb, check: Check<'_>) -> Result<Answer, StoreError> {
        let checks = [check];
        let mut answers = Answers::new();
        let batch = Batch::new(verb, Charge::AllOrNothing, self.clock.now(), &checks);
        self.store.apply(&batch, &mut answers).await?;
        assert_eq!(answers.len(), 1, "every check has its answer");
        Ok(answers[0])
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.store.metrics(self.clock.now())
    }
}

/// The common settings of a fleet's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) url: String,
    /// Other regions.
    pub(crate) regions: Vec<String>,
    pub(crate) settings: SharedSettings,
    /// Where the seeds of the nodes begin.
    pub(crate) seed: u64,
}

impl Plan {
    pub(crate) fn new(nodes: usize, url: &str) -> Self {
        let settings = SharedSettings {
            within: WITHIN,
            background_within: Duration::from_millis(500),
            node_beat: Duration::from_millis(500),
            ..SharedSettings::default()
        };
        Plan { nodes, url: url.to_owned(), regions: Vec::new(), settings, seed: 1 }
    }

    /// The same, with requests that may wait for long.
    pub(crate) fn unhurried(mut self) -> Self {
        (self.settings.within, self.settings.background_within) = (UNHURRIED, UNHURRIED);
        self
    }

    /// Starts the nodes and waits until they know each other.
    #[track_caller]
    pub(crate) fn start(self) -> Fleet {
        let fleet = self.start_blind();
        let count = fleet.nodes.len();
        eventually("that all nodes know each other", || {
            fleet.nodes.iter().all(|node| node.metrics().nodes == count).then_some(())
        });
        fleet
    }

    /// Starts the nodes, whether there is a server or not.
    pub(crate) fn start_blind(self) -> Fleet {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let nodes = (0..self.nodes).map(|at| {
            let store = SharedStore::new(connection(&self.url), self.settings_of(at)).unwrap();
            let with_region = |store: Store, (number, url): (usize, &String)| {
                store.with_region(format!("region {number}"), connection(url))
            };
            let store = Arc::new(self.regions.iter().enumerate().fold(store, with_region));
            let clock = Arc::new(Wall::default());
            let (running, its_clock) = (Arc::clone(&store), Arc::clone(&clock));
            let background = runtime.spawn(async move { running.run(&its_clock).await });
            Arc::new(Node { store, clock, background })
        });
        Fleet { nodes: nodes.collect(), runtime }
    }

    fn settings_of(&self, at: usize) -> SharedSettings {
        SharedSettings { seed: Some(self.seed + at as u64), ..self.settings.clone() }
    }
}

fn connection(url: &str) -> RedisStore {
    RedisStore::new(RedisSettings::parse(url).unwrap()).unwrap()
}

/// Nodes that share a store.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) runtime: Runtime,
}

impl Fleet {
    /// Callers at every node, until the load is stopped.
    pub(crate) fn load(&self, subjects: Vec<Subject>) -> Load {
        Load::start(self.runtime.handle(), &self.nodes, subjects)
    }

    pub(crate) fn send(
        &self,
        node: usize,
        verb: Verb,
        check: Check<'_>,
    ) -> Result<Answer, StoreError> {
        self.runtime.block_on(self.nodes[node].send(verb, check))
    }

    /// Takes slots on a lease and holds them; says whether there was room.
    pub(crate) fn take_slot(&self, node: usize, check: Check<'_>) -> bool {
        let check = Check { tenure: self.nodes[node].store.slot_lease().into(), ..check };
        let admitted = self.send(node, Verb::Check, check).unwrap().decision.is_admitted();
        if admitted {
            let (node, checks) = (&self.nodes[node], [check]);
            let now = node.clock.now();
            node.store.hold(&Batch::new(Verb::Refund, Charge::AllOrNothing, now, &checks));
        }
        admitted
    }

    /// Gives slots back.
    pub(crate) fn give_back(&self, node: usize, check: Check<'_>) {
        let (node, checks) = (&self.nodes[node], [check]);
        let now = node.clock.now();
        node.store.give_back(&Batch::new(Verb::Refund, Charge::AllOrNothing, now, &checks));
    }

    /// The server's count of a limit, read without a node.
    #[track_caller]
    pub(crate) fn counted(&self, subject: &Subject) -> u64 {
        let checks = [Check { cost: 0, ..subject.check() }];
        let now = self.nodes[0].clock.now();
        let batch = Batch::new(Verb::Peek, Charge::AllOrNothing, now, &checks);
        let batch = Batch { within: Some(UNHURRIED), ..batch };
        let mut answers = Answers::new();
        let remote = self.nodes[0].store.remote();
        self.runtime.block_on(remote.apply(&batch, &mut answers)).unwrap();
        answers[0].decision.limit - answers[0].decision.remaining
    }

    /// Waits until no node is without its store; says how long that took.
    #[track_caller]
    pub(crate) fn wait_until_well(&self) -> Duration {
        let begun = Instant::now();
        eventually("that all nodes ask the store again", || {
            self.nodes.iter().all(|node| !node.store.is_degraded()).then_some(())
        });
        begun.elapsed()
    }

    /// Waits until every node goes without the store.
    #[track_caller]
    pub(crate) fn wait_until_degraded(&self) {
        eventually("that all nodes go without the store", || {
            self.nodes.iter().all(|node| node.metrics().degraded).then_some(())
        });
    }

    /// Waits until nodes have sent all counts and debts to the store.
    #[track_caller]
    pub(crate) fn wait_until_settled(&self) {
        eventually("that nothing is owed", || {
            let settled = |metrics: Metrics| {
                metrics.owing == 0 && metrics.pending == 0 && metrics.leases.held == 0
            };
            self.nodes.iter().all(|node| settled(node.metrics())).then_some(())
        });
    }

    /// A number of all nodes together.
    pub(crate) fn sum(&self, number: impl Fn(&Metrics) -> u64) -> u64 {
        self.nodes.iter().map(|node| number(&node.metrics())).sum()
    }
}
