//! A server that forgets the script.

use crate::fleet::Plan;
use crate::load::{Rests, every_mode};
use tidegate_test_servers::server::Server;

const FLUSHES: u64 = 20;

#[test]
fn scripts_that_are_flushed_under_load_are_loaded_again_without_an_error() {
    let server = Server::redis();
    let fleet = Plan::new(3, &server.url()).unhurried().start();
    let load = fleet.load(every_mode());
    for _ in 0..FLUSHES {
        load.wait_for(Rests::OnTheStore, 2);
        server.tell(&["SCRIPT", "FLUSH"]);
    }
    load.wait_until_used_up();
    let seen = fleet.audit("script flush", load);
    assert_eq!(seen.sum(|tally| tally.local + tally.local_refused), 0, "{}", seen.words());
    assert_eq!(fleet.sum(|metrics| metrics.failures), 0);
    for node in &fleet.nodes {
        assert!(node.store.remote().figures().script_reloads > 0);
    }
}
