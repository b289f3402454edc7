//! While a fleet is upgraded, nodes of the old release and of the new one share a Redis: together they
//! admit what the limit allows.
//!
//! The old node is its recorded traffic (`tests/golden/redis_traffic`), and in the last tests a real
//! binary: that at `TIDEGATE_OLD_BINARY`, as `make upgrade-test` sets it, otherwise the one under test.

#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "serve/process.rs"]
mod process;
#[path = "support/redis_wire.rs"]
mod redis_wire;
#[path = "support/upgrade.rs"]
mod upgrade;
#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "serve/upstream.rs"]
mod upstream;

use std::path::PathBuf;

use process::{Folder, Serving, binary};
use redis_wire::{Connection, Words};
use tidegate_test_servers::server::Server;
use upgrade::{LIMIT, OLD_CHECKS, RECORDED, RULES, Step, UPSTREAM, ask, until_shared};
use upstream::Upstream;

/// An old node: what it sent, played again.
struct OldNode {
    redis: Connection,
    steps: Vec<Step>,
    played: usize,
}

impl OldNode {
    fn new(server: &Server, name: &str) -> Self {
        let mut redis = Connection::open(server.port());
        for script in upgrade::scripts() {
            redis.ask(&[b"SCRIPT".as_slice(), b"LOAD", &script]);
        }
        let now = redis.ask(&["TIME"]).list()[0].bytes();
        let now = String::from_utf8(now).expect("digits").parse().expect("seconds");
        let steps = upgrade::read_steps(name, &upgrade::window(now));
        assert!(steps.len() >= OLD_CHECKS, "{name} has {} steps", steps.len());
        OldNode { redis, steps, played: 0 }
    }

    /// Plays the next step; whether it changed the counter, which a refusal does not.
    #[track_caller]
    fn play(&mut self, about: &str) -> bool {
        let step = &self.steps[self.played];
        assert_eq!(step.about, about);
        self.played += 1;
        let key = key(&step.commands[0]);
        let before = self.redis.ask(&[b"DUMP", key]);
        for command in &step.commands {
            self.redis.ask(command);
        }
        self.redis.ask(&[b"DUMP", key]) != before
    }
}

/// The key that a command is about.
fn key(command: &Words) -> &[u8] {
    let is_script = command[0].eq_ignore_ascii_case(b"EVALSHA");
    &command[if is_script { 3 } else { 1 }]
}

/// The remaining units according to the new node.
#[track_caller]
fn remaining(serving: &mut Serving, key: &str) -> u64 {
    let answer = ask(serving, "peek", key, "ada").json();
    answer["decisions"][0]["remaining"].as_u64().expect("a number")
}

/// Both take turns until the limit is used up.
#[track_caller]
fn use_up(old: &mut OldNode, new: &mut Serving, key: &str) {
    for turn in 0..LIMIT / 2 {
        assert!(old.play("check"), "{key}: the old node is admitted");
        let left = LIMIT - 2 * turn - 1;
        assert_eq!(remaining(new, key), left as u64, "{key}: the new node sees what the old used");
        assert_eq!(ask(new, "check", key, "ada").status, 200, "{key}: the new node is admitted");
    }
}

#[test]
fn recorded_traffic_of_an_old_node_and_a_new_node_admit_the_limit_together() {
    let redis = Server::redis();
    let folder = Folder::with_rules(RULES);
    let mut new = upgrade::start(&binary(), &folder, redis.port()).serving();
    until_shared(&mut new);
    for key in RECORDED {
        let mut old = OldNode::new(&redis, key);
        use_up(&mut old, &mut new, key);
        assert!(!old.play("check"), "{key}: the old node is refused");
        assert_eq!(ask(&mut new, "check", key, "ada").status, 429, "{key}: so is the new one");
    }
}

#[test]
fn a_slot_that_an_old_node_gives_back_is_free_for_a_new_one() {
    let redis = Server::redis();
    let folder = Folder::with_rules(RULES);
    let mut new = upgrade::start(&binary(), &folder, redis.port()).serving();
    until_shared(&mut new);
    let mut old = OldNode::new(&redis, "concurrency");
    use_up(&mut old, &mut new, "concurrency");
    assert!(!old.play("check"));
    assert_eq!(ask(&mut new, "check", "concurrency", "ada").status, 429);
    assert!(old.play("release"));
    // A refusal is remembered for a moment.
    new.until(|new| (ask(new, "check", "concurrency", "ada").status == 200).then_some(()));
    assert_eq!(ask(&mut new, "check", "concurrency", "ada").status, 429);
}

