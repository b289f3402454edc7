//! A node that is killed while it holds leases and slots.
//!
//! The node is a process of its own: this program, started again with the
//! address of the server in its environment.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tidegate_algorithms::{Concurrency, Holder, Limit, Period};
use tidegate_stores::{Check, Consistency, Verb};
use tokio::time::Instant;

use crate::fleet::{Fleet, Plan};
use crate::load::{Subject, TIGHT, lasting};
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::Server;

/// The environment variable that makes a process a node on this server.
const NODE: &str = "TIDEGATE_TEST_NODE";
const SLOTS: u64 = 5;
/// Slots that the node holds and renews, and one that it lends.
const SLOTS_HELD: u64 = 3;
const SLOTS_LENT: u64 = 1;
const SLOT_LEASE: &str = "3s";
/// Units that have to be in the node's hands when it dies.
const UNITS_HELD: u64 = 5;

fn leased() -> Subject {
    Subject::new("leased", lasting(4 * TIGHT), Consistency::Leased)
}

fn slots() -> Subject {
    let limit = Concurrency::new(SLOTS, Period::HOUR).unwrap();
    Subject::new("slots", Limit::new(limit), Consistency::Exact)
}

/// Takes slots and keeps them, spends units until killed, and says after each
/// how many were admitted, how many are held, how often slots were renewed.
fn be_a_node(url: &str) {
    let mut plan = Plan::new(1, &format!("{url}?slot_lease={SLOT_LEASE}")).unhurried();
    plan.seed = 100;
    plan.settings.nodes_expected = 2;
    let fleet = plan.start_blind();
    let (leased, slots) = (leased(), slots());
    for number in 0..SLOTS_HELD {
        assert!(fleet.take_slot(0, Check { holder: Holder(100 + number), ..slots.check() }));
    }
    let lent = Check { cost: SLOTS_LENT, holder: Holder(99), ..slots.check() };
    assert!(fleet.send(0, Verb::Check, lent).unwrap().decision.is_admitted());
    let mut admitted = 0;
    // Ends by itself when nothing is left, if it is not killed.
    while fleet.send(0, Verb::Check, leased.check()).unwrap().decision.is_admitted() {
        admitted += 1;
        let metrics = fleet.nodes[0].metrics();
        let renewed = fleet.nodes[0].store.remote().held().renewed;
        println!("\nnode {admitted} {} {renewed}", metrics.leases.held);
        fleet.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
    }
    // The parent process closes this when the test is over.
    let _ = std::io::stdin().read(&mut [0]);
}

/// The process, which is killed with its handle.
struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child that was waited for is not signalled again.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn start(server: &Server) -> Self {
        let name = "killed::a_node_that_is_killed_takes_units_with_it_and_gives_slots_back";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(NODE, server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Process { child, said }
    }

    /// The next line of the node: admitted, held, renewed. `None` once it is dead.
    fn next(&mut self) -> Option<[u64; 3]> {
        loop {
            let mut line = String::new();
            if self.said.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let words = line.strip_prefix("node ").and_then(|rest| rest.strip_suffix('\n'));
            let numbers = words.map(|words| words.split(' ').map(|word| word.parse().unwrap()));
            if let Some(numbers) = numbers {
                return Some(numbers.collect::<Vec<_>>().try_into().unwrap());
            }
        }
    }
}

/// How many slots are free, as the other node sees it.
fn free(fleet: &Fleet) -> u64 {
    let slots = slots();
    let seen = fleet.send(0, Verb::Peek, Check { cost: 0, ..slots.check() }).unwrap();
    seen.decision.remaining
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how a test tells a process of its own what to do")]
fn a_node_that_is_killed_takes_units_with_it_and_gives_slots_back() {
    if let Ok(url) = std::env::var(NODE) {
        return be_a_node(&url);
    }
    let server = Server::redis();
    let fleet = Plan::new(1, &server.url()).unhurried().start();
    let mut process = Process::start(&server);
    let (mut admitted, mut held_most) = (0, 0);
    loop {
        let [so_far, held, renewed] = process.next().expect("the node lives");
        (admitted, held_most) = (so_far.max(admitted), held.max(held_most));
        // Slots have outlived their lease by now, because they are held.
        if held >= UNITS_HELD && renewed >= 3 * SLOTS_HELD {
            break;
        }
    }
    // A node that the machine kept waiting for a whole lease takes its slots again.
    eventually("that its slots are held", || {
        (free(&fleet) == SLOTS - SLOTS_HELD - SLOTS_LENT).then_some(())
    });
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    let killed = Instant::now();
    while let Some([so_far, held, _]) = process.next() {
        (admitted, held_most) = (so_far.max(admitted), held.max(held_most));
    }
    let leased = leased();
    let own = (0..8 * TIGHT)
        .take_while(|_| fleet.send(0, Verb::Check, leased.check()).unwrap().decision.is_admitted())
        .count() as u64;
    assert!(admitted + own <= leased.quota(), "{admitted} and {own}");
    // This node may lose some too, if the machine keeps it waiting for a whole life.
    let own_lost = fleet.sum(|metrics| metrics.leases.lost);
    let lost = leased.quota().saturating_sub(admitted + own + own_lost);
    // The units that the other held, and one slice that may have been in flight.
    let words = format!("{lost} lost of {held_most}, and {own_lost} here");
    assert!(lost <= 2 * held_most + UNITS_HELD, "{words}");
    eventually("that its slots are back", || (free(&fleet) == SLOTS - SLOTS_LENT).then_some(()));
    let took = killed.elapsed();
    println!("a node is killed: {words}, slots back after {took:?} of a lease of {SLOT_LEASE}");
    assert_eq!(
        free(&fleet),
        SLOTS - SLOTS_LENT,
        "slots that are not renewed have their time to live"
    );
}
