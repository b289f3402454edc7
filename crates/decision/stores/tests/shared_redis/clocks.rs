//! Nodes whose clocks jump, with servers whose clocks do not.

use std::time::Duration;

use tidegate_algorithms::{Concurrency, Holder, Limit, Period, SlidingLog};
use tidegate_stores::{Check, Consistency, Verb};

use crate::fleet::Plan;
use crate::load::{Rests, Subject, TIGHT};
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::Server;

const HOUR: i64 = 3_600;

/// Limits that an hour would free, if the node's clock had a say.
fn subjects() -> Vec<Subject> {
    let ten_minutes = Period::new(Duration::from_secs(600)).unwrap();
    let log = |name, mode| {
        Subject::new(name, Limit::new(SlidingLog::new(TIGHT, ten_minutes).unwrap()), mode)
    };
    vec![
        log("exact log", Consistency::Exact),
        log("leased log", Consistency::Leased),
        log("eventual log", Consistency::Eventual),
    ]
}

#[test]
fn a_clock_that_jumps_an_hour_forward_and_back_frees_nothing() {
    let server = Server::redis();
    let fleet = Plan::new(2, &server.url()).unhurried().start();
    let load = fleet.load(subjects());
    for jump in [HOUR, -HOUR, -HOUR, HOUR] {
        load.wait_for(Rests::OnTheStore, 10);
        fleet.nodes[0].clock.jump(jump);
    }
    load.wait_until_used_up();
    // Also once nothing is left: refusals that are remembered go by the clock too.
    for jump in [HOUR, -HOUR, -HOUR, HOUR] {
        fleet.nodes[0].clock.jump(jump);
        load.wait_for(Rests::OnTheStore, 10);
    }
    let seen = fleet.audit("a clock jumps", load);
    assert_eq!(seen.sum(|tally| tally.local + tally.local_refused), 0, "no store failed");
}

#[test]
fn slots_that_are_held_live_on_when_the_clock_of_their_node_jumps() {
    let server = Server::redis();
    let fleet = Plan::new(3, &server.url()).unhurried().start();
    let four_seconds = Period::new(Duration::from_secs(4)).unwrap();
    let limit = Limit::new(Concurrency::new(2, four_seconds).unwrap());
    let slots = Subject::new("slots", limit, Consistency::Exact);
    let slot = |number: usize| Check { holder: Holder(number as u64 + 1), ..slots.check() };
    for at in [0, 1] {
        assert!(fleet.take_slot(at, slot(at)));
    }
    fleet.nodes[0].clock.jump(-HOUR);
    fleet.nodes[1].clock.jump(HOUR);
    // Three renewals of each are a life: without them both slots would be free.
    eventually("that both slots are renewed three times", || {
        assert!(!fleet.send(2, Verb::Check, slot(2)).unwrap().decision.is_admitted());
        let renewed = |at: usize| fleet.nodes[at].store.remote().held().renewed;
        (renewed(0) >= 3 && renewed(1) >= 3).then_some(())
    });
    fleet.give_back(0, slot(0));
    eventually("that the slot that was given back is free", || {
        fleet.send(2, Verb::Check, slot(2)).unwrap().decision.is_admitted().then_some(())
    });
}
