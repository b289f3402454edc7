//! A node that is killed while it holds a grant.
//!
//! The node is a separate process: this program, started with the address of the server in its environment. No assertion
//! depends on the duration of a step: the server's clock says when the lease ends, and every beat of the other node is
//! compared with that.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_algorithms::Nanos;
use tidegate_overload::{FleetBoard, FleetSettings, Report};

use crate::harness::{CAPACITY, Node, Rows, SHARE, board};
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::Server;

/// The variable with the server's address that makes this program a node.
const NODE: &str = "TIDEGATE_TEST_FLEET_NODE";
const KEY: &str = "tg:fleet:nodes";
const KILLED: u64 = 7;
const SURVIVOR: u64 = 8;

/// Beats until it is killed or its parent process has ended.
fn be_a_node(url: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _node = runtime.block_on(async { Node::start(url, KILLED) });
    let _ = std::io::stdin().read(&mut [0]);
}

/// The process, which is killed with its handle.
struct Process(Child);

impl Process {
    fn start(server: &Server) -> Self {
        let name = "killed::a_killed_nodes_grant_is_back_when_its_lease_is_over";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(NODE, server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }

    fn kill(&mut self) {
        // A child that was waited for is not signalled again.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how a test tells a process of its own what to do")]
fn a_killed_nodes_grant_is_back_when_its_lease_is_over() {
    if let Ok(url) = std::env::var(NODE) {
        return be_a_node(&url);
    }
    let server = Server::redis();
    let mut process = Process::start(&server);
    let row = || Rows::read(&server, KEY).rows.into_iter().find(|row| row.node == KILLED);
    eventually("that the node has a grant", || row().filter(|row| row.grant == SHARE));
    process.kill();
    let seen = Rows::read(&server, KEY);
    // The board itself is gone if the machine kept us waiting for that long.
    let lost = seen.rows.iter().find(|row| row.node == KILLED);
    let expires = lost.map_or(seen.now, |row| row.expires);
    let lease = Duration::from(FleetSettings::default().lease);
    let left = Duration::from_micros(expires.saturating_sub(seen.now));
    assert!(left <= lease, "{left:?}");

    let settings = FleetSettings { beat: Nanos::from_secs(20), ..FleetSettings::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let survivor = board(&server.url(), "nodes", settings);
    let beat = Report { node: SURVIVOR, capacity: CAPACITY, held: SHARE, ..Report::default() };
    eventually("that the grant is back", || {
        let before = Rows::read(&server, KEY).now;
        let grant = runtime.block_on(survivor.beat(beat)).unwrap();
        let after = Rows::read(&server, KEY).now;
        let back = grant.pool == SHARE;
        assert!(back || grant.pool == 2 * SHARE, "{grant:?}");
        assert!(if back { after >= expires } else { before < expires });
        back.then_some(())
    });
    assert!(Rows::read(&server, KEY).rows.iter().all(|row| row.node != KILLED));
}

#[test]
fn a_dead_nodes_grant_is_back_in_three_seconds_by_the_default_settings() {
    let settings = FleetSettings::default();
    // The lease, and the next beat of another: a fifth longer if it is late.
    let longest = settings.lease.get() + settings.beat.get() / 100 * 120;
    assert!(longest <= Nanos::from_secs(3).get());
}
