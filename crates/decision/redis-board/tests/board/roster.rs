//! The roster of a fleet on real servers: nodes come, go and crash.

use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_redis_board::{DESCRIPTION_BYTES_MAX, NodeRoster};
use tidegate_redis_link::RedisSettings;

use tidegate_test_servers::cluster::Cluster;
use tidegate_test_servers::server::{Flavour, Server};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

async fn roster(url: &str, node: u64) -> NodeRoster {
    let roster = NodeRoster::new(RedisSettings::parse(url).unwrap(), "shop", node).unwrap();
    roster.set_clock(START);
    // The connection is opened in the background.
    while roster.leave().await.is_err() {
        tokio::task::yield_now().await;
    }
    roster
}

async fn texts(roster: &NodeRoster) -> Vec<String> {
    let read = roster.read().await.unwrap();
    let mut texts: Vec<String> =
        read.into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect();
    texts.sort();
    texts
}

#[tokio::test]
async fn every_node_sees_all_nodes_until_they_leave_or_crash() {
    let servers = [Server::redis(), Server::valkey()];
    let cluster = Cluster::start(Flavour::Valkey);
    for url in [servers[0].url(), servers[1].url(), cluster.url()] {
        let (one, other, crashed) =
            (roster(&url, 1).await, roster(&url, 2).await, roster(&url, u64::MAX).await);
        assert_eq!(texts(&one).await, [""; 0], "{url}");
        one.write(b"one").await.unwrap();
        other.write(b"other").await.unwrap();
        crashed.write(b"crashed").await.unwrap();
        assert_eq!(texts(&other).await, ["crashed", "one", "other"], "{url}");
        one.write(b"one again").await.unwrap();
        other.leave().await.unwrap();
        assert_eq!(texts(&one).await, ["crashed", "one again"], "{url}");
        // The crashed node has renewed its lease no more.
        one.set_clock(START.after(Nanos::from_secs(9)));
        one.write(b"one").await.unwrap();
        one.set_clock(START.after(Nanos::from_secs(11)));
        assert_eq!(texts(&one).await, ["one"], "{url}");
        // The clock was set back by an hour: no lease lasts an hour longer.
        one.set_clock(Timestamp::from_secs(1_800_000_000 - 3_600));
        assert_eq!(texts(&one).await, [""; 0], "{url}");
        one.write(b"one").await.unwrap();
        assert_eq!(texts(&one).await, ["one"], "{url}");
    }
}

#[tokio::test]
async fn a_long_description_is_cut_and_garbage_at_the_key_is_an_error_or_dropped() {
    let server = Server::redis();
    let one = roster(&server.url(), 1).await;
    one.write(&[b'x'; DESCRIPTION_BYTES_MAX + 1]).await.unwrap();
    assert_eq!(texts(&one).await[0].len(), DESCRIPTION_BYTES_MAX);
    server.tell(&["HSET", "tg:nodes:shop", "x", "y", "12345678", "z"]);
    assert_eq!(texts(&one).await.len(), 1);
    server.tell(&["SET", "tg:nodes:shop", "something else"]);
    assert!(one.read().await.is_err());
    assert!(one.write(b"one").await.is_err());
}

#[tokio::test]
async fn a_server_that_stops_is_an_error_in_time() {
    let server = Server::redis();
    let one = roster(&server.url(), 1).await;
    drop(server);
    assert!(one.write(b"one").await.is_err());
    assert!(one.read().await.is_err());
}