#[test]
fn in_the_layout_of_upstream_an_old_node_and_a_new_one_count_together() {
    let redis = Server::redis();
    let folder = Folder::with_rules(RULES);
    let mut new = upgrade::start_upstream(&binary(), &folder, redis.port()).serving();
    until_shared(&mut new);
    let mut old = OldNode::new(&redis, UPSTREAM);
    use_up(&mut old, &mut new, "fixed_window");
    assert_eq!(ask(&mut new, "check", "fixed_window", "ada").status, 429);
}

/// The binary of the old release.
#[expect(clippy::disallowed_methods, reason = "a test has no argument parser")]
fn old_binary() -> PathBuf {
    std::env::var_os("TIDEGATE_OLD_BINARY").map_or_else(binary, PathBuf::from)
}

/// Both take turns; how many requests they admit of so many.
fn admitted(nodes: &mut [Serving; 2], key: &str, requests: usize) -> usize {
    let mut is_admitted =
        |turn: &usize| ask(&mut nodes[turn % 2], "check", key, "bob").status == 200;
    (0..requests).filter(&mut is_admitted).count()
}

fn both(folder: &Folder, redis: &Server) -> [Serving; 2] {
    let mut nodes = [old_binary(), binary()]
        .map(|binary| upgrade::start(&binary, folder, redis.port()).serving());
    for node in &mut nodes {
        until_shared(node);
    }
    nodes
}

#[test]
fn two_releases_side_by_side_admit_the_limit_together() {
    let redis = Server::redis();
    let folder = Folder::with_rules(RULES);
    let mut nodes = both(&folder, &redis);
    for key in RECORDED.iter().chain(&["calendar"]) {
        assert_eq!(admitted(&mut nodes, key, 2 * LIMIT), LIMIT, "{key}");
    }
    drop(nodes);
    let redis = Server::redis();
    let mut nodes = [old_binary(), binary()]
        .map(|binary| upgrade::start_upstream(&binary, &folder, redis.port()).serving());
    for node in &mut nodes {
        until_shared(node);
    }
    assert_eq!(admitted(&mut nodes, "fixed_window", 2 * LIMIT), LIMIT, "in upstream's layout");
}

#[test]
fn two_releases_side_by_side_never_lease_more_than_the_limit() {
    let redis = Server::redis();
    let folder = Folder::with_rules(RULES);
    let mut nodes = both(&folder, &redis);
    let admitted = admitted(&mut nodes, "leased", 600);
    // Up to an eighth may lie idle at each.
    assert!((300..=400).contains(&admitted), "{admitted}");
}

#[test]
fn two_releases_side_by_side_add_up_what_they_count() {
    let redis = Server::redis();
    let folder = Folder::with_rules(RULES);
    let mut nodes = both(&folder, &redis);
    let admitted = admitted(&mut nodes, "eventual", 2000);
    // Each alone would admit 1000; what comes within a beat may be more than that together.
    assert!((1000..1500).contains(&admitted), "{admitted}");
}

#[test]
fn two_releases_side_by_side_are_one_fleet() {
    let redis = Server::redis();
    let upstream = Upstream::start();
    let folder = Folder::with_rules(RULES);
    folder.write("gateway.yaml", &upstream.document(""));
    let mut nodes = [old_binary(), binary()].map(|binary| {
        upgrade::start(&binary, &folder, redis.port())
            .args(["--gateway", "gateway.yaml", "--gateway-listen", "127.0.0.1:0"])
            .args(["--set", "overload.capacity=10", "--set", "overload.fleet.lease=30s"])
            .args(["--set", "overload.fleet.beat=1s"])
            .serving()
    });
    for node in &mut nodes {
        // Four fifths of the capacity of both.
        node.until(|node| {
            node.get("debug", "/metrics").body.contains("tidegate_fleet_pool 16\n").then_some(())
        });
    }
}
