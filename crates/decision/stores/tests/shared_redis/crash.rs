//! A server that is killed, or was never there.

use crate::fleet::Plan;
use crate::load::{Rests, every_mode};
use tidegate_test_servers::server::{Flavour, Server, Setup};

/// Every answered write is with the operating system, so a crash of the process loses none.
fn durable(flavour: Flavour) -> Server {
    Setup::new(flavour).with("appendonly", &["yes"]).with("appendfsync", &["no"]).start()
}

#[test]
fn a_server_that_is_killed_under_load_and_comes_back_is_not_charged_twice() {
    killed_and_restarted(Flavour::Redis);
}

#[test]
fn a_valkey_that_is_killed_under_load_and_comes_back_is_not_charged_twice() {
    killed_and_restarted(Flavour::Valkey);
}

fn killed_and_restarted(flavour: Flavour) {
    let mut server = durable(flavour);
    let fleet = Plan::new(3, &server.url()).start();
    let load = fleet.load(every_mode());
    for _ in 0..2 {
        load.wait_for(Rests::OnTheStore, 10);
        server.kill();
        fleet.wait_until_degraded();
        load.wait_for(Rests::OnTheNode, 10);
        server.restart();
        fleet.measure_recovery("kill and restart", &load);
    }
    load.wait_until_used_up();
    let seen = fleet.audit("kill and restart", load);
    for name in ["exact, wide", "eventual, wide"] {
        assert!(seen.of(name, |tally| tally.local) > 0, "{name} went on in the outage");
    }
    assert!(fleet.nodes.iter().all(|node| node.metrics().outages >= 2));
}

#[test]
fn nodes_that_start_without_a_server_enforce_their_shares_and_heal() {
    let mut server = durable(Flavour::Redis);
    server.kill();
    let mut plan = Plan::new(3, &server.url());
    plan.settings.nodes_expected = 3;
    let fleet = plan.start_blind();
    let load = fleet.load(every_mode());
    fleet.wait_until_degraded();
    load.wait_for(Rests::OnTheNode, 250);
    let seen = load.seen();
    for mode in ["exact, tight", "leased, tight", "eventual, tight"] {
        assert!(seen.of(mode, |tally| tally.local_refused) > 0, "{mode} is enforced");
    }
    server.restart();
    fleet.measure_recovery("start without a server", &load);
    load.wait_until_used_up();
    fleet.audit("start without a server", load);
    assert!(fleet.nodes.iter().all(|node| node.metrics().nodes == 3));
}
