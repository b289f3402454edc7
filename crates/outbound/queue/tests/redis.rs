//! The store on Redis Streams under faults and with several processes, on the server's clock.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "redis")]

mod faults;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use faults::{CrashingServer, batch, kill_while_producing};
use tidegate_queue::{
    ClaimBudget, NewRecord, Queue, QueueError, QueueSettings, QueueStore, RedisQueueSettings,
    RedisSettings, RedisStore, Timestamp,
};
use tidegate_test_servers::server::{Server, Setup};

const LEASE: Duration = Duration::from_secs(600);

async fn open(url: &str) -> Result<Arc<dyn Queue>, QueueError> {
    let settings = RedisQueueSettings::new(RedisSettings::parse(url).unwrap());
    RedisStore::connect(settings).await?.open_queue("orders", QueueSettings::default()).await
}

async fn start() -> Server {
    let setup = Setup::redis().with("appendonly", &["yes"]).with("appendfsync", &["always"]);
    tokio::task::spawn_blocking(|| setup.start()).await.unwrap()
}

impl CrashingServer for Server {
    fn kill(&mut self) {
        Server::kill(self);
    }

    fn restart(&mut self) {
        Server::restart(self);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_no_stored_record_and_is_found_again() {
    let server = start().await;
    let queue = open(&server.url()).await.unwrap();
    let (_server, found) = kill_while_producing(server, queue.clone()).await;
    // Claims made by the server that was killed hold as well.
    assert_eq!(queue.stats().await.unwrap().in_flight, found);
}

#[tokio::test]
async fn a_server_without_an_append_only_file_is_refused() {
    let server = tokio::task::spawn_blocking(Server::redis).await.unwrap();
    let refused = open(&server.url()).await.err().unwrap();
    assert!(
        matches!(&refused, QueueError::InvalidSettings(text) if text.contains("append-only file")),
        "{refused}"
    );
}

#[tokio::test]
async fn a_server_out_of_memory_rejects_records_and_still_acknowledges() {
    let server = start().await;
    let queue = open(&server.url()).await.unwrap();
    queue.enqueue(batch(10)).await.unwrap();
    let claim = queue.claim(ClaimBudget::records(10, LEASE)).await.unwrap();
    server.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = queue.enqueue(batch(1)).await.unwrap_err();
    assert!(matches!(full, QueueError::StorageFull(_)), "{full}");
    server.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    queue.ack(claim.deliveries.into_iter().map(|one| one.receipt).collect()).await.unwrap();
    assert_eq!(queue.stats().await.unwrap(), Default::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_one_queue_on_the_servers_clock() {
    let server = start().await;
    let (one, other) = (open(&server.url()).await.unwrap(), open(&server.url()).await.unwrap());
    one.enqueue(batch(100)).await.unwrap();
    let mut seen = BTreeSet::new();
    for queue in [&one, &other].into_iter().cycle().take(10) {
        for delivery in queue.claim(ClaimBudget::records(10, LEASE)).await.unwrap().deliveries {
            assert!(seen.insert(delivery.record.id), "no record goes to two processes");
        }
    }
    assert_eq!(seen.len(), 100);
    assert_eq!(other.stats().await.unwrap().in_flight, 100);
    let past = NewRecord { deadline: Some(Timestamp::from_secs(1)), ..batch(1).remove(0) };
    let late = one.enqueue(vec![past]).await.unwrap_err();
    assert!(matches!(late, QueueError::InvalidRecord { .. }), "{late}");
}

#[tokio::test]
async fn an_emptied_queue_leaves_little_behind() {
    let server = start().await;
    let queue = open(&server.url()).await.unwrap();
    for _ in 0..5 {
        queue.enqueue(batch(20)).await.unwrap();
        let claim = queue.claim(ClaimBudget::records(20, LEASE)).await.unwrap();
        queue.ack(claim.deliveries.into_iter().map(|one| one.receipt).collect()).await.unwrap();
    }
    let left = server.tell(&["KEYS", "*"]);
    assert!(!format!("{left:?}").contains(":record:"), "{left:?}");
}
