//! Counts of eventual limits: whatever fails, each is counted once in every region.
//!
//! Prints the rows of the table of docs/consistency.md.

use std::time::Duration;

use tidegate_algorithms::{Limit, Period, TokenBucket};
use tidegate_stores::{Consistency, Verb};

use crate::fleet::{Fleet, Plan};
use crate::load::{Subject, WIDE, lasting};
use tidegate_test_servers::eventually;
use tidegate_test_servers::relay::Relay;
use tidegate_test_servers::server::{Server, Setup};

/// Two regions of one node each.
struct Pair {
    servers: [Server; 2],
    /// The line to each server from the other region.
    lines: [Relay; 2],
    fleets: [Fleet; 2],
}

fn wide() -> Subject {
    Subject::new("wide", lasting(WIDE), Consistency::Eventual)
}

/// Refills one unit in an hour, so that its level is the number of units.
fn bucket() -> Subject {
    let limit = Limit::new(TokenBucket::new(1, Period::HOUR, WIDE));
    Subject::new("bucket", limit, Consistency::Eventual)
}

impl Pair {
    fn start(setup: impl Fn() -> Server) -> Self {
        let servers = [setup(), setup()];
        let lines = [Relay::to(servers[0].port()), Relay::to(servers[1].port())];
        let fleet = |own: usize, other: usize| {
            let mut plan = Plan::new(1, &servers[own].url());
            plan.regions = vec![lines[other].url()];
            plan.seed = 10 * (own as u64 + 1);
            plan.start()
        };
        let fleets = [fleet(0, 1), fleet(1, 0)];
        Pair { servers, lines, fleets }
    }

    /// Admits this many requests of each subject in one region, spread over at least `beats` flushes.
    fn admit(&self, region: usize, times: u64, beats: u64) {
        let fleet = &self.fleets[region];
        for beat in 0..beats {
            for _ in 0..times / beats {
                for subject in [wide(), bucket()] {
                    let answer = fleet.send(0, Verb::Check, subject.check()).unwrap();
                    assert!(answer.decision.is_admitted(), "{} in beat {beat}", subject.name);
                }
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// Waits until both regions know all admissions, and prints a row of the table.
    #[track_caller]
    fn assert_all_count(&self, fault: &str, admitted: u64) {
        let mut known = Vec::new();
        for (region, fleet) in self.fleets.iter().enumerate() {
            for subject in [wide(), bucket()] {
                let name = subject.name;
                let counted = eventually(&format!("all counts of {name} in {region}"), || {
                    fleet.try_counted(&subject).ok().filter(|counted| *counted >= admitted)
                });
                assert_eq!(counted, admitted, "{name} in region {region}");
                known.push(counted as f64 / admitted as f64);
            }
        }
        let least = known.into_iter().fold(f64::INFINITY, f64::min);
        println!("| {fault} | {admitted} | {least:.2} |");
    }
}

#[test]
fn regions_that_were_cut_apart_know_every_count_of_each_other() {
    let pair = Pair::start(Server::redis);
    pair.admit(0, 100, 4);
    pair.admit(1, 100, 4);
    // Packets are lost, then the connections, with all that was on its way.
    pair.lines.iter().for_each(Relay::silence);
    pair.admit(0, 300, 10);
    pair.admit(1, 300, 10);
    pair.lines.iter().for_each(Relay::cut);
    pair.lines.iter().for_each(Relay::mend);
    pair.assert_all_count("the line between the regions, while each admits 300", 800);
}

#[test]
fn counts_made_while_the_own_server_was_stopped_arrive_everywhere() {
    let pair = Pair::start(Server::redis);
    pair.admit(0, 100, 4);
    pair.servers[0].freeze();
    pair.admit(0, 600, 20);
    pair.servers[0].thaw();
    pair.assert_all_count("the own Redis stopped for 2 s, 600 admitted meanwhile", 700);
}

#[test]
fn counts_made_while_a_durable_server_restarts_arrive_everywhere() {
    let durable =
        || Setup::redis().with("appendonly", &["yes"]).with("appendfsync", &["no"]).start();
    let mut pair = Pair::start(durable);
    pair.admit(0, 100, 4);
    pair.servers[0].kill();
    pair.admit(0, 600, 20);
    pair.servers[0].restart();
    pair.assert_all_count(
        "the own Redis killed and restarted with its data, 600 admitted meanwhile",
        700,
    );
}

#[test]
fn a_server_without_persistence_gets_the_counts_of_live_nodes_back() {
    let mut pair = Pair::start(Server::redis);
    pair.admit(0, 100, 4);
    pair.admit(1, 50, 2);
    pair.assert_all_count("nothing", 150);
    pair.servers[0].kill();
    pair.admit(0, 100, 4);
    pair.servers[0].restart();
    pair.assert_all_count("the own Redis killed and restarted empty, 100 admitted meanwhile", 250);
}

#[test]
fn nodes_share_a_bucket_by_reporting_to_redis() {
    let server = Server::redis();
    let fleet = Plan::new(2, &server.url()).unhurried().start();
    // A unit refills in 20 s, so the level is what was admitted, less one in 20 s.
    let limit = Limit::new(TokenBucket::new(3, Period::MINUTE, 40));
    let subject = Subject::new("slow", limit, Consistency::Eventual);
    let mut admitted = 0;
    for turn in 0..60 {
        let answer = fleet.send(turn % 2, Verb::Check, subject.check()).unwrap();
        admitted += u64::from(answer.decision.is_admitted());
        if turn % 10 == 9 {
            let flushes = fleet.sum(|metrics| metrics.flushes);
            let beats = || (fleet.sum(|it| it.flushes) >= flushes + 2).then_some(());
            eventually("that both have reported", beats);
        }
    }
    assert!((40..=40 + 10).contains(&admitted), "{admitted}");
}

/// Random numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

#[test]
fn after_any_mix_of_faults_every_admission_is_counted_once() {
    let mut pair = Pair::start(Server::redis);
    let mut chance = Chance(16);
    let mut admitted = 0;
    for _ in 0..8 {
        let at = usize::from(chance.below(2) == 1);
        let fault = chance.below(4);
        match fault {
            0 => pair.lines[at].silence(),
            1 => pair.lines[at].cut(),
            2 => pair.servers[at].freeze(),
            // Without persistence: it comes back empty.
            _ => pair.servers[at].kill(),
        }
        for region in 0..2 {
            let times = 10 + chance.below(30);
            pair.admit(region, times, 1);
            admitted += times;
        }
        match fault {
            0 => {
                pair.lines[at].cut();
                pair.lines[at].mend();
            }
            1 => pair.lines[at].mend(),
            2 => pair.servers[at].thaw(),
            _ => pair.servers[at].restart(),
        }
    }
    pair.assert_all_count(
        "eight faults at random: cuts, silent lines, stops, restarts without data",
        admitted,
    );
}
