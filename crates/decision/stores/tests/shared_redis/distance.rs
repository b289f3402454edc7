//! Servers that are far, slow or starved: how much of a limit two nodes admit.
//!
//! Prints the table of docs/consistency.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_algorithms::{Concurrency, FixedWindow, Holder, Limit, Period, Window};
use tidegate_stores::{
    Basis, Check, Consistency, Fingerprinter, Key, OnStoreError, Policy, SharedSettings, Verb,
};
use tokio::time::interval;

use crate::fleet::{Fleet, Plan};
use tidegate_test_servers::eventually;
use tidegate_test_servers::relay::Relay;
use tidegate_test_servers::server::Server;

const MODES: [Consistency; 3] = [Consistency::Exact, Consistency::Leased, Consistency::Eventual];

/// The limit of each mode, an hour, and the requests of two nodes together.
const LIMIT: u64 = 100;
const REQUESTS: u64 = 300;

/// The pause between two requests of a node.
const PAUSE: Duration = Duration::from_millis(10);

/// Round trip and jitter, in milliseconds.
const DISTANCES: [(u64, u64); 6] = [(0, 0), (1, 0), (5, 0), (20, 0), (100, 0), (20, 40)];

fn key(name: &str) -> Key {
    Key { fingerprint: Fingerprinter::seeded(7).of(3, name.as_bytes()), group: 3 }
}

fn check<'a>(name: &str, limit: &'a Limit, consistency: Consistency) -> Check<'a> {
    let policy = Policy { consistency, on_store_error: OnStoreError::Local };
    Check { policy, ..Check::new(key(name), limit, 1) }
}

fn hourly(limit: u64) -> Limit {
    Limit::new(FixedWindow::new(limit, Window::Every(Period::HOUR)))
}

/// Two nodes with the default settings, behind a relay of this round trip.
fn two_nodes(server: &Server, round_trip: Duration, jitter: Duration) -> (Relay, Fleet) {
    let relay = Relay::to(server.port());
    relay.delay(round_trip, jitter);
    let plan = Plan::new(2, &relay.url());
    let fleet = Plan { settings: SharedSettings::default(), ..plan }.start();
    (relay, fleet)
}

/// How many requests were admitted, and how many answers did not come from the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Admissions {
    admitted: u64,
    local: u64,
}

/// Sends the requests of one mode, half of them to each node.
fn send_all(fleet: &Fleet, name: &str, consistency: Consistency) -> Admissions {
    let senders = fleet.nodes.iter().map(|node| {
        let (node, name) = (Arc::clone(node), name.to_owned());
        fleet.runtime.spawn(async move {
            let limit = hourly(LIMIT);
            let mut sum = Admissions::default();
            let mut ticks = interval(PAUSE);
            let mut answers = Vec::new();
            for _ in 0..REQUESTS / 2 {
                ticks.tick().await;
                let (node, limit, name) = (Arc::clone(&node), limit.clone(), name.clone());
                answers.push(tokio::spawn(async move {
                    node.send(Verb::Check, check(&name, &limit, consistency)).await.unwrap()
                }));
            }
            for answer in answers {
                let answer = answer.await.unwrap();
                sum.admitted += u64::from(answer.decision.is_admitted());
                sum.local += u64::from(answer.basis == Basis::Local);
            }
            sum
        })
    });
    let senders: Vec<_> = senders.collect();
    senders.into_iter().fold(Admissions::default(), |sum, sender| {
        let more = fleet.runtime.block_on(sender).unwrap();
        Admissions { admitted: sum.admitted + more.admitted, local: sum.local + more.local }
    })
}

/// The admissions of a run in which the store answered every request. A starved machine may take longer than a
/// deadline; then the answers say so, and the run is repeated with another key.
#[track_caller]
fn without_local_answers(name: &str, mut run: impl FnMut(&str) -> Admissions) -> u64 {
    let mut attempt = 0;
    eventually(&format!("a run of {name} that the store answers"), || {
        attempt += 1;
        let admissions = run(&format!("{name} {attempt}"));
        (admissions.local == 0).then_some(admissions.admitted)
    })
}

