//! Two regions, each with its own server, that count the same limits.

use std::time::Duration;

use tidegate_algorithms::{Limit, Period, SlidingLog};
use tidegate_stores::{Consistency, Verb};

use crate::fleet::{Fleet, Plan};
use crate::load::{Load, Rests, Subject, TIGHT, WIDE, lasting};
use tidegate_test_servers::eventually;
use tidegate_test_servers::relay::Relay;
use tidegate_test_servers::server::Server;

fn subjects() -> Vec<Subject> {
    let eventual = |name, limit| Subject::new(name, lasting(limit), Consistency::Eventual);
    vec![eventual("tight", TIGHT), eventual("wide", WIDE)]
}

/// Two regions of two nodes each.
struct Pair {
    servers: [Server; 2],
    /// The line to each server from the other region.
    lines: [Relay; 2],
    fleets: [Fleet; 2],
}

impl Pair {
    fn start() -> Self {
        let servers = [Server::redis(), Server::redis()];
        let lines = [Relay::to(servers[0].port()), Relay::to(servers[1].port())];
        let fleet = |own: usize, other: usize| {
            let mut plan = Plan::new(2, &servers[own].url());
            plan.regions = vec![lines[other].url()];
            plan.seed = 10 * (own as u64 + 1);
            plan.start()
        };
        let fleets = [fleet(0, 1), fleet(1, 0)];
        Pair { servers, lines, fleets }
    }

    fn load(&self, subjects: &[Subject]) -> [Load; 2] {
        [0, 1].map(|at| self.fleets[at].load(subjects.to_vec()))
    }

    /// Ends the load and waits until both servers have all counts, except those that may have arrived or not.
    #[track_caller]
    fn assert_converged(&self, fault: &str, loads: [Load; 2], mended: tokio::time::Instant) {
        let seen = loads.map(Load::stop);
        let admitted: u64 = seen.iter().map(|seen| seen.of("wide", |it| it.firm + it.local)).sum();
        for (fleet, seen) in self.fleets.iter().zip(&seen) {
            fleet.wait_until_settled();
            seen.assert_decided_in_time();
        }
        let unsure: u64 = self.fleets.iter().map(|fleet| fleet.sum(|it| it.unsure)).sum();
        // Each is the count of one node in a beat and while a call was in flight.
        let each = seen.iter().map(|seen| seen.busiest_second("wide")).max().unwrap();
        let least = admitted.saturating_sub(unsure * each);
        for fleet in &self.fleets {
            let counted = eventually(&format!("that {least} of {admitted} are counted"), || {
                Some(fleet.counted(&subjects()[1])).filter(|counted| *counted >= least)
            });
            assert!(counted <= admitted, "{counted} counted, {admitted} admitted");
        }
        let words = seen.each_ref().map(|seen| seen.words());
        println!("{fault}: both agree after {:?}, {unsure} unsure: {words:?}", mended.elapsed());
        // Each side on its own holds the limit while they do not know of each other.
        for (fleet, seen) in self.fleets.iter().zip(&seen) {
            seen.assert_limits_held(fleet.unknowing());
        }
    }
}

fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

#[test]
fn regions_that_are_cut_apart_go_on_and_agree_afterwards() {
    let pair = Pair::start();
    let loads = pair.load(&subjects());
    loads.iter().for_each(|load| load.wait_for(Rests::OnTheStore, 30));
    pair.lines.iter().for_each(Relay::cut);
    loads.iter().for_each(|load| load.wait_for(Rests::OnTheStore, 200));
    for fleet in &pair.fleets {
        assert!(fleet.nodes.iter().all(|node| !node.store.is_degraded()), "its own server is well");
        eventually("that counts for the other region are pending", || {
            (fleet.sum(|metrics| metrics.pending as u64) > 0).then_some(())
        });
    }
    let mended = now();
    pair.lines.iter().for_each(Relay::mend);
    pair.assert_converged("regions cut apart", loads, mended);
}

#[test]
fn a_region_whose_server_hung_receives_the_counts_of_the_other() {
    let pair = Pair::start();
    let loads = pair.load(&subjects());
    loads.iter().for_each(|load| load.wait_for(Rests::OnTheStore, 30));
    pair.servers[1].freeze();
    pair.fleets[1].wait_until_degraded();
    loads[1].wait_for(Rests::OnTheNode, 30);
    loads[0].wait_for(Rests::OnTheStore, 30);
    assert!(pair.fleets[0].nodes.iter().all(|node| !node.store.is_degraded()));
    let thawed = now();
    pair.servers[1].thaw();
    pair.fleets[1].measure_recovery("a region's server hangs", &loads[1]);
    pair.assert_converged("a region's server hangs", loads, thawed);
}

#[test]
fn a_node_whose_clock_is_wrong_still_tells_the_other_region_everything() {
    let servers = [Server::redis(), Server::redis()];
    let mut plan = Plan::new(1, &servers[0].url()).unhurried();
    plan.regions = vec![servers[1].url()];
    let here = plan.start();
    let there = Plan::new(1, &servers[1].url()).start();
    let ten_minutes = Period::new(Duration::from_secs(600)).unwrap();
    let log = Limit::new(SlidingLog::new(50_000, ten_minutes).unwrap());
    let subject = Subject::new("wide", log, Consistency::Eventual);
    here.nodes[0].clock.jump(3_600);
    assert!(here.send(0, Verb::Check, subject.check()).unwrap().decision.is_admitted());
    eventually("that the server's clock is known", || (here.counted(&subject) == 1).then_some(()));
    let load = here.load(vec![subject.clone()]);
    // Over many beats: a flush must not depend on the one before.
    for _ in 0..20 {
        let flushes = here.sum(|metrics| metrics.flushes);
        eventually("another beat", || (here.sum(|it| it.flushes) > flushes).then_some(()));
    }
    let admitted = 1 + load.stop().sum(|tally| tally.firm + tally.local);
    for fleet in [&here, &there] {
        let counted = eventually("that all is counted", || {
            Some(fleet.counted(&subject)).filter(|counted| *counted >= admitted)
        });
        assert_eq!(counted, admitted);
    }
}
