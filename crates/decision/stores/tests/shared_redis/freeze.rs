//! A server that is there and says nothing.

use std::time::Duration;

use crate::fleet::Plan;
use crate::load::{Rests, every_mode};
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::{Flavour, Server, Setup};

/// Longer than the breaker counts calls together.
const FROZEN: Duration = Duration::from_millis(1_500);

#[test]
fn a_server_that_hangs_delays_no_caller_and_is_used_again_when_it_goes_on() {
    frozen_and_thawed(&Setup::new(Flavour::Redis).start());
}

#[test]
fn a_valkey_that_hangs_delays_no_caller_and_is_used_again_when_it_goes_on() {
    frozen_and_thawed(&Setup::new(Flavour::Valkey).start());
}

fn frozen_and_thawed(server: &Server) {
    let fleet = Plan::new(3, &server.url()).start();
    let load = fleet.load(every_mode());
    load.wait_for(Rests::OnTheStore, 10);
    server.freeze();
    fleet.wait_until_degraded();
    let before = load.seen().sum(|tally| tally.waited);
    let asked = load.seen().sum(|tally| tally.asked);
    eventually("that the silence lasts", || {
        fleet.nodes.iter().all(|node| node.metrics().degraded_for > FROZEN).then_some(())
    });
    load.wait_for(Rests::OnTheNode, 10);
    let waited = load.seen().sum(|tally| tally.waited) - before;
    let asked = load.seen().sum(|tally| tally.asked) - asked;
    // Calls in flight when the breaker opened, and calls that waited for a processor.
    assert!(waited <= 12 + asked / 10, "{waited} of {asked} waited while the breaker was open");
    server.thaw();
    fleet.measure_recovery("freeze", &load);
    load.wait_until_used_up();
    fleet.audit("freeze", load);
    for node in &fleet.nodes {
        let metrics = node.metrics();
        assert!(metrics.outages >= 1 && metrics.fell_back_local > 0 && metrics.failures > 0);
        assert!(metrics.degraded_for > FROZEN && !metrics.degraded, "{metrics:?}");
    }
}