#[test]
fn two_nodes_admit_the_limit_at_any_distance() {
    let server = Server::redis();
    let mut rows = Vec::new();
    for (millis, jitter) in DISTANCES {
        let (round_trip, spread) = (Duration::from_millis(millis), Duration::from_millis(jitter));
        let (_relay, fleet) = two_nodes(&server, round_trip, spread);
        let admitted = MODES.map(|mode| {
            let name = format!("{} at {millis} and {jitter} ms", mode.as_str());
            without_local_answers(&name, |key| send_all(&fleet, key, mode))
        });
        let [exact, leased, eventual] = admitted;
        assert_eq!(exact, LIMIT, "{millis} ms, {jitter} ms of jitter");
        assert!(leased <= LIMIT, "{leased} at {millis} ms, {jitter} ms of jitter");
        assert!(eventual >= LIMIT, "{eventual} at {millis} ms, {jitter} ms of jitter");
        let ratio = |admitted: u64| admitted as f64 / LIMIT as f64;
        let [exact, leased, eventual] = admitted.map(ratio);
        let distance = distance_name(millis, jitter);
        rows.push(format!("| {distance} | {exact:.2} | {leased:.2} | {eventual:.2} |"));
    }
    assert_documented();
    println!(
        "| Round trip | `exact` | `leased` | `eventual` |\n|---|---|---|---|\n{}",
        rows.join("\n")
    );
}

fn distance_name(millis: u64, jitter: u64) -> String {
    match (millis, jitter) {
        (0, 0) => "none".to_owned(),
        (_, 0) => format!("{millis} ms"),
        _ => format!("{millis} to {} ms, at random", millis + jitter),
    }
}

/// The page has a row for each distance, with what this test asserts.
#[track_caller]
fn assert_documented() {
    let page = include_str!("../../../../../docs/consistency.md");
    for (millis, jitter) in DISTANCES {
        let start = format!("| {} | 1.00 | 1.00 | 1.", distance_name(millis, jitter));
        assert!(page.lines().any(|line| line.starts_with(&start)), "docs/consistency.md: {start}");
    }
}

/// Threads that keep the machine busy until they are dropped.
struct BusyMachine(Arc<AtomicBool>);

impl BusyMachine {
    fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        for _ in 0..2 * thread::available_parallelism().map_or(2, usize::from) {
            let ends = Arc::clone(&ends);
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        BusyMachine(ends)
    }
}

impl Drop for BusyMachine {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends all requests at once, half of them to each node.
fn send_at_once(fleet: &Fleet, requests: u64, name: &str, limit: &Limit) -> Admissions {
    let tasks: Vec<_> = (0..requests)
        .map(|number| {
            let node = Arc::clone(&fleet.nodes[usize::from(number % 2 == 0)]);
            let (name, limit) = (name.to_owned(), limit.clone());
            fleet.runtime.spawn(async move {
                let check = check(&name, &limit, Consistency::Exact);
                let check = Check { holder: Holder(number + 1), ..check };
                node.send(Verb::Check, check).await.unwrap()
            })
        })
        .collect();
    tasks.into_iter().fold(Admissions::default(), |sum, task| {
        let answer = fleet.runtime.block_on(task).unwrap();
        Admissions {
            admitted: sum.admitted + u64::from(answer.decision.is_admitted()),
            local: sum.local + u64::from(answer.basis == Basis::Local),
        }
    })
}

#[test]
fn two_thousand_concurrent_requests_on_a_busy_machine_admit_the_limit() {
    let server = Server::redis();
    let (_relay, fleet) = two_nodes(&server, Duration::ZERO, Duration::ZERO);
    let _busy = BusyMachine::start();
    let limit = hourly(1_000);
    let admitted = without_local_answers("a burst", |key| send_at_once(&fleet, 2_000, key, &limit));
    assert_eq!(admitted, 1_000);
}

#[test]
fn a_concurrency_limit_holds_on_a_busy_machine() {
    let server = Server::redis();
    let (_relay, fleet) = two_nodes(&server, Duration::from_millis(5), Duration::from_millis(5));
    let _busy = BusyMachine::start();
    let limit = Limit::new(Concurrency::new(5, Period::MINUTE).unwrap());
    let admitted = without_local_answers("slots", |key| send_at_once(&fleet, 200, key, &limit));
    assert_eq!(admitted, 5);
}
