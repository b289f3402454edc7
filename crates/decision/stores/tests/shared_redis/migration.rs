//! Slots of a cluster that move under load.

use crate::fleet::Plan;
use crate::load::{Rests, every_mode};
use tidegate_test_servers::cluster::Cluster;
use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::server::{Flavour, Server};

/// The slots of the keys that a server has.
fn slots_in_use(server: &Server) -> Vec<usize> {
    let keys = server.tell(&["KEYS", "*"]);
    let keys = keys.list().iter().filter_map(Reply::text);
    let slots = keys.map(|key| server.tell(&["CLUSTER", "KEYSLOT", &key]).text().unwrap());
    let mut slots: Vec<usize> = slots.map(|slot| slot.parse().unwrap()).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

#[test]
fn slots_that_move_under_load_lose_and_double_nothing() {
    let cluster = Cluster::start(Flavour::Redis);
    let fleet = Plan::new(2, &cluster.url()).unhurried().start();
    let load = fleet.load(every_mode());
    load.wait_for(Rests::OnTheStore, 10);
    let from = (0..3).max_by_key(|at| slots_in_use(&cluster.masters[*at]).len()).unwrap();
    let to = (from + 1) % 3;
    let moving = slots_in_use(&cluster.masters[from]);
    assert!(!moving.is_empty());
    for slot in moving {
        cluster.begin_move(slot, from, to);
        load.wait_for(Rests::OnTheStore, 3);
        cluster.carry_keys(slot, from, to);
        load.wait_for(Rests::OnTheStore, 3);
        cluster.end_move(slot, to);
    }
    load.wait_until_used_up();
    let seen = fleet.audit("slots move", load);
    assert_eq!(seen.sum(|tally| tally.local + tally.local_refused), 0, "{}", seen.words());
    assert_eq!(fleet.sum(|metrics| metrics.failures), 0);
    assert!(fleet.nodes.iter().all(|node| node.store.remote().figures().redirects > 0));
}
