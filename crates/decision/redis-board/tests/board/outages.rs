//! A server that is gone or says nothing, while nodes hold grants.
//!
//! A node goes on with its last grant until four fifths of the lease are over, then with
//! its safe share, and with new grants when the server is back. It never stops
//! admitting and never admits without a limit.

use crate::harness::{CAPACITY, Node, SHARE, eventually};
use tidegate_test_servers::server::Server;

/// A busy node with more than its share, and an idle one.
async fn lopsided(server: &Server) -> (Node, Node) {
    let (busy, idle) = (Node::start(&server.url(), 1), Node::start(&server.url(), 2));
    let mut held = Vec::new();
    eventually("that the busy node has all that it can work on", || {
        held.extend(busy.fill());
        let known = idle.protection.gauges().fleet.lease_age.is_some();
        (known && held.len() as u64 == CAPACITY).then_some(())
    })
    .await;
    (busy, idle)
}

/// Waits until nodes have fallen back; up to then each goes by its last grant.
async fn wait_for_fallback(nodes: [&Node; 2]) {
    eventually("that both nodes go by their safe share", || {
        let views = nodes.map(|node| node.protection.gauges().fleet);
        for (node, view) in nodes.iter().zip(views) {
            assert!(!node.fill().is_empty(), "it never stops admitting");
            let expected = if view.fallback { SHARE..=SHARE } else { 1..=CAPACITY };
            assert!(expected.contains(&view.grant), "{view:?}");
        }
        views.iter().all(|view| view.fallback).then_some(())
    })
    .await;
}

async fn wait_for_grants(nodes: [&Node; 2]) {
    eventually("that both nodes have grants again", || {
        let views = nodes.map(|node| node.protection.gauges().fleet);
        let renewed = views.iter().all(|view| !view.fallback);
        let sum: u64 = views.iter().map(|view| view.grant).sum();
        assert!(!renewed || sum <= 2 * SHARE, "{views:?}");
        (renewed && views.iter().all(|view| view.pool == 2 * SHARE)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn nodes_of_a_server_that_died_keep_their_safe_share_and_have_grants_when_it_is_back() {
    let mut server = Server::redis();
    let (busy, idle) = lopsided(&server).await;
    server.kill();
    wait_for_fallback([&busy, &idle]).await;
    assert!(busy.protection.gauges().fleet.beats_missed > 0);
    // It has forgotten everything, and learns what nodes hold.
    server.restart();
    wait_for_grants([&busy, &idle]).await;
}

#[tokio::test]
async fn nodes_of_a_server_that_hangs_keep_their_safe_share_and_have_grants_when_it_goes_on() {
    let server = Server::valkey();
    let (busy, idle) = lopsided(&server).await;
    server.freeze();
    wait_for_fallback([&busy, &idle]).await;
    server.thaw();
    wait_for_grants([&busy, &idle]).await;
}

#[tokio::test]
async fn a_node_that_never_reached_a_server_goes_by_its_own_capacity() {
    let mut server = Server::redis();
    server.kill();
    let node = Node::start(&server.url(), 1);
    eventually("that beats were missed", || {
        assert_eq!(node.admit_below(), SHARE);
        (node.protection.gauges().fleet.beats_missed >= 3).then_some(())
    })
    .await;
    let view = node.protection.gauges().fleet;
    assert!(!view.fallback && view.lease_age.is_none());
}
