//! Nodes that live, on one server and on a cluster.

use tidegate_algorithms::Nanos;
use tidegate_overload::{FleetBoard, FleetSettings, Report};

use crate::harness::{CAPACITY, Node, Rows, SHARE, board, eventually, number};
use tidegate_test_servers::cluster::Cluster;
use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::server::{Flavour, Server};

const KEY: &str = "tg:fleet:nodes";
const NODES: u64 = 4;

/// On one thread, so that no node runs while a test inspects the board.
#[tokio::test]
async fn a_busy_node_takes_what_others_leave_and_together_they_never_go_beyond_the_pool() {
    let server = Server::redis();
    let nodes: Vec<Node> = (1..=NODES).map(|id| Node::start(&server.url(), id)).collect();
    let pool = NODES * SHARE;
    let watch = || {
        // A node that the machine kept waiting for a whole lease goes by its safe share, and
        // others have heard of that only a beat later.
        if nodes.iter().all(|node| !node.protection.gauges().fleet.fallback) {
            let sum: u64 = nodes.iter().map(Node::admit_below).sum();
            assert!(sum <= pool, "{sum} of {pool}");
        }
        let seen = Rows::read(&server, KEY);
        let complete = seen.rows.len() as u64 == NODES;
        assert!(!complete || seen.granted() <= seen.pool(), "{seen:?}");
        complete
    };
    eventually("that all nodes are known", || watch().then_some(())).await;
    let mut held = Vec::new();
    eventually("that the busy node has all that it can work on", || {
        watch();
        held.extend(nodes[0].fill());
        (held.len() as u64 == CAPACITY).then_some(())
    })
    .await;
    // Now all want everything, and the first one's requests end one by one.
    eventually("that everybody has the same", || {
        watch();
        nodes[1..].iter().for_each(|node| drop(node.fill()));
        if held.len() as u64 > SHARE {
            held.pop();
        }
        nodes.iter().all(|node| node.admit_below() == SHARE).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_fleet_lives_in_one_slot_of_a_cluster() {
    let cluster = Cluster::start(Flavour::Valkey);
    let settings = FleetSettings { beat: Nanos::from_secs(20), ..FleetSettings::default() };
    for fleet in ["a", "b", "c", "d"] {
        let board = board(&cluster.url(), fleet, settings);
        board.connected().await;
        let report = |node| Report { node, capacity: 100, held: 80, ..Report::default() };
        assert_eq!(board.beat(report(1)).await.unwrap().pool, 80);
        assert_eq!(board.beat(report(2)).await.unwrap().pool, 160);
    }
}

#[tokio::test]
async fn a_board_is_gone_by_itself_when_its_last_node_is() {
    let server = Server::redis();
    let lease = Nanos::from_millis(100);
    let beat = Nanos::from_secs(20);
    let settings = FleetSettings { lease, beat, ..FleetSettings::default() };
    let board = board(&server.url(), "gone", settings);
    board.connected().await;
    board.beat(Report { node: 1, capacity: 10, ..Report::default() }).await.unwrap();
    let Reply::Number(left) = server.ask(&["PTTL", "tg:fleet:gone"]) else { panic!("a number") };
    assert!(left <= 2_100, "{left}");
    eventually("that the board is gone", || {
        (number(&server.ask(&["EXISTS", "tg:fleet:gone"])) == 0).then_some(())
    })
    .await;
}
