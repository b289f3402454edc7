//! The register of nodes.

use std::time::Duration;

use tidegate_algorithms::Timestamp;
use tidegate_stores::{NodeId, RedisSettings, RedisStore, Remote};

use tidegate_test_servers::eventually;
use tidegate_test_servers::server::Server;

const WITHIN: Duration = Duration::from_secs(5);
/// The time of every node's clock: years behind the server's.
const NOW: Timestamp = Timestamp::from_secs(1_000_000_000);

async fn connected(server: &Server) -> RedisStore {
    let store = RedisStore::new(RedisSettings::parse(&server.url()).unwrap()).unwrap();
    store.connected().await;
    store
}

#[tokio::test]
async fn nodes_are_counted_while_they_register_and_not_after_they_left() {
    let server = Server::redis();
    let (one, other) = (connected(&server).await, connected(&server).await);
    let long = Duration::from_secs(60);
    assert_eq!(one.register(NodeId(1), long, NOW, WITHIN).await, Ok(1));
    assert_eq!(other.register(NodeId(2), long, NOW, WITHIN).await, Ok(2));
    assert_eq!(one.register(NodeId(1), long, NOW, WITHIN).await, Ok(2), "no node is counted twice");
    other.unregister(NodeId(2), NOW, WITHIN).await.unwrap();
    assert_eq!(one.register(NodeId(1), long, NOW, WITHIN).await, Ok(1));
}

#[tokio::test]
async fn whoever_registers_learns_what_the_servers_clock_shows() {
    let server = Server::redis();
    let store = connected(&server).await;
    assert_eq!(store.remote_time(NOW), NOW);
    store.register(NodeId(1), Duration::from_secs(60), NOW, WITHIN).await.unwrap();
    let shown = store.remote_time(NOW);
    assert!(shown > Timestamp::from_secs(1_700_000_000), "{shown:?}");
    store.unregister(NodeId(1), NOW, WITHIN).await.unwrap();
    assert!(store.remote_time(NOW) >= shown, "the server's clock goes on, and ours does not");
}

#[tokio::test]
async fn a_node_that_died_is_forgotten_when_its_time_is_over() {
    let server = Server::redis();
    let store = connected(&server).await;
    store.register(NodeId(7), Duration::from_millis(50), NOW, WITHIN).await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        eventually("the dead node is gone", || {
            let live = store.register(NodeId(8), Duration::from_millis(50), NOW, WITHIN);
            (runtime.block_on(live) == Ok(1)).then_some(())
        });
    })
    .await
    .unwrap();
}
