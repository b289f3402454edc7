//! Slots that somebody holds, on a clock turned by hand.

use std::time::Duration;

use tidegate_algorithms::{Concurrency, Decision, Holder, Limit, Nanos, Period, Timestamp};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CounterStore, Fingerprinter, Key, RedisSettings, RedisStore,
    Remote, SharedSettings, Verb,
};

use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::server::Server;

/// The caller's clock, and the server's.
const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const PATIENCE: Duration = Duration::from_secs(20);

fn at(millis: u64) -> Timestamp {
    START.after(Nanos::from_millis(millis))
}

/// Processes on one server; each beat renews the slots that are due.
struct Bench {
    server: Server,
    nodes: Vec<RedisStore>,
    /// Milliseconds since the start.
    now: u64,
}

impl Bench {
    /// Starts `nodes` processes with these options of the URL.
    async fn start(nodes: usize, options: &str) -> Self {
        let server = Server::redis();
        let settings = RedisSettings::parse(&format!("{}{options}", server.url())).unwrap();
        let settings = RedisSettings { deadline: PATIENCE, ..settings };
        let nodes = (0..nodes).map(|_| RedisStore::new(settings.clone()).unwrap()).collect();
        let bench = Bench { server, nodes, now: 0 };
        for node in &bench.nodes {
            node.connected().await;
            node.set_clock(START);
        }
        bench
    }

    fn turn(&mut self, to: u64) {
        self.now = to;
        self.nodes.iter().for_each(|node| node.set_clock(at(to)));
    }

    /// Turns the clock in steps of a beat; `alive` is the node that renews on each.
    async fn pass(&mut self, to: u64, alive: usize) {
        while self.now < to {
            self.turn(self.now + 100);
            self.nodes[alive].renew_held_slots(at(self.now)).await;
        }
    }

    async fn ask(&self, node: usize, verb: Verb, check: Check<'_>) -> Decision {
        let checks = [check];
        let batch = Batch::new(verb, Charge::AllOrNothing, at(self.now), &checks);
        let mut answers = Answers::new();
        self.nodes[node].apply(&batch, &mut answers).await.unwrap();
        answers[0].decision
    }

    /// Takes slots on the node's lease and holds them, as a permit does.
    async fn hold(&self, node: usize, check: Check<'_>) {
        let checks = [Check { tenure: self.nodes[node].slot_lease().into(), ..check }];
        assert!(self.ask(node, Verb::Check, checks[0]).await.is_admitted());
        self.nodes[node].hold(&Batch::new(
            Verb::Refund,
            Charge::AllOrNothing,
            at(self.now),
            &checks,
        ));
    }

    async fn left(&self, node: usize, check: Check<'_>) -> u64 {
        self.ask(node, Verb::Peek, Check { cost: 0, ..check }).await.remaining
    }

    /// For how many seconds the only key lives, without the hour more that a
    /// clock turned by hand gives it. Goes by the real clock, so only roughly.
    fn key_lives(&self) -> i64 {
        let key = self.server.tell(&["KEYS", "*"]).list()[0].text().unwrap();
        let Reply::Number(lives) = self.server.tell(&["TTL", &key]) else { panic!("it expires") };
        lives - 3_600
    }
}

fn slots(limit: u64, time_to_live: u64) -> Limit {
    let life = Period::new(Duration::from_secs(time_to_live)).unwrap();
    Limit::new(Concurrency::new(limit, life).unwrap())
}

fn slot(limit: &Limit, holder: u64) -> Check<'_> {
    let key = Key { fingerprint: Fingerprinter::shared().of(1, b"ada"), group: 1 };
    Check { holder: Holder(holder), ..Check::new(key, limit, 1) }
}

#[tokio::test]
async fn a_slot_lives_on_while_it_is_held_and_comes_back_afterwards() {
    let mut bench = Bench::start(1, "").await;
    let limit = slots(1, 9);
    let slot = slot(&limit, 9);
    bench.hold(0, slot).await;

    // Renewed at four seconds, so at twelve it is there still.
    bench.turn(4_000);
    bench.nodes[0].renew_held_slots(at(4_000)).await;
    assert_eq!(bench.nodes[0].held().renewed, 1);
    bench.turn(12_000);
    assert_eq!(bench.left(0, slot).await, 0);

    // It is not renewed any more: after thirteen seconds it is free.
    bench.turn(13_000);
    assert_eq!(bench.left(0, slot).await, 1);

    // It was held all the same: with room it is taken again.
    bench.nodes[0].renew_held_slots(at(13_000)).await;
    assert_eq!(bench.left(0, slot).await, 0);
    let checks = [slot];
    bench.nodes[0].give_back(&Batch::new(Verb::Refund, Charge::AllOrNothing, at(13_000), &checks));
    assert_eq!(bench.nodes[0].held().held, 0);
}

#[tokio::test]
async fn slots_of_a_node_that_dies_are_back_when_its_lease_is_over_and_no_sooner() {
    let mut bench = Bench::start(2, "").await;
    let limit = slots(2, 60);
    bench.hold(0, slot(&limit, 1)).await;
    bench.hold(0, slot(&limit, 2)).await;

    // While the holder lives, no other gets the slots, for many leases.
    while bench.now < 95_000 {
        bench.pass(bench.now + 500, 0).await;
        let asked = bench.ask(1, Verb::Check, slot(&limit, 3)).await;
        assert!(!asked.is_admitted(), "after {} ms", bench.now);
    }
    assert_eq!(bench.nodes[0].held().lost, 0);

    // From now on it renews nothing.
    let (lease, died) = (10_000, bench.now);
    bench.pass(died + lease - 3_400, 1).await;
    assert_eq!(bench.left(1, slot(&limit, 3)).await, 0, "it renewed a third of a lease ago");
    bench.pass(died + lease, 1).await;
    assert_eq!(bench.left(1, slot(&limit, 3)).await, 2);
}

#[test]
fn by_the_defaults_slots_of_a_node_that_dies_are_back_within_eleven_seconds() {
    let lease = RedisSettings::parse("redis://localhost").unwrap().slot_lease;
    // A node that was refused remembers that for a while.
    let remembered = SharedSettings::default().refusals_for;
    assert!(lease + remembered <= Duration::from_secs(11), "{lease:?} and {remembered:?}");
}

#[tokio::test]
async fn a_slot_that_is_not_renewed_keeps_its_whole_time_to_live_next_to_leased_slots() {
    let mut bench = Bench::start(2, "?slot_lease=3s").await;
    let limit = slots(3, 60);
    assert!(bench.ask(0, Verb::Check, slot(&limit, 1)).await.is_admitted());
    bench.hold(0, slot(&limit, 2)).await;
    assert!((20..=60).contains(&bench.key_lives()), "the key lives as long as its last slot");
    bench.pass(6_000, 0).await;
    assert!((20..=54).contains(&bench.key_lives()), "renewing another changes nothing of that");
    assert_eq!(bench.left(1, slot(&limit, 3)).await, 1);
    for (now, left) in [(9_000, 2), (59_000, 2), (60_000, 3)] {
        bench.pass(now, 1).await;
        assert_eq!(bench.left(1, slot(&limit, 3)).await, left, "after {now} ms");
    }
}

#[tokio::test]
async fn a_slot_that_is_gone_with_no_room_to_take_it_again_is_lost() {
    let mut bench = Bench::start(2, "?slot_lease=3s").await;
    let limit = slots(1, 60);
    bench.hold(0, slot(&limit, 1)).await;
    bench.turn(3_000);
    bench.hold(1, slot(&limit, 2)).await;
    bench.nodes[0].renew_held_slots(at(3_000)).await;
    let counts = bench.nodes[0].held();
    assert_eq!((counts.held, counts.renewed, counts.lost), (0, 0, 1));
    bench.pass(9_000, 1).await;
    assert_eq!(bench.left(0, slot(&limit, 3)).await, 0, "the other one keeps it");
}
